"""`python -m tests.bench`: the native scheduler and the sidecar at the same work, in one run, and their ratios.

The rule: tables go to standard output, progress to standard error, and the exit code shows what a script must know.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from nats_scheduler.cli.output import print_table
from tests.bench import aims, tables
from tests.bench.profiles import PROFILES, UnknownScenarioError, chosen
from tests.bench.runner import run
from tests.bench.runs import Run
from tests.bench.sides import KINDS

EXIT_FAILED = 1
"""A scenario could not be measured, or did not fire each schedule once, on its own target and not early."""
EXIT_AIM_MISSED = 4
"""An aim is not met."""


@click.command(epilog="Ends with 1 where a scenario failed, 4 with an aim that is not met.")
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
@click.option("--check", is_flag=True, help="Print which aims are met.")
def main(
    profile: str | None,
    only: Sequence[str],
    sides: Sequence[str],
    repeats: int,
    seed: int | None,
    save: Path | None,
    check: bool,
) -> None:
    """Measure the sidecar beside the native scheduler and print both, and the ratios."""
    found, failures = _measure(profile, only, sides, repeats, seed)
    if save is not None:
        found.save(save)
    _print(found)
    is_missed = check and not _check(found)
    raise SystemExit(EXIT_FAILED if failures else EXIT_AIM_MISSED if is_missed else 0)


def _measure(
    profile: str | None, only: Sequence[str], sides: Sequence[str], repeats: int, seed: int | None
) -> tuple[Run, int]:
    try:
        scenarios = chosen(PROFILES[profile or "default"], only)
    except UnknownScenarioError as error:
        raise click.UsageError(str(error)) from error
    kinds = [kind for kind in KINDS if not sides or kind.name in sides]
    return asyncio.run(run(scenarios, kinds, repeats, lambda line: click.echo(line, err=True), seed))


def _print(found: Run) -> None:
    conditions = f"{found.machine}; load average before it {found.load_before:g}; seed {found.seed}"
    click.echo(f"Measured on {found.date}: {conditions}\n")
    print_table(tables.columns(found), tables.rows(found))


def _check(found: Run) -> bool:
    """Print which aims are met; returns whether all are."""
    verdicts = list(aims.judge([found]))
    met = sum(verdict.is_met for verdict in verdicts)
    click.echo(f"\n{met} of {len(verdicts)} aims that were measured are met\n")
    if verdicts:
        print_table(aims.COLUMNS, [verdict.row() for verdict in verdicts])
    return met == len(verdicts)


if __name__ == "__main__":
    main()
