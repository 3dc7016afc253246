"""The output of a run: one row for each measure of each scenario, every side, and its ratio to another one.

That is the native side, and for the pair of sidecars the single one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from tests.bench.measures import MEASURES, Measure
from tests.bench.runs import Run
from tests.bench.sides import KINDS, base_of

Row = list[str]


def columns(run: Run) -> list[str]:
    """Return the names of the columns."""
    sides = sides_of(run)
    ratios = [f"{side} ÷ {base_of(side)}" for side in _compared(sides)]
    return ["scenario", "measure", "unit", *sides, *ratios]


def rows(run: Run) -> Iterator[Row]:
    """Yield the rows of the table."""
    sides = sides_of(run)
    others = _compared(sides)
    for scenario in run.scenarios:
        for name in measured(run, scenario):
            values = [_value(run, scenario, name, side) for side in sides]
            yield [scenario, name, MEASURES[name].unit, *values, *(_ratio(run, scenario, name, s) for s in others)]


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown, for a document."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def sides_of(run: Run) -> list[str]:
    """Return the sides that were measured, the native one first."""
    found = {side for _scenario, _measure, side in run.entries()}
    return [kind.name for kind in KINDS if kind.name in found]


def _compared(sides: Sequence[str]) -> list[str]:
    """Return the sides whose counterpart was measured too."""
    return [side for side in sides if side != base_of(side) and base_of(side) in sides]


def measured(run: Run, scenario: str) -> Sequence[str]:
    """Return the measures of a scenario, in the order in which they are declared."""
    found = {measure for name, measure, _side in run.entries() if name == scenario}
    return [name for name in MEASURES if name in found]


def ratio_text(value: float) -> str:
    """Print a ratio, with enough decimals to distinguish it from its neighbours."""
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _value(run: Run, scenario: str, measure: str, side: str) -> str:
    value = run.value(scenario, measure, side)
    return "–" if value is None else MEASURES[measure].text(value)


def _ratio(run: Run, scenario: str, measure: str, side: str) -> str:
    found = run.ratio(scenario, measure, side)
    if found is None:
        return "–"
    if found.least == found.most:
        return ratio_text(found.median)
    return f"{ratio_text(found.median)} ({ratio_text(found.least)}–{ratio_text(found.most)})"


def between(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Print the range of some values, "–" if there are none."""
    least, most = (text(end(values)) for end in (min, max)) if values else ("–", "–")
    return least if least == most else f"{least} to {most}"


def span(runs: Iterable[Run], scenario: str, measure: Measure, side: str) -> str:
    """Print the range of a measure over runs, with its unit."""
    values = [value for run in runs if (value := run.value(scenario, measure.name, side)) is not None]
    return between(values, measure.text) + (f" {measure.unit}" if values else "")
