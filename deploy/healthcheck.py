"""Tell a container engine whether the sidecar in this container is alive: exit code 0 or 1.

It asks the metrics port, which answers as long as the process does. A lost connection to NATS is no reason to
be restarted: the sidecar rebuilds it by itself, and a restart would only forget what it knows.
"""

import http.client
import os
import sys

TIMEOUT_SECONDS = 3.0
"""Longest wait for an answer; below the timeout that the engine gives this check."""


def main() -> int:
    """Ask for the metrics once; say why on stderr when there is no good answer."""
    port = int(os.environ["NATS_SCHEDULER_METRICS_PORT"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/metrics")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        print(f"no answer from the metrics port {port}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status != http.client.OK:
        print(f"the metrics port {port} answered {status}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
