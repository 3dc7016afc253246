"""The measures: each with its name, its unit, and which way is better.

The rule: a figure without a measure is not printed, so that each figure means the same in every scenario.
"The scheduler" is the process that schedules: the server where it is native, else the sidecar.
CPU is that of both processes, so it is four measures: `sum`, `scheduler`, `server`, and the `kernel`'s part of the sum.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from tests.bench.processes import Cpu


@dataclass(frozen=True)
class Measure:
    """One measure."""

    name: str
    unit: str
    decimals: int = 2

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


def _declared(name: str, unit: str, decimals: int = 2) -> Measure:
    MEASURES[name] = measure = Measure(name, unit, decimals)
    return measure


def _cpu_each(name: str) -> CpuMeasure:
    """Declare the CPU in µs for one fire or schedule."""
    return _cpu(name, "µs", 1, 1_000_000)


def _cpu_share(name: str, decimals: int) -> CpuMeasure:
    """Declare the CPU in percent of a core."""
    return _cpu(name, "% of a core", decimals, 100)


def _cpu(name: str, unit: str, decimals: int, factor: float) -> CpuMeasure:
    parts = ("sum", "scheduler", "server", "kernel")
    both, scheduler, server, kernel = (_declared(f"{name}, {part}", unit, decimals) for part in parts)
    return CpuMeasure(both, scheduler, server, kernel, factor)


P50 = _declared("lateness p50", "ms")
P99 = _declared("lateness p99", "ms")
LAST = _declared("last stored after", "ms")
PURGED = _declared("last purged after", "ms", 0)
FIRE_RATE = _declared("stored per second", "1/s", 0)
LOAD_RATE = _declared("loaded per second", "1/s", 0)
FOLLOWED = _declared("ready after the load", "ms", 0)
CPU_ACCEPT = _cpu_each("CPU per schedule accepted")
CPU_FIRE = _cpu_each("CPU per fire")
CPU_PURGE = _cpu_each("CPU per purge")
CPU_FIRE_PURGE = _cpu_each("CPU per fire and purge")
MEMORY = _declared("memory", "MB", 0)
MEMORY_RESTARTED = _declared("memory after a restart", "MB", 0)
SCHEDULE_BYTES = _declared("memory per schedule", "bytes", 0)
SERVER_MEMORY = _declared("server memory", "MB", 0)
RESTART = _declared("start until it fires", "s")
BARE_RESTART = _declared("start until it fires, no file", "s")
IDLE_CPU = _cpu_share("idle CPU", 2)
ONE_CPU = _cpu_share("CPU, one stream", 1)
MANY_CPU = _cpu_share("CPU, many streams", 1)
MANY_OVER_ONE = _declared("CPU, many streams ÷ one", "×")
MANY_IDLE_CPU = _cpu_share("idle CPU, many streams", 1)
ONE_BURST_P99 = _declared("burst, one stream, p99", "ms")
MANY_BURST_P99 = _declared("burst, many streams, p99", "ms")
ONE_SPREAD_P99 = _declared("spread, one stream, p99", "ms")
P99_MANY_OVER_ONE = _declared("spread p99, many streams ÷ one", "×")
SERVED = _declared("start until all streams are served", "s")
TAKEOVER = _declared("longest wait for a fire", "s")
TAKEOVER_P50 = _declared("wait of those that waited for a takeover, p50", "s")


def figures(pairs: Iterable[tuple[Measure, float]]) -> dict[str, float]:
    """Return figures under the names of their measures."""
    return {measure.name: value for measure, value in pairs}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of the sorted values do not exceed."""
    return ordered[max(ceil(share * len(ordered)), 1) - 1]


def of_lateness(late: Sequence[float]) -> dict[str, float]:
    """Return the figures of sorted lateness in ms."""
    return figures([(P50, percentile(late, 0.5)), (P99, percentile(late, 0.99)), (LAST, late[-1])])
