"""Write the figures of docs/operating/performance.md from saved runs: `python -m tests.bench.page`.

The runs are in docs/operating/performance.json, one for each machine and day; `--save` adds to them. A test compares
the page and its picture with what this module would write, so that its figures are all of the same runs.
The rule: what several runs found is given as a range, by the side that fires on 2.11, beside the native one, or by the
pair of sidecars beside a single one. A table has the rows that were measured so.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench import aims
from tests.bench import measures as m
from tests.bench.curve import drawn
from tests.bench.profiles import scenario
from tests.bench.runs import Run, read_runs
from tests.bench.sides import EMULATED, NATIVE, PAIR
from tests.bench.tables import between, markdown, ratio_text, span

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "performance.md"
RUNS = PAGE.with_suffix(".json")
PICTURE = PAGE.parent / "images" / "budget.svg"
BEGIN = "<!-- derived: begin {} (python -m tests.bench.page) -->"
END = "<!-- derived: end {} -->"

RATIO = "÷ native"
"""In place of a side: the figure of the sidecar over the native one."""
PAIR_RATIO = "÷ one"
"""In place of a side: the figure of the pair over that of a single sidecar."""
RATIOS = {RATIO: EMULATED.name, PAIR_RATIO: PAIR.name}
NOT_MEASURED = "Not in these runs."


class Column(NamedTuple):
    """One column of a table: a measure of one side."""

    head: str
    measure: m.Measure
    side: str = EMULATED.name


class Table(NamedTuple):
    """A table with one row for each scenario that was measured."""

    scenarios: Sequence[str]
    columns: Sequence[Column]
    side: str = EMULATED.name
    """The side that has to be measured for a row."""


LATENESS = Table(
    (
        *("spread-20", "spread-2000", "steady-1000", "spread-20000", "mixed-300", "busy-20000", "sampling-2000"),
        *("herd-1000", "herd-20000", "herd-100000", "repeating-20000"),
    ),
    (
        Column("p50", m.P50),
        Column("p99", m.P99),
        Column("last stored after", m.LAST),
        Column("native: p50", m.P50, NATIVE.name),
        Column("native: p99", m.P99, NATIVE.name),
    ),
)
BUDGET = Table(
    ("budget-5", "budget-50", "budget-250", "budget-500", "budget-slow-250", "budget-fast-250"),
    (
        Column("p50", m.P50),
        Column("p99", m.P99),
        Column("CPU of a fire", m.CPU_FIRE.sum),
        Column("of it in the kernel", m.CPU_FIRE.kernel),
        Column("native", m.CPU_FIRE.sum, NATIVE.name),
        Column(RATIO, m.CPU_FIRE.sum, RATIO),
    ),
)
CPU = Table(
    ("spread-2000", "steady-1000", "spread-20000"),
    (
        Column("native", m.CPU_FIRE.sum, NATIVE.name),
        Column("of it in the kernel", m.CPU_FIRE.kernel, NATIVE.name),
        Column("sidecar and server", m.CPU_FIRE.sum),
        Column("of it in the kernel", m.CPU_FIRE.kernel),
        Column("sidecar", m.CPU_FIRE.scheduler),
        Column("server", m.CPU_FIRE.server),
        Column(RATIO, m.CPU_FIRE.sum, RATIO),
    ),
)

PAIRS = Table(
    ("spread-2000", "spread-20000", "steady-1000", "mixed-300"),
    (
        Column("CPU of a fire: one", m.CPU_FIRE.sum),
        Column("two", m.CPU_FIRE.sum, PAIR.name),
        Column(PAIR_RATIO, m.CPU_FIRE.sum, PAIR_RATIO),
        Column("p99: one", m.P99),
        Column("two", m.P99, PAIR.name),
    ),
    PAIR.name,
)
PAIR_BURSTS = Table(
    ("herd-1000", "herd-20000", "herd-100000", "repeating-20000"),
    (
        Column("last stored after: one", m.LAST),
        Column("two", m.LAST, PAIR.name),
        Column(PAIR_RATIO, m.LAST, PAIR_RATIO),
        Column("last purged after: one", m.PURGED),
        Column("two", m.PURGED, PAIR.name),
        Column(PAIR_RATIO, m.PURGED, PAIR_RATIO),
        Column(f"CPU {PAIR_RATIO}", m.CPU_FIRE_PURGE.sum, PAIR_RATIO),
    ),
    PAIR.name,
)
PARTED = Table(
    ("partition-2000", "partition-4000"),
    (
        Column("p99: one stream", m.ONE_OWNER_P99),
        Column("divided", m.TWO_OWNERS_P99),
        Column("CPU of a fire: one stream", m.ONE_OWNER_CPU.sum),
        Column("divided", m.TWO_OWNERS_CPU.sum),
        Column("streams of the instance with most", m.LARGEST_SHARE),
    ),
)
FLEETS = Table(
    ("fleet-1000",),
    (
        Column("idle: all instances", m.IDLE_CPU.scheduler),
        Column("server", m.IDLE_CPU.server),
        Column("500 fires a second: all instances", m.FIRING_CPU.scheduler),
        Column("server", m.FIRING_CPU.server),
        Column("memory of an instance", m.READ_BY_FEW[2]),
        Column("one is killed: longest wait for any fire", m.TAKEOVER),
    ),
)
HELD = Table(
    ("held-1000", "held-100000", "held-1000000", "ordinary-1000000"),
    (
        Column("memory after a restart", m.MEMORY_RESTARTED),
        Column("idle CPU", m.IDLE_CPU.sum),
        Column("native: idle CPU", m.IDLE_CPU.sum, NATIVE.name),
        Column("start until it fires", m.RESTART),
        Column("without its file", m.BARE_RESTART),
        Column("native: start", m.RESTART, NATIVE.name),
    ),
)
TAKEOVERS = Table(
    ("takeover-2000", "streams-takeover-1000", "handover-2000"),
    (
        Column("longest wait for any fire", m.TAKEOVER),
        Column("median of those that waited", m.TAKEOVER_P50),
        Column("lateness p99", m.P99),
        Column("longest", m.LAST),
    ),
)
STREAMS = Table(
    ("streams-100", "streams-1000"),
    (
        Column("one stream: sidecar", m.ONE_CPU.scheduler),
        Column("server", m.ONE_CPU.server),
        Column("as many streams: sidecar", m.MANY_CPU.scheduler),
        Column("server", m.MANY_CPU.server),
        Column("both: many ÷ one", m.MANY_OVER_ONE),
        Column("native: many ÷ one", m.MANY_OVER_ONE, NATIVE.name),
        Column("while nothing fires: sidecar", m.MANY_IDLE_CPU.scheduler),
        Column("server", m.MANY_IDLE_CPU.server),
    ),
)


def derived_parts(runs: Sequence[Run]) -> Mapping[str, str]:
    """Return the parts of the page by name."""
    verdicts = list(aims.judge(runs))
    met = sum(verdict.is_met for verdict in verdicts)
    judged = markdown(aims.COLUMNS, [verdict.row() for verdict in verdicts])
    return {
        "lateness": _table(LATENESS, runs),
        "budget": _table(BUDGET, runs),
        "streams": _table(STREAMS, runs),
        "fleets": _table(FLEETS, runs),
        "pairs": _table(PAIRS, runs),
        "bursts": _table(PAIR_BURSTS, runs),
        "divided": _table(PARTED, runs),
        "conditions": "\n".join(map(_conditions, runs)),
        "cpu": _table(CPU, runs),
        "held": _table(HELD, runs),
        "takeovers": _table(TAKEOVERS, runs),
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


def _table(table: Table, runs: Sequence[Run]) -> str:
    names = [name for name in table.scenarios if any((name, table.side) in _measured(run) for run in runs)]
    if not names:
        return NOT_MEASURED
    rows = [[scenario(name).title, *(_cell(runs, name, column) for column in table.columns)] for name in names]
    return markdown(["load", *(column.head for column in table.columns)], rows)


def _measured(run: Run) -> set[tuple[str, str]]:
    """Return which side was measured in which scenario."""
    return {(scenario, side) for scenario, _measure, side in run.entries()}


def _cell(runs: Sequence[Run], name: str, column: Column) -> str:
    if column.side not in RATIOS:
        return span(runs, name, column.measure, column.side)
    side = RATIOS[column.side]
    ratios = [ratio.median for run in runs if (ratio := run.ratio(name, column.measure.name, side))]
    return between(ratios, ratio_text)


def _conditions(run: Run) -> str:
    servers = ", ".join(f"{run.servers[kind.name]} for {kind.name}" for kind in (NATIVE, EMULATED))
    load = f"highest load average before a scenario {run.load_before:g}"
    return f"- {run.date}: {run.machine}; nats-server {servers}; {load}; seed {run.seed}."


if __name__ == "__main__":
    saved = read_runs(RUNS)
    PAGE.write_text(page_with(derived_parts(saved)), encoding="utf-8")
    PICTURE.write_text(drawn(saved), encoding="utf-8")
