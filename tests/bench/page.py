"""Write the figures of docs/operating/performance.md from saved runs: `python -m tests.bench.page`.

The runs are in docs/operating/performance.json, one for each machine and day; `--save` adds to them.
The rule: what several runs found is given as a range, and ratios are of the same run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.bench import measures as m
from tests.bench.runs import Run, read_runs
from tests.bench.sides import EMULATED, NATIVE, PAIR

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "performance.md"
RUNS = PAGE.with_suffix(".json")
BEGIN = "<!-- derived: begin {} (python -m tests.bench.page) -->"
END = "<!-- derived: end {} -->"

COLUMNS = ("scenario", "measure", "unit", "native", "one sidecar", "÷ native", "two sidecars", "÷ one")
SHOWN = (
    *(m.P50, m.P99, m.LAST, m.PURGED, m.CPU_FIRE.sum, m.CPU_FIRE.scheduler, m.CPU_FIRE.kernel, m.CPU_FIRE_PURGE.sum),
    *(m.FOLLOWED, m.MEMORY_RESTARTED, m.IDLE_CPU.sum, m.RESTART, m.BARE_RESTART, m.TAKEOVER, m.TAKEOVER_P50),
    *(m.ONE_CPU.sum, m.MANY_CPU.sum, m.MANY_OVER_ONE, m.MANY_IDLE_CPU.sum),
)
"""The measures that the page shows of each scenario; the file has the others."""


def page() -> str:
    """Return the page with the conditions and figures of the saved runs."""
    runs = read_runs(RUNS)
    table = [COLUMNS, ["---"] * len(COLUMNS), *rows(runs, SHOWN)]
    figures = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
    text = PAGE.read_text(encoding="utf-8")
    for name, part in (("conditions", "\n".join(map(_conditions, runs))), ("figures", figures)):
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{part}\n\n{end}{rest.partition(end)[2]}"
    return text


def rows(runs: Sequence[Run], measures: Iterable[m.Measure] = m.MEASURES.values()) -> Iterator[list[str]]:
    """Yield a row for each measure of each scenario."""
    for scenario in dict.fromkeys(name for run in runs for name in run.scenarios):
        sides = [run.scenarios[scenario] for run in runs if scenario in run.scenarios]
        for measure in measures:
            native, one, two = (
                _between(
                    [found[kind.name][measure.name] for found in sides if measure.name in found.get(kind.name, {})],
                    measure.text,
                )
                for kind in (NATIVE, EMULATED, PAIR)
            )
            if {native, one, two} != {"–"}:
                over_native, over_one = (
                    _between(list(_ratios(sides, measure.name, side.name, base.name)), _ratio_text)
                    for side, base in ((EMULATED, NATIVE), (PAIR, EMULATED))
                )
                yield [scenario, measure.name, measure.unit, native, one, over_native, two, over_one]


def _ratios(sides: Sequence[dict[str, dict[str, float]]], measure: str, side: str, base: str) -> Iterator[float]:
    for found in sides:
        value, divisor = (found.get(one, {}).get(measure) for one in (side, base))
        if value is not None and divisor:
            yield value / divisor


def _between(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Print the range of some values, "–" if there are none."""
    least, most = (text(end(values)) for end in (min, max)) if values else ("–", "–")
    return least if least == most else f"{least} to {most}"


def _ratio_text(value: float) -> str:
    """Print a ratio, with enough decimals to distinguish it from its neighbours."""
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _conditions(run: Run) -> str:
    servers = ", ".join(f"{run.servers[kind.name]} for {kind.name}" for kind in (NATIVE, EMULATED))
    load = f"highest load average before a scenario {run.load_before:g}"
    return f"- {run.date}: {run.machine}; nats-server {servers}; {load}; seed {run.seed}."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
