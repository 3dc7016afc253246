"""The measures: each with its name, its unit, and which way is better.

The rule: a figure without a measure is not printed, so that each figure means the same in every scenario.
"The scheduler" is the process that schedules: the server where it is native, else the sidecar.
CPU is that of both processes, so it is four measures: `sum`, `scheduler`, `server`, and the `kernel`'s part of the sum.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from tests.bench.processes import Cpu


@dataclass(frozen=True)
class Measure:
    """One measure."""

    name: str
    unit: str
    decimals: int = 2
    more_is_better: bool = False
    grain: float = 0.0
    """A difference below this is noise, also if it is large relative to a small figure."""
    is_compared: bool = True
    """True if it measures the scheduler, and not the load or the server."""

    def text(self, value: float) -> str:
        """Print a figure."""
        return f"{value:,.{self.decimals}f}"


@dataclass(frozen=True)
class CpuMeasure:
    """The CPU that the server and the scheduler use for one thing: four measures with one unit."""

    sum: Measure
    scheduler: Measure
    server: Measure
    kernel: Measure
    factor: float
    """From seconds to the unit."""

    def figures(self, used: Cpu, count: float) -> dict[str, float]:
        """Return the four figures for one of `count`."""
        scale = self.factor / count
        return figures(zip(self.measures, (part * scale for part in used), strict=True))

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The four, in the order of `Cpu`."""
        return self.sum, self.scheduler, self.server, self.kernel


MEASURES: dict[str, Measure] = {}
"""The measures by name, in the order of their declaration, which is that of the tables."""


def _declared(name: str, unit: str, decimals: int = 2, **more: Any) -> Measure:
    MEASURES[name] = measure = Measure(name, unit, decimals, **more)
    return measure


def _cpu_each(name: str, is_compared: bool = True) -> CpuMeasure:
    """Declare the CPU in µs for one fire or schedule."""
    return _cpu(name, "µs", 1, 1_000_000, is_compared=is_compared)


def _cpu_share(name: str, decimals: int, grain: float) -> CpuMeasure:
    """Declare the CPU in percent of a core."""
    return _cpu(name, "% of a core", decimals, 100, grain=grain)


def _cpu(name: str, unit: str, decimals: int, factor: float, **more: Any) -> CpuMeasure:
    parts = ("sum", "scheduler", "server", "kernel")
    both, scheduler, server, kernel = (_declared(f"{name}, {part}", unit, decimals, **more) for part in parts)
    return CpuMeasure(both, scheduler, server, kernel, factor)


HIGHEST_RATE = _declared("highest rate", "1/s", 0, more_is_better=True)
P50 = _declared("lateness p50", "ms", grain=0.5)
P99 = _declared("lateness p99", "ms", grain=1.0)
LAST = _declared("last stored after", "ms", grain=2.0)
PURGED = _declared("last purged after", "ms", 0, grain=20.0)
FIRE_RATE = _declared("stored per second", "1/s", 0, more_is_better=True, is_compared=False)
LOAD_RATE = _declared("loaded per second", "1/s", 0, more_is_better=True)
FOLLOWED = _declared("ready after the load", "ms", 0, grain=50.0)
CPU_ACCEPT = _cpu_each("CPU per schedule accepted")
CPU_FIRE = _cpu_each("CPU per fire")
CPU_PURGE = _cpu_each("CPU per purge", is_compared=False)  # the native one purges as it fires
CPU_FIRE_PURGE = _cpu_each("CPU per fire and purge")
MEMORY = _declared("memory", "MB", 0, grain=5.0)
MEMORY_RESTARTED = _declared("memory after a restart", "MB", 0, grain=5.0)
SCHEDULE_BYTES = _declared("memory per schedule", "bytes", 0)
SERVER_MEMORY = _declared("server memory", "MB", 0, grain=10.0)
RESTART = _declared("start until it fires", "s", grain=0.3)
BARE_RESTART = _declared("start until it fires, no file", "s", grain=0.3)
RESTART_EACH = _declared("start, per schedule", "µs", 1)
IDLE_CPU = _cpu_share("idle CPU", 2, grain=0.2)
OTHERS_RATE = _declared("other messages", "1/s", 0, more_is_better=True, is_compared=False)
ONE_CPU = _cpu_share("CPU, one stream", 1, grain=1.0)
MANY_CPU = _cpu_share("CPU, many streams", 1, grain=1.0)
MANY_OVER_ONE = _declared("CPU, many streams ÷ one", "×", grain=0.2)
MANY_IDLE_CPU = _cpu_share("idle CPU, many streams", 1, grain=1.0)
ONE_BURST_P99 = _declared("burst, one stream, p99", "ms", grain=5.0)
MANY_BURST_P99 = _declared("burst, many streams, p99", "ms", grain=5.0)
ONE_SPREAD_P99 = _declared("spread, one stream, p99", "ms", grain=1.0)
P99_MANY_OVER_ONE = _declared("spread p99, many streams ÷ one", "×", grain=0.5)
SERVED = _declared("start until all streams are served", "s", grain=0.5)
TAKEOVER = _declared("longest wait for a fire", "s", grain=0.2)
TAKEOVER_P50 = _declared("wait of those that waited for a takeover, p50", "s", grain=0.2)


def _of_an_instance(who: str) -> tuple[Measure, Measure, Measure, Measure]:
    """Declare how long it takes until all is read, and the share, memory and CPU of an instance then."""
    return (
        _declared(f"start until read, {who}", "s", grain=0.5),
        _declared(f"most streams of an instance, {who}", "%", 0, grain=5.0),
        _declared(f"memory of an instance, {who}", "MB", 0, grain=5.0),
        _declared(f"CPU of an instance, {who}", "% of a core", 1, grain=1.0),
    )


READ_BY_ALL = _of_an_instance("all read all")
READ_BY_FEW = _of_an_instance("few read each")
ONE_OWNER_P99 = _declared("one stream, one owner, p99", "ms", grain=1.0)
TWO_OWNERS_P99 = _declared("divided, two owners, p99", "ms", grain=1.0)
ONE_OWNER_CPU = _cpu_each("CPU per fire, one owner")
TWO_OWNERS_CPU = _cpu_each("CPU per fire, two owners")
LARGEST_SHARE = _declared("most streams of an instance", "%", 0, is_compared=False)
FIRING_CPU = _cpu_share("CPU while schedules fire", 1, grain=1.0)
READ_AGAIN = _declared("after a kill, read again after", "s", grain=0.5)
QUIET_SPREAD_P99 = _declared("spread, not asked, p99", "ms", grain=1.0)
ASKED_SPREAD_P99 = _declared("spread, asked, p99", "ms", grain=1.0)
QUIET_BURST_P99 = _declared("burst, not asked, p99", "ms", grain=5.0)
ASKED_BURST_P99 = _declared("burst, asked, p99", "ms", grain=5.0)
PAGE_SECONDS = _declared("a page takes", "s", grain=0.1)


def figures(pairs: Iterable[tuple[Measure, float]]) -> dict[str, float]:
    """Return figures under the names of their measures."""
    return {measure.name: value for measure, value in pairs}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of the sorted values do not exceed."""
    return ordered[max(ceil(share * len(ordered)), 1) - 1]


def of_lateness(late: Sequence[float]) -> dict[str, float]:
    """Return the figures of sorted lateness in ms."""
    return figures([(P50, percentile(late, 0.5)), (P99, percentile(late, 0.99)), (LAST, late[-1])])


def each(seconds: float, count: int) -> float:
    """Return the µs for one of `count`."""
    return seconds * 1_000_000 / count
