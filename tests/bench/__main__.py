"""`python -m tests.bench`: the native scheduler and the sidecar at the same work, in one run, and their ratios.

The rule: tables go to standard output, progress to standard error, and the exit code shows what a script must know.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from nats_scheduler.cli.output import print_table
from tests.bench import aims, comparison, tables
from tests.bench.profiles import PROFILES, UnknownScenarioError, chosen
from tests.bench.runner import run
from tests.bench.runs import Run, read_runs
from tests.bench.sides import KINDS

EXIT_FAILED = 1
"""A scenario could not be measured, or did not fire each schedule once, on its own target and not early."""
EXIT_REGRESSION = 3
"""Something is worse than in the saved run, by more than noise."""
EXIT_AIM_MISSED = 4
"""An aim is not met."""


@click.command(epilog="Ends with 1 where a scenario failed, 3 with a regression, 4 with an aim that is not met.")
@click.option("--quick", "profile", flag_value="quick", help="A spread and two bursts: about three minutes.")
@click.option("--million", "profile", flag_value="million", help="Everything, with 1,000,000 schedules: 2 hours.")
@click.option("--ten-million", "profile", flag_value="ten-million", help="Hold 10,000,000 schedules, and nothing else.")
@click.option("--only", multiple=True, metavar="NAME", help="A scenario such as herd-20000, or a family such as herd.")
@click.option("--side", "sides", multiple=True, type=click.Choice([kind.name for kind in KINDS]))
@click.option("--repeat", "repeats", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), help="Draw when the load is due as an earlier run did.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Add what was found to a file, or to the run of this machine and day that it holds.",
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Print what moved, by more than noise, since a saved run.",
)
@click.option("--check", is_flag=True, help="Print which aims are met.")
@click.option(
    "--load",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Measure nothing: print a saved run, for --compare and --check too.",
)
def main(
    profile: str | None,
    only: Sequence[str],
    sides: Sequence[str],
    repeats: int,
    seed: int | None,
    save: Path | None,
    compare: Path | None,
    check: bool,
    load: Path | None,
) -> None:
    """Measure the sidecar beside the native scheduler and print both, and the ratios."""
    before = _read(compare) if compare else None
    found, failures = (_read(load), 0) if load else _measure(profile, only, sides, repeats, seed)
    if save is not None:
        found.save(save)
    _print(found)
    codes = [EXIT_FAILED] if failures else []
    if before is not None:
        codes += _compare(before, found)
    if check:
        codes += _check(found)
    raise SystemExit(codes[0] if codes else 0)


def _measure(
    profile: str | None, only: Sequence[str], sides: Sequence[str], repeats: int, seed: int | None
) -> tuple[Run, int]:
    try:
        scenarios = chosen(PROFILES[profile or "default"], only)
    except UnknownScenarioError as error:
        raise click.UsageError(str(error)) from error
    kinds = [kind for kind in KINDS if not sides or kind.name in sides]
    return asyncio.run(run(scenarios, kinds, repeats, lambda line: click.echo(line, err=True), seed))


def _read(path: Path) -> Run:
    try:
        return read_runs(path)[-1]
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _print(found: Run) -> None:
    conditions = f"{found.machine}; load average before it {found.load_before:g}; seed {found.seed}"
    click.echo(f"Measured on {found.date}: {conditions}\n")
    print_table(tables.columns(found), tables.rows(found))


def _compare(before: Run, found: Run) -> list[int]:
    moved = list(comparison.moves(before, found))
    click.echo(f"\nMoved since {before.date} ({before.machine}), by more than noise: {len(moved) or 'nothing'}\n")
    if moved:
        print_table(comparison.COLUMNS, [move.row() for move in moved])
    return [EXIT_REGRESSION] if any(move.is_regression for move in moved) else []


def _check(found: Run) -> list[int]:
    verdicts = list(aims.judge([found]))
    met = sum(verdict.is_met for verdict in verdicts)
    click.echo(f"\n{met} of {len(verdicts)} aims that were measured are met\n")
    if verdicts:
        print_table(aims.COLUMNS, [verdict.row() for verdict in verdicts])
    return [] if met == len(verdicts) else [EXIT_AIM_MISSED]


if __name__ == "__main__":
    main()
