"""Report to a container engine whether the sidecar, or the status page, in this container is alive: exit code 0 or 1.

Rule: it uses no setting. It finds the process and the address that it listens on in /proc, so the port may
come from a flag, a variable or a settings file, and variables that an orchestrator sets cannot mislead it.
At that address it requests /healthz, which answers as long as the event loop runs.
A sidecar that serves no pages is alive as long as its process is there and not stopped.
A lost connection to NATS is no reason for a restart: the sidecar reconnects by itself, and a restart would only
discard its state.
Limit: Linux; one process id may be given as an argument where more than one sidecar shares this file system.
"""

import http.client
import ipaddress
import os
import sys
from collections.abc import Iterator
from pathlib import Path

TIMEOUT_SECONDS = 3.0
"""Longest wait for an answer; below the timeout that the engine gives this check."""

PROGRAM = "nats-scheduler"
COMMANDS = ("run", "web")
"""The commands that serve until they are ended."""
PROC = Path("/proc")
STOPPED = ("T", "t")
"""How /proc writes the state of a process that a signal or a debugger has stopped."""
LISTEN = "0A"
"""How /proc/net/tcp writes the state of a socket that listens."""


def main() -> int:
    """Check every sidecar and status page of this container; print on stderr why one is not healthy."""
    processes = [PROC / one for one in sys.argv[1:]] or list(served())
    if not processes:
        print("no process of nats-scheduler runs here", file=sys.stderr)
        return 1
    faults = [fault for process in processes for fault in faults_of(process)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def served() -> Iterator[Path]:
    """Find the processes that run `nats-scheduler run` or `web` on the file system of this container."""
    here = os.readlink(PROC / "self" / "ns" / "mnt")
    for process in PROC.glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            is_here = os.readlink(process / "ns" / "mnt") == here
        except OSError:
            continue  # it has ended, or belongs to another user
        names = [Path(word).name for word in words[:2]]
        if is_here and PROGRAM in names and words[names.index(PROGRAM) + 1] in COMMANDS:
            yield process


def faults_of(process: Path) -> list[str]:
    """Return what is wrong with one process; an empty list if it is healthy."""
    try:
        places = listens_on(process)
        if not places and is_stopped(process):
            return [f"process {process.name} is stopped"]
    except OSError as error:
        return [f"process {process.name} cannot be examined: {error.strerror}"]
    return [fault for place in places if (fault := fault_at(*place))]


def is_stopped(process: Path) -> bool:
    """Return whether a signal or a debugger has stopped a process; the state follows the name, in parentheses."""
    return (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] in STOPPED


def listens_on(process: Path) -> list[tuple[str, int]]:
    """Return the addresses and ports on which a process listens, as this machine reaches them."""
    open_files = [_target(link) for link in (process / "fd").iterdir()]
    places = []
    for table in ("tcp", "tcp6"):
        path = process / "net" / table
        for line in path.read_text("ascii").splitlines()[1:] if path.exists() else ():
            columns = line.split()
            if columns[3] == LISTEN and f"socket:[{columns[9]}]" in open_files:
                address, _, port = columns[1].partition(":")
                places.append((_reachable(address), int(port, 16)))
    return places


def fault_at(host: str, port: int) -> str:
    """Request /healthz once, and return what is wrong with the answer; "" if it is good."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/healthz", headers={"Host": "localhost"})  # the page answers to no other name
        answer = connection.getresponse()
        body = answer.read(200).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from {host} port {port}: {error}"
    finally:
        connection.close()
    return "" if answer.status == http.client.OK else f"{host} port {port} answered {answer.status}: {body}"


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""  # closed meanwhile


def _reachable(address: str) -> str:
    """Return the address that /proc/net/tcp writes as words of 32 bits; loopback for all addresses."""
    words = [address[at : at + 8] for at in range(0, len(address), 8)]
    host = ipaddress.ip_address(b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words))
    if host.is_unspecified:
        return "127.0.0.1" if host.version == 4 else "::1"
    return str(host)


if __name__ == "__main__":
    sys.exit(main())
