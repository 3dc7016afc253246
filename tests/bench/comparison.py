"""The changes between a saved run and this one, by more than noise.

The rule: ratios to the native side are compared, and for the pair of sidecars those to a single one, because machines
differ; a figure without such a counterpart is compared only with one from the same machine.
Noise is the range over the repeats of either run, and never less than a floor, which is wide where a run was not
repeated: then nothing is known of its noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.measures import MEASURES, Measure
from tests.bench.runs import Ratio, Run, range_of
from tests.bench.sides import NATIVE, base_of
from tests.bench.tables import ratio_text

FLOOR = 1.15
"""A change by less than this factor is noise."""
FLOOR_ONCE = 1.5
"""The same if a run has fewer than `ENOUGH` repeats."""
ENOUGH = 3

COLUMNS = ("scenario", "measure", "side", "before", "now", "change", "noise")


@dataclass(frozen=True)
class Move:
    """One measure of one side that changed."""

    scenario: str
    measure: Measure
    side: str
    before: float
    now: float
    worse_by: float
    """The factor by which it is worse; below 1 it is better."""
    noise: float
    is_ratio: bool

    @property
    def is_regression(self) -> bool:
        """Return whether it is worse."""
        return self.worse_by > 1

    def row(self) -> list[str]:
        """Return it as a row of the table."""
        change = f"{self.worse_by:.2f} × worse" if self.is_regression else f"{1 / self.worse_by:.2f} × better"
        figures = [self._text(self.before), self._text(self.now)]
        return [self.scenario, self.measure.name, self.side, *figures, change, f"± {(self.noise - 1) * 100:.0f} %"]

    def _text(self, value: float) -> str:
        if self.is_ratio:
            return f"{ratio_text(value)} ÷ {base_of(self.side)}"
        return f"{self.measure.text(value)} {self.measure.unit}"


def moves(before: Run, now: Run) -> Iterator[Move]:
    """Yield what changed beyond noise, for what both runs measured."""
    for scenario, name, side in now.entries():
        measure = MEASURES.get(name)  # a saved run may hold what is not measured any more
        if measure is None or side == NATIVE.name or not measure.is_compared:
            continue
        old, new = before.ratio(scenario, name, side), now.ratio(scenario, name, side)
        is_ratio = old is not None and new is not None
        if not is_ratio and before.machine == now.machine:
            old = range_of(before.values(scenario, name, side))
            new = range_of(now.values(scenario, name, side))
        if old is None or new is None or old.median <= 0 or new.median <= 0:
            continue
        worse_by = old.median / new.median if measure.more_is_better else new.median / old.median
        noise = max(_spread(old), _spread(new), _floor(before, now, scenario))
        unit = (now.value(scenario, name, base_of(side)) or 0.0) if is_ratio else 1.0
        if max(worse_by, 1 / worse_by) > noise and abs(new.median - old.median) * unit > measure.grain:
            yield Move(scenario, measure, side, old.median, new.median, worse_by, noise, is_ratio)


def _spread(ratio: Ratio) -> float:
    """Return the range as a factor."""
    return ratio.most / ratio.least if ratio.least > 0 else float("inf")


def _floor(before: Run, now: Run, scenario: str) -> float:
    repeats = min(len(run.scenarios.get(scenario, ())) for run in (before, now))
    return FLOOR if repeats >= ENOUGH else FLOOR_ONCE
