"""The aims of the sidecar, as data, and whether runs reached them.

The rule: an aim is met by each mode of the sidecar that was measured, on each machine, or it is not met.
A bound is on the figure itself, on its ratio to the native side of the same run, or on its ratio to the same figure
of another scenario, where a cost is to stay flat. It is the least figure where more is better, else the highest.
The aims of the pair of sidecars are ratios to a single one in the same run; it has no others.
CPU per fire is that of the server and all sidecars together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench import measures as m
from tests.bench.runs import Run
from tests.bench.sides import EMULATED, KINDS, NATIVE, base_of
from tests.bench.tables import between, ratio_text, span

ITSELF = ""
"""The bound is on the figure, in the unit of its measure."""
ONE = EMULATED.name
"""The bound is on the ratio of the pair of sidecars to this side."""


@dataclass(frozen=True)
class Aim:
    """One bound."""

    scenario: str
    measure: m.Measure
    bound: float
    over: str = ITSELF
    """The divisor of the figure: nothing, that of the native side or of one sidecar, or of another scenario."""

    def text(self) -> str:
        """Return the aim in words."""
        bounded = f"{'≥' if self.measure.more_is_better else '≤'} {self.bound:,g}"
        return f"{bounded} {self.measure.unit if self.over == ITSELF else f'× {self.over}'}"

    def holds(self, figure: float) -> bool:
        """Return whether a figure is within the bound."""
        return figure >= self.bound if self.measure.more_is_better else figure <= self.bound

    def figure(self, run: Run, side: str) -> float | None:
        """Return what is bounded, None if it was not measured."""
        if self.over == ITSELF:
            return run.value(self.scenario, self.measure.name, side)
        return self.ratio(run, side)

    def ratio(self, run: Run, side: str) -> float | None:
        """Return the ratio to the other side, or to the other scenario, None if one of them was not measured."""
        if self.over in (ITSELF, NATIVE.name, ONE):
            ratio = run.ratio(self.scenario, self.measure.name, side)
            return None if ratio is None else ratio.median
        value, base = (run.value(scenario, self.measure.name, side) for scenario in (self.scenario, self.over))
        return None if value is None or not base else value / base


AIMS = (
    Aim("spread-20", m.P50, 1.5),
    Aim("spread-20", m.LAST, 10),
    Aim("spread-2000", m.P50, 1.5),
    Aim("spread-2000", m.P99, 10),
    Aim("spread-2000", m.CPU_FIRE.sum, 12, NATIVE.name),
    Aim("steady-1000", m.P99, 10),
    Aim("steady-1000", m.CPU_FIRE.sum, 5, NATIVE.name),
    Aim("spread-20000", m.P99, 5),
    Aim("spread-20000", m.CPU_FIRE.sum, 8, NATIVE.name),
    Aim("budget-50", m.CPU_FIRE.sum, 5, NATIVE.name),
    Aim("budget-50", m.P99, 55),
    Aim("budget-250", m.CPU_FIRE.sum, 2.5, NATIVE.name),
    Aim("budget-250", m.P99, 255),
    Aim("budget-slow-250", m.CPU_FIRE.sum, 2.5, NATIVE.name),
    Aim("budget-slow-250", m.P99, 255),
    Aim("budget-fast-250", m.CPU_FIRE.sum, 2.5, NATIVE.name),
    Aim("budget-fast-250", m.P99, 255),
    Aim("rate-16000", m.HIGHEST_RATE, 10_000),
    Aim("mixed-300", m.P99, 10),
    Aim("herd-1000", m.LAST, 1.5, NATIVE.name),
    Aim("herd-20000", m.LAST, 1.1, NATIVE.name),
    Aim("herd-20000", m.PURGED, 2.0, NATIVE.name),
    Aim("herd-100000", m.LAST, 1.0, NATIVE.name),
    Aim("herd-100000", m.PURGED, 2.0, NATIVE.name),
    Aim("herd-100000", m.CPU_FIRE_PURGE.sum, 5, NATIVE.name),
    Aim("repeating-20000", m.LAST, 1.2, NATIVE.name),
    Aim("loaded-100000", m.FOLLOWED, 500),
    Aim("loaded-1000000", m.FOLLOWED, 2_000),
    Aim("held-100000", m.FOLLOWED, 1_000),
    Aim("held-1000000", m.FOLLOWED, 1_000),
    Aim("held-100000", m.MEMORY, 60),
    Aim("held-100000", m.MEMORY_RESTARTED, 60),
    Aim("held-100000", m.RESTART, 2, NATIVE.name),
    Aim("held-100000", m.IDLE_CPU.sum, 2, NATIVE.name),
    Aim("held-100000", m.IDLE_CPU.scheduler, 0.2),
    Aim("held-1000000", m.MEMORY, 120),
    Aim("held-1000000", m.MEMORY_RESTARTED, 120),
    Aim("held-1000000", m.RESTART, 0.83, NATIVE.name),
    Aim("held-1000000", m.BARE_RESTART, 3, NATIVE.name),
    Aim("held-1000000", m.IDLE_CPU.sum, 0.5),
    Aim("held-10000000", m.MEMORY, 1_200),
    Aim("held-10000000", m.MEMORY_RESTARTED, 1_200),
    Aim("held-10000000", m.RESTART, 20),
    Aim("ordinary-1000000", m.RESTART, 2, NATIVE.name),
    Aim("takeover-2000", m.TAKEOVER, 1),
    Aim("handover-2000", m.LAST, 50),
    Aim("divided-1000000", m.TAKEOVER, 3),
    Aim("streams-1000", m.MANY_OVER_ONE, 1.0, NATIVE.name),
    Aim("streams-1000", m.P99_MANY_OVER_ONE, 1.5),
    Aim("streams-1000", m.SERVED, 10),
    Aim("streams-1000", m.P99, 10),
    Aim("streams-1000", m.P99, 2, "streams-100"),
    Aim("streams-takeover-1000", m.TAKEOVER, 3),
    Aim("held-100000", m.LAST, 1.5, "held-1000"),
    Aim("held-1000000", m.LAST, 1.5, "held-1000"),
    Aim("held-100000", m.CPU_ACCEPT.scheduler, 1.5, "held-10000"),
    Aim("held-1000000", m.CPU_ACCEPT.scheduler, 1.5, "held-10000"),
    Aim("held-1000000", m.RESTART_EACH, 1.2, "held-100000"),
    Aim("held-1000000", m.SCHEDULE_BYTES, 1.2, "held-100000"),
    Aim("spread-2000", m.CPU_FIRE.sum, 1.5, ONE),
    Aim("spread-20000", m.CPU_FIRE.sum, 1.5, ONE),
    Aim("steady-1000", m.CPU_FIRE.sum, 1.5, ONE),
    Aim("mixed-300", m.CPU_FIRE.sum, 1.5, ONE),
    Aim("herd-20000", m.LAST, 1.25, ONE),
    Aim("herd-20000", m.PURGED, 1.3, ONE),
    Aim("herd-100000", m.LAST, 1.25, ONE),
    Aim("herd-100000", m.PURGED, 1.3, ONE),
    Aim("herd-100000", m.CPU_FIRE_PURGE.sum, 1.5, ONE),
)


COLUMNS = ("scenario", "measure", "side", "beside", "measured", "ratio", "aim", "verdict")


@dataclass(frozen=True)
class Verdict:
    """The result of one side against one aim, in each run that measured it."""

    aim: Aim
    side: str
    runs: Sequence[Run]

    @property
    def figures(self) -> list[float]:
        """What is bounded."""
        return [figure for run in self.runs if (figure := self.aim.figure(run, self.side)) is not None]

    @property
    def is_met(self) -> bool:
        """Return whether all figures are within the bound."""
        return all(map(self.aim.holds, self.figures))

    def row(self) -> list[str]:
        """Return it as a row of the table."""
        aim, measure = self.aim, self.aim.measure
        beside, here = (span(self.runs, aim.scenario, measure, side) for side in (base_of(self.side), self.side))
        ratios = [one for run in self.runs if (one := aim.ratio(run, self.side)) is not None]
        is_quotient = aim.over == ITSELF and measure.unit == "×"  # its ratio to the native one says nothing
        ratio = between([] if is_quotient else ratios, ratio_text)
        met = "met" if self.is_met else "not met"
        return [aim.scenario, measure.name, self.side, beside, here, ratio, aim.text(), met]


def judge(runs: Sequence[Run]) -> Iterator[Verdict]:
    """Yield a verdict for each aim on each side of the sidecar, if it was measured."""
    for aim in AIMS:
        for kind in KINDS:
            verdict = Verdict(aim, kind.name, runs)
            if kind.sidecar and (aim.over == ONE) == (kind.base == ONE) and verdict.figures:
                yield verdict
