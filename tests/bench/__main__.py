"""`python -m tests.bench`: the native scheduler and the sidecar at the same work, in one run, and their ratios.

The rule: the table goes to standard output, progress to standard error. The sides of a scenario run one after another,
each on a fresh server, so that they share the machine's mood and not its cores; all draw the same times, by the seed.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import click

from nats_scheduler.cli.output import print_table
from nats_scheduler.control.errors import SchedulerError
from tests.bench.fires import WrongFiresError
from tests.bench.page import COLUMNS, rows
from tests.bench.profiles import FAMILIES, PROFILES, chosen
from tests.bench.publisher import LateLoadError, RefusedError
from tests.bench.runs import Run
from tests.bench.scenarios.scenario import Scenario
from tests.bench.sides import KINDS, Kind, StartError, running

FAILURES = (WrongFiresError, LateLoadError, RefusedError, StartError, SchedulerError, TimeoutError)


@click.command(epilog="Ends with 1 where a scenario failed.")
@click.option("--quick", "profile", flag_value="quick", help="A spread and two bursts: about three minutes.")
@click.option("--million", "profile", flag_value="million", help="Everything, with 1,000,000 schedules: 1.5 hours.")
@click.option("--ten-million", "profile", flag_value="ten-million", help="Hold 10,000,000 schedules, and nothing else.")
@click.option("--only", multiple=True, metavar="NAME", help="A scenario such as herd-20000, or a family such as herd.")
@click.option("--side", "sides", multiple=True, type=click.Choice([kind.name for kind in KINDS]))
@click.option("--seed", type=click.IntRange(min=0), help="Draw when the load is due as an earlier run did.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Add what was found to a file, or to the run of this machine and day that it holds.",
)
def main(profile: str | None, only: Sequence[str], sides: Sequence[str], seed: int | None, save: Path | None) -> None:
    """Measure the sidecar beside the native scheduler and print both, and the ratios."""
    try:
        scenarios = chosen(PROFILES[profile or "default"], only)
    except KeyError as error:
        raise click.UsageError(f"{error} is no family; there are {', '.join(FAMILIES)}") from error
    kinds = [kind for kind in KINDS if not sides or kind.name in sides]
    found = Run() if seed is None else Run(seed=seed)
    failures = asyncio.run(run(found, scenarios, kinds))
    if save is not None:
        found.save(save)
    click.echo(f"Measured on {found.date}: {found.machine}; load average before it {found.load_before:g}")
    click.echo(f"Seed {found.seed}\n")
    print_table(COLUMNS, list(rows([found])))
    raise SystemExit(bool(failures))


async def run(found: Run, scenarios: Sequence[Scenario], kinds: Sequence[Kind]) -> list[str]:
    """Run every scenario on every side; returns what failed, while the others go on."""
    failures = []
    for scenario in scenarios:
        for kind in kinds:
            if kind.instances > 1 and scenario.sidecars is not None:
                continue  # it says itself how many there are
            click.echo(f"{scenario.name}: {scenario.title}, {kind.name}", err=True)
            started = time.perf_counter()
            try:
                found.add(scenario.name, kind.name, await _measure(scenario, kind, f"{found.seed} {scenario.name}"))
            except FAILURES as error:
                failures.append(f"{scenario.name}: FAILED on {kind.name}: {error or type(error).__name__}")
                click.echo(failures[-1], err=True)
            click.echo(f"{scenario.name}: {time.perf_counter() - started:.0f} s", err=True)
    return failures


async def _measure(scenario: Scenario, kind: Kind, seed: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = scenario.sidecars, scenario.flags
        async with running(kind, Path(folder), Random(seed), *settings) as side:
            return await scenario.run(side)


if __name__ == "__main__":
    main()
