"""The resources that a process uses, as its kernel counts it: CPU time of all threads, and resident memory.

The rule: the figures are those of one process that we started, never of the machine.
The CPU clock of a process is exact to the nanosecond; it is read as Linux has it.
The kernel's part is known to its ticks only, mostly 10 ms, and is a sample: what runs at a tick counts as all since.
Limit: resident memory counts pages that a process shares with others, and those its allocator keeps for later.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

_CLOCK_OF_ALL_THREADS = 2
_SYSTEM_TIME = 12
"""The place of the kernel's ticks in /proc/PID/stat, counted after the name of the program."""


class Cpu(NamedTuple):
    """CPU time in seconds of those that do the work; the difference of two readings is what was used meanwhile."""

    both: float
    """Of the server and the sidecars together; if the server schedules by itself, its own."""
    scheduler: float
    """Of the processes that schedule: the sidecars, or else the server."""
    server: float
    kernel: float
    """What the kernel used for all of them: system calls and wakes."""

    def since(self, before: "Cpu") -> "Cpu":
        """Return what was used since an earlier reading."""
        return Cpu(*(now - then for now, then in zip(self, before, strict=True)))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used since its start."""
    # As clock_getcpuclockid(3) builds it: the inverted id of the process above three bits of kind.
    return time.clock_gettime((~pid << 3) | _CLOCK_OF_ALL_THREADS)


def kernel_seconds(pid: int) -> float:
    """Return the part of its CPU time that a process was in the kernel."""
    after_the_name = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return int(after_the_name[_SYSTEM_TIME]) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
