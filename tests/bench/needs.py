"""The resources that the large scenarios need of the machine, and those of them that are missing.

The rule: a scenario that the machine cannot hold is refused before it begins, with what is missing; otherwise it would
end after minutes of work, by a full disk or by the kernel that kills the server.
The figures are upper bounds of what was measured with 1,000,000 schedules of this benchmark, so that they hold for a
sidecar and a server that use more than today's.
Limit: the memory that others are about to use is not known.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.bench.scenarios.scenario import Scenario

LARGE = 1_000_000
"""With fewer messages nothing is checked."""
DISK_BYTES = 500
"""Of a stored message with its schedule's headers, and of its place in the index."""
MEMORY_BYTES: Mapping[str, int] = {"ordinary": 50}
"""Of server and sidecar together, for each message, by family."""
MEMORY_BYTES_OF_A_SCHEDULE = 1_500
BASE_BYTES = 500_000_000
"""The memory that server, sidecar and this program take without any message."""
GIGABYTE = 1_000_000_000


def needed(scenario: Scenario) -> tuple[int, int]:
    """Return the bytes of memory and of disk that a scenario needs at most."""
    family, _, number = scenario.name.rpartition("-")
    count = int(number)
    return BASE_BYTES + count * MEMORY_BYTES.get(family, MEMORY_BYTES_OF_A_SCHEDULE), count * DISK_BYTES


def missing(scenario: Scenario, memory: int, disk: int) -> Iterator[str]:
    """Yield what a scenario needs and the machine, with `memory` and `disk` bytes free, does not have."""
    if int(scenario.name.rpartition("-")[2]) < LARGE:
        return
    for what, needs, has in zip(("memory", "disk"), needed(scenario), (memory, disk), strict=True):
        if has < needs:
            shown = f"{needs / GIGABYTE:.1f} GB of {what}, {has / GIGABYTE:.1f} GB are free"
            yield f"{scenario.name} needs {shown}"


def available_memory() -> int:
    """Return the bytes of memory that processes can still take; where the kernel does not say it, the whole memory."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_disk(folder: Path) -> int:
    """Return the free bytes of the disk that has a folder."""
    return shutil.disk_usage(folder).free
