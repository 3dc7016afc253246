"""The resources that a process uses, as its kernel counts it: CPU time of all threads, and resident memory.

The rule: the figures are those of one process that we started, never of the machine.
On Linux the CPU clock of the process is read, exact to the nanosecond; elsewhere `ps` shows whole seconds or
hundredths, which is too coarse for a short burst and precise enough for the others.
The kernel's part is known to its ticks only, mostly 10 ms, and is a sample: what runs at a tick counts as all since.
Limit: resident memory counts pages that a process shares with others, and those its allocator keeps for later.
"""

import os
import platform
import subprocess
import time
from typing import NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CLOCK_OF_ALL_THREADS = 2
_SYSTEM_TIME = 12
"""The place of the kernel's ticks in /proc/PID/stat, counted after the name of the program."""
_IS_LINUX = platform.system() == "Linux"


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
    if _IS_LINUX:
        # As clock_getcpuclockid(3) builds it: the inverted id of the process above three bits of kind.
        return time.clock_gettime((~pid << 3) | _CLOCK_OF_ALL_THREADS)
    return read_clock(_ps(pid, "time"))


def kernel_seconds(pid: int) -> float:
    """Return the part of its CPU time that a process was in the kernel."""
    if _IS_LINUX:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            after_the_name = stat.read().rpartition(")")[2].split()
        return int(after_the_name[_SYSTEM_TIME]) / os.sysconf("SC_CLK_TCK")
    return read_clock(_ps(pid, "time")) - read_clock(_ps(pid, "utime"))


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    if _IS_LINUX:
        with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    return int(_ps(pid, "rss")) * 1024


def read_clock(text: str) -> float:
    """Read the CPU time that `ps` prints, `[[days-]hours:]minutes:seconds`, as seconds."""
    days, _, clock = text.strip().rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + (int(days) * 86_400 if days else 0)


def _ps(pid: int, field: str) -> str:
    return subprocess.run(["ps", "-o", f"{field}=", "-p", str(pid)], check=True, capture_output=True, text=True).stdout
