"""`python -m bench`: the native scheduler and the sidecar at the same work, in one run, and the ratios between them.

The rule: answers go to standard output, progress to standard error; every figure comes from a scenario.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from bench.fires import WrongFiresError
from bench.profiles import DEFAULT, FULL, QUICK, UnknownScenarioError, chosen
from bench.publisher import RefusedError
from bench.runs import Repeat, Run
from bench.scenarios.scenario import Scenario
from bench.sides import KINDS, Kind, StartError, running
from bench.tables import columns, rows
from nats_scheduler.cli.output import print_table

Say = Callable[[str], None]

EXIT_FAILED = 1
"""A scenario could not be measured, or fired wrongly."""
EXIT_REGRESSION = 3
EXIT_AIM_MISSED = 4


def say(line: str) -> None:
    """Report progress."""
    click.echo(line, err=True)


async def measure(scenario: Scenario, kind: Kind) -> dict[str, float]:
    """Run a scenario on one side, on a fresh server."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with running(kind, Path(folder), scenario.sidecars) as side:
            return await scenario.run(side)


async def run(scenarios: Sequence[Scenario], kinds: Sequence[Kind], repeats: int, tell: Say = say) -> tuple[Run, int]:
    """Run every scenario on every side, so many times; returns what was found and how many failed."""
    found, failures = Run(), 0
    for repeat in range(repeats):
        for scenario in scenarios:
            sides: Repeat = {}
            for kind in kinds:
                started = time.perf_counter()
                outcome = ""
                try:
                    sides[kind.name] = await measure(scenario, kind)
                except (WrongFiresError, RefusedError, StartError, TimeoutError) as error:
                    failures += 1
                    outcome = f": FAILED: {error or type(error).__name__}"
                took = time.perf_counter() - started
                tell(f"{scenario.name} ({scenario.title}), {kind.name}, {repeat + 1}/{repeats}: {took:.0f} s{outcome}")
            found.add(scenario.name, sides)
    return found, failures


@click.command()
@click.option("--quick", "profile", flag_value="quick", help="A herd, a spread: about two minutes.")
@click.option("--full", "profile", flag_value="full", help="Everything, with a million schedules.")
@click.option("--only", multiple=True, metavar="NAME", help="A scenario such as herd-20000, or a family such as herd.")
@click.option("--side", "sides", multiple=True, type=click.Choice([kind.name for kind in KINDS]))
@click.option("--repeat", "repeats", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), help="Write what was found to a file.")
def main(profile: str | None, only: Sequence[str], sides: Sequence[str], repeats: int, save: Path | None) -> None:
    """Measure the sidecar beside the native scheduler and print both, and the ratios."""
    names = {"quick": QUICK, "full": FULL}.get(profile or "", DEFAULT)
    try:
        scenarios = chosen(names, only)
    except UnknownScenarioError as error:
        raise click.UsageError(str(error)) from error
    kinds = [kind for kind in KINDS if not sides or kind.name in sides]
    found, failures = asyncio.run(run(scenarios, kinds, repeats))
    if save is not None:
        found.save(save)
    click.echo(f"{found.date}, {found.machine}")
    print_table(columns(found), rows(found))
    if failures:
        raise SystemExit(EXIT_FAILED)


if __name__ == "__main__":
    main()
