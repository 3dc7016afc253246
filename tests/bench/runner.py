"""Run scenarios on sides, each on a fresh server, and keep what they found.

The rule: the sides of a scenario run one after another, so that they share the machine's mood and not its cores.
All sides of a repeat draw the same times, by the seed of the run.
A scenario that fails on a side is reported and counted, and the others go on.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from nats_scheduler.control.errors import SchedulerError
from tests.bench.fires import WrongFiresError
from tests.bench.publisher import LateLoadError, RefusedError
from tests.bench.runs import Repeat, Run
from tests.bench.scenarios.scenario import Scenario
from tests.bench.sides import Kind, StartError, running

Tell = Callable[[str], None]


FAILURES = (WrongFiresError, LateLoadError, RefusedError, StartError, SchedulerError, TimeoutError)


async def run(
    scenarios: Sequence[Scenario], kinds: Sequence[Kind], repeats: int, tell: Tell, seed: int | None = None
) -> tuple[Run, int]:
    """Run every scenario on every side, `repeats` times; returns what was found and the number of failures.

    The times at which the load is due are drawn by `seed`; None draws one.
    """
    found = Run() if seed is None else Run(seed=seed)
    failures = 0
    for repeat in range(1, repeats + 1):
        for scenario in scenarios:
            sides: Repeat = {}
            for kind in kinds:
                if kind.instances > 1 and scenario.sidecars is not None:
                    continue  # it says itself how many there are
                tell(f"{scenario.name}: {scenario.title}, {kind.name}, {repeat} of {repeats}")
                started = time.perf_counter()
                try:
                    sides[kind.name] = await _measure(scenario, kind, f"{found.seed} {scenario.name} {repeat}")
                except FAILURES as error:
                    failures += 1
                    tell(f"{scenario.name}: FAILED on {kind.name}: {error or type(error).__name__}")
                tell(f"{scenario.name}: {time.perf_counter() - started:.0f} s")
            found.add(scenario.name, sides)
    return found, failures


async def _measure(scenario: Scenario, kind: Kind, seed: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = scenario.sidecars, scenario.flags
        async with running(kind, Path(folder), Random(seed), *settings) as side:
            return await scenario.run(side)
