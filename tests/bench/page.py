"""Write the figures of docs/operating/performance.md from saved runs: `python -m tests.bench.page`.

The runs are in docs/operating/performance.json, one for each machine and day; `--save` adds to them. A test compares
the page with what this module would write, so that its figures are all of the same runs.
The rule: what several runs found is given as a range.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.bench import aims
from tests.bench import measures as m
from tests.bench.profiles import scenario
from tests.bench.runs import Run, read_runs
from tests.bench.sides import EMULATED, NATIVE, PAIR
from tests.bench.tables import between, markdown, ratio_text, span

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "performance.md"
RUNS = PAGE.with_suffix(".json")
BEGIN = "<!-- derived: begin {} (python -m tests.bench.page) -->"
END = "<!-- derived: end {} -->"

SIDES = (NATIVE.name, EMULATED.name, PAIR.name)
COLUMNS = ("load", "measure", "native", "one sidecar", "÷ native", "two sidecars", "÷ one")
SHOWN = (
    *(m.P50, m.P99, m.LAST, m.PURGED, m.CPU_FIRE.sum, m.CPU_FIRE.scheduler, m.CPU_FIRE.kernel, m.CPU_FIRE_PURGE.sum),
    *(m.MEMORY_RESTARTED, m.IDLE_CPU.sum, m.RESTART, m.BARE_RESTART, m.TAKEOVER, m.TAKEOVER_P50),
    *(m.ONE_CPU.sum, m.MANY_CPU.sum, m.MANY_OVER_ONE, m.MANY_IDLE_CPU.sum),
)
"""The measures that the page shows of each scenario; the file has the others."""


def derived_parts(runs: Sequence[Run]) -> Mapping[str, str]:
    """Return the parts of the page by name."""
    verdicts = list(aims.judge(runs))
    met = sum(verdict.is_met for verdict in verdicts)
    judged = markdown(aims.COLUMNS, [verdict.row() for verdict in verdicts])
    return {
        "conditions": "\n".join(map(_conditions, runs)),
        "figures": markdown(COLUMNS, _figures(runs)),
        "aims": f"{met} of {len(verdicts)} aims that were measured are met.\n\n{judged}",
    }


def page_with(parts: Mapping[str, str]) -> str:
    """Return the page with its derived parts replaced."""
    page = PAGE.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        after = rest.partition(end)[2]
        page = f"{before}{begin}\n\n{part}\n\n{end}{after}"
    return page


def _figures(runs: Sequence[Run]) -> Iterator[list[str]]:
    """Yield a row for each measure of each scenario that one sidecar was measured in."""
    entries = {entry for run in runs for entry in run.entries()}
    for name in dict.fromkeys(name for run in runs for name in run.scenarios):
        for measure in SHOWN:
            if (name, measure.name, EMULATED.name) in entries:
                native, one, two = (span(runs, name, measure, side) for side in SIDES)
                ratios = (_ratio(runs, name, measure, side) for side in SIDES[1:])
                yield [scenario(name).title, measure.name, native, one, next(ratios), two, next(ratios)]


def _ratio(runs: Sequence[Run], name: str, measure: m.Measure, side: str) -> str:
    if measure.unit == "×":
        return "–"  # a ratio of ratios says nothing
    return between([found.median for run in runs if (found := run.ratio(name, measure.name, side))], ratio_text)


def _conditions(run: Run) -> str:
    servers = ", ".join(f"{run.servers[kind.name]} for {kind.name}" for kind in (NATIVE, EMULATED))
    load = f"highest load average before a scenario {run.load_before:g}"
    return f"- {run.date}: {run.machine}; nats-server {servers}; {load}; seed {run.seed}."


if __name__ == "__main__":
    PAGE.write_text(page_with(derived_parts(read_runs(RUNS))), encoding="utf-8")
