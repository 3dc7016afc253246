"""Rounds of a rolling update: the sidecars of one account go from one version of the program to another, one by one.

In between both versions share the bucket and divide the streams. Of two sidecars, and then of the last one, the update
is a drain, as an orchestrator does it, or a kill; a sidecar of either version is killed meanwhile.
`python -m tests.nemesis.updates --rounds N` plays more of them than the suite.

Its rule: the seed decides the direction by counting: an even one updates, an odd one goes back to the last version.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.harness.servers import V2_10, V2_11
from tests.nemesis.instance import Program, this_program
from tests.nemesis.round import Outcome, play_scenario
from tests.nemesis.scenario import UPDATE, Scenario, Strike
from tests.nemesis.tally import evidence
from tests.release.last_version import last_version

INSTANCES = 3
PAUSE_SECONDS = 4.0
"""Between two updates: the one before serves again, and has its part."""
WAYS = ("drain", "drain", "kill")


def rolling(seed: int) -> Scenario:
    """Draw a rolling update."""
    random = Random(f"update {seed}")
    strikes = []
    for number in range(INSTANCES):
        after = 0.5 + number * PAUSE_SECONDS
        strikes.append(Strike(UPDATE, after, random.uniform(0.8, 1.2), number, random.choice(WAYS)))
        if number < INSTANCES - 1:
            killed = random.choice([n for n in range(INSTANCES) if n != number])
            strikes.append(Strike("kill", after + random.uniform(2.5, 3.0), random.uniform(0.05, 0.3), killed))
    version, consumes = random.choice([V2_11, V2_10]), random.random() < 0.5
    return Scenario(seed, UPDATE, version, 1, INSTANCES, consumes, tuple(strikes))


def programs_of(seed: int, last: Program) -> tuple[Program, Program]:
    """Return what the sidecars run before and after their update."""
    return (this_program(), last) if seed % 2 else (last, this_program())


async def play_update(seed: int, folder: Path, last: Program) -> Outcome:
    """Play the round of a seed and judge it."""
    return await play_scenario(rolling(seed), folder, programs_of(seed, last))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis.updates")
    parser.add_argument("--rounds", type=int, default=10, help="how many rounds to play")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first of them; the others count from it")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="updates-"))
    last = last_version(folder)
    if isinstance(last, str):
        print(last, file=sys.stderr)
        return 2
    failed = 0
    for seed in range(given.seed, given.seed + given.rounds):
        outcome = asyncio.run(play_update(seed, folder / str(seed), last))
        failed += bool(outcome.violations)
        print(evidence(outcome) if outcome.violations else f"{seed}: {outcome.scenario}", flush=True)
        print(f"  {len(outcome.history.fires)} fires, versions {outcome.versions}", flush=True)
    print(f"{given.rounds} rounds, {failed} failed; logs in {folder}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
