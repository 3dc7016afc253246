"""Run seeds: `python -m tests.simulation --seeds 10000 [--first N] [--jobs 2]`, or one with `--seed N [--trace]`.

Its rule: what fails is printed with the command that repeats it, and the exit code says whether anything did.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.judge.checkers import verdict
from tests.simulation.process import Point
from tests.simulation.scenario import DRAWS
from tests.simulation.world import World, judged, silent

MOST_SHOWN = 20
"""Failing seeds that are printed in full."""

SEEDS_AT_ONCE = 50

Verdict = tuple[int, list[tuple[str, str]], Counter[Point], Counter[str]]
"""A seed, what it breaks (the promise, and the evidence), how often a process died at each point, and what engines
began with."""


def verdict_of(seed: int, *, option: str) -> Verdict:
    """Run a seed and judge it."""
    world = World(DRAWS[option](seed))
    try:
        found = [(violation.promise, str(violation)) for violation in verdict(world.run())]
    except Exception:
        found = [("Crash", traceback.format_exc())]
    return seed, found, world.crashes, world.server.starts


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="print everything that happens in it")
    kinds = parser.add_mutually_exclusive_group()
    kinds.set_defaults(option="")
    files = "let instances keep their schedules in files, and begin with them"
    kinds.add_argument("--files", action="store_const", const="--files", dest="option", help=files)
    roll_ups = "let fires replace those before them by purges"
    kinds.add_argument("--roll-ups", action="store_const", const="--roll-ups", dest="option", help=roll_ups)
    standbys = "let some of the instances read the stream, and the others take over from them"
    kinds.add_argument("--standbys", action="store_const", const="--standbys", dest="option", help=standbys)
    unable = "let instances be alive and unable, and a hostile client write into the bucket"
    kinds.add_argument("--unable", action="store_const", const="--unable", dest="option", help=unable)
    given = parser.parse_args()
    if given.seed is None:
        return _many(range(given.first, given.first + given.seeds), given.jobs, given.option)
    scenario = DRAWS[given.option](given.seed)
    print(scenario)
    found = judged(scenario, print if given.trace else silent)
    print("\n".join(map(str, found)) or "no promise was broken")
    return bool(found)


def _many(seeds: range, jobs: int, option: str) -> int:
    begun = time.monotonic()
    broken: Counter[str] = Counter()
    crashes: Counter[Point] = Counter()
    starts: Counter[str] = Counter()
    failing = 0
    with ProcessPoolExecutor(jobs) as processes:
        verdicts = processes.map(partial(verdict_of, option=option), seeds, chunksize=SEEDS_AT_ONCE)
        for seed, found, crashed, started in verdicts:
            crashes.update(crashed)
            starts.update(started)
            failing += bool(found)
            broken.update({promise for promise, _evidence in found})
            if found and failing <= MOST_SHOWN:
                print(f"seed {seed} fails; repeat it: python -m tests.simulation --seed {seed} --trace {option}")
                print("\n".join(f"  {evidence}" for _promise, evidence in found))
    seconds = time.monotonic() - begun
    print(f"{len(seeds)} seeds in {seconds:.1f} s ({1000 * seconds / len(seeds):.1f} ms each), {failing} fail")
    print("\n".join(f"  {promise}: {count}" for promise, count in broken.most_common()))
    print("crashes: " + ", ".join(f"{point} {crashes[point]}" for point in Point))
    if starts:
        print("engines begin: " + "".join(f"\n  {count}: {how}" for how, count in starts.most_common()))
    return bool(failing)


if __name__ == "__main__":
    sys.exit(main())
