"""Run seeds: `python -m tests.simulation --seeds 10000 [--first N] [--jobs 2]`, or one with `--seed N [--trace]`.

Its rule: what fails is printed with the command that repeats it, and the exit code says whether anything did.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.judge.checkers import verdict
from tests.simulation.process import Point
from tests.simulation.scenario import drawn, with_snapshots
from tests.simulation.world import World, judged, silent

MOST_SHOWN = 20
"""Failing seeds that are printed in full."""

SEEDS_AT_ONCE = 50


def main() -> int:
    """Run the command line."""
    given = _arguments()
    if given.seed is None:
        return _many(range(given.first, given.first + given.seeds), given.jobs, snapshots=given.snapshots)
    print(with_snapshots(given.seed) if given.snapshots else drawn(given.seed))
    found = judged(given.seed, print if given.trace else silent, snapshots=given.snapshots)
    print("\n".join(map(str, found)) or "no promise was broken")
    return bool(found)


Verdict = tuple[int, list[tuple[str, str]], Counter[Point]]
"""A seed, what it breaks (the promise, and the evidence), and how often a process died at each point."""


def verdict_of(seed: int, *, snapshots: bool = False) -> Verdict:
    """Run a seed and judge it."""
    world = World(with_snapshots(seed) if snapshots else drawn(seed))
    try:
        return seed, [(violation.promise, str(violation)) for violation in verdict(world.run())], world.crashes
    except Exception:
        return seed, [("Crash", traceback.format_exc())], world.crashes


def _many(seeds: range, jobs: int, *, snapshots: bool) -> int:
    begun = time.monotonic()
    broken: Counter[str] = Counter()
    crashes: Counter[Point] = Counter()
    failing = 0
    for seed, found, crashed in _verdicts(seeds, jobs, partial(verdict_of, snapshots=snapshots)):
        crashes.update(crashed)
        if not found:
            continue
        failing += 1
        broken.update({promise for promise, _evidence in found})
        if failing <= MOST_SHOWN:
            more = " --snapshots" if snapshots else ""
            print(f"seed {seed} fails; repeat it: python -m tests.simulation --seed {seed} --trace{more}")
            print("\n".join(f"  {evidence}" for _promise, evidence in found))
    seconds = time.monotonic() - begun
    print(f"{len(seeds)} seeds in {seconds:.1f} s ({1000 * seconds / len(seeds):.1f} ms each), {failing} fail")
    print("\n".join(f"  {promise}: {count}" for promise, count in broken.most_common()))
    print("crashes: " + ", ".join(f"{point} {crashes[point]}" for point in Point))
    return bool(failing)


def _verdicts(seeds: range, jobs: int, verdict_of_one: Callable[[int], Verdict]) -> Iterator[Verdict]:
    if jobs == 1:
        yield from map(verdict_of_one, seeds)
        return
    with ProcessPoolExecutor(jobs) as processes:
        yield from processes.map(verdict_of_one, seeds, chunksize=SEEDS_AT_ONCE)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="print everything that happens in it")
    parser.add_argument("--snapshots", action="store_true", help="let instances keep snapshots, and begin with them")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
