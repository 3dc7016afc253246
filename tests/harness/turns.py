"""What the workers of a run share: turns, as many import the tests at a time as there are processors, and the ports.

In a fresh checkout the first ones compile all modules, and those that wait find them compiled. Without turns each of
eight workers compiles all of them, which takes twice as long.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def ports_of_this_worker(ports: range) -> range:
    """Return those for the servers of this worker: no server of another one takes the port of one that is down."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return ports[int(worker.removeprefix("gw")) :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])] if worker else ports


@contextmanager
def turn_of_this_worker() -> Iterator[None]:
    """Wait until the workers before this one have collected; the only process of a run has nobody to wait for."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker:
        yield
        return
    run, place = os.environ["PYTEST_XDIST_TESTRUNUID"], int(worker.removeprefix("gw")) % (os.cpu_count() or 1)
    lock = Path(tempfile.gettempdir(), f"collecting-{run}-{place}")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    lock.unlink(missing_ok=True)
