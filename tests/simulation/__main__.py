"""Run seeds: `python -m tests.simulation --seeds 10000 [--first N] [--jobs 2]`, or one with `--seed N [--trace]`.

Its rule: what fails is printed with the command that repeats it, and the exit code says whether anything did.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.scenario import drawn
from tests.simulation.world import judged

MOST_SHOWN = 20
"""Failing seeds that are printed in full."""

SEEDS_AT_ONCE = 50


def main() -> int:
    """Do what the command line says."""
    given = _arguments()
    if given.seed is None:
        return _many(range(given.first, given.first + given.seeds), given.jobs)
    print(drawn(given.seed))
    found = judged(given.seed, print) if given.trace else judged(given.seed)
    print("\n".join(map(str, found)) or "no promise was broken")
    return bool(found)


def verdict_of(seed: int) -> tuple[int, list[tuple[str, str]]]:
    """Return what a seed breaks: the promise, and the evidence."""
    try:
        return seed, [(violation.promise, str(violation)) for violation in judged(seed)]
    except Exception:
        return seed, [("Crash", traceback.format_exc())]


def _many(seeds: range, jobs: int) -> int:
    begun = time.monotonic()
    broken: Counter[str] = Counter()
    failing = 0
    for seed, found in _verdicts(seeds, jobs):
        if not found:
            continue
        failing += 1
        broken.update({promise for promise, _evidence in found})
        if failing <= MOST_SHOWN:
            print(f"seed {seed} fails; repeat it: python -m tests.simulation --seed {seed} --trace")
            print("\n".join(f"  {evidence}" for _promise, evidence in found))
    seconds = time.monotonic() - begun
    print(f"{len(seeds)} seeds in {seconds:.1f} s ({1000 * seconds / len(seeds):.1f} ms each), {failing} fail")
    print("\n".join(f"  {promise}: {count}" for promise, count in broken.most_common()))
    return bool(failing)


def _verdicts(seeds: range, jobs: int) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    if jobs == 1:
        yield from map(verdict_of, seeds)
        return
    with ProcessPoolExecutor(jobs) as processes:
        yield from processes.map(verdict_of, seeds, chunksize=SEEDS_AT_ONCE)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="print everything that happens in it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
