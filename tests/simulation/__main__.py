"""Run seeds: `python -m tests.simulation --seeds 10000 [--first N] [--jobs 2]`, or one with `--seed N [--trace]`.

Its rule: what fails is printed with the command that repeats it, and the exit code says whether anything did.
"""

import argparse
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.scenario import DRAWS
from tests.simulation.world import judged, silent

SEEDS_AT_ONCE = 50

OPTIONS = {
    "--files": "let instances keep their schedules in files, and begin with them",
    "--roll-ups": "let fires replace those before them by purges",
    "--standbys": "let some of the instances read the stream, and the others take over from them",
    "--unable": "let instances be alive and unable, and a hostile client write into the bucket",
}


def broken_in(seed: int, *, option: str) -> str:
    """Run a seed, and return what it breaks, a line each."""
    try:
        return "".join(f"  {violation}\n" for violation in judged(DRAWS[option](seed)))
    except Exception:
        return traceback.format_exc()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="print everything that happens in it")
    kinds = parser.add_mutually_exclusive_group()
    for option, meaning in OPTIONS.items():
        kinds.add_argument(option, action="store_const", const=option, dest="option", default="", help=meaning)
    given = parser.parse_args()
    if given.seed is not None:
        scenario = DRAWS[given.option](given.seed)
        print(scenario)
        found = judged(scenario, print if given.trace else silent)
        print("\n".join(map(str, found)) or "no promise was broken")
        return bool(found)
    failing, seeds = 0, range(given.first, given.first + given.seeds)
    with ProcessPoolExecutor(given.jobs) as processes:
        run = partial(broken_in, option=given.option)
        for seed, broken in zip(seeds, processes.map(run, seeds, chunksize=SEEDS_AT_ONCE), strict=True):
            failing += bool(broken)
            if broken:
                print(f"seed {seed} fails; repeat it: python -m tests.simulation --seed {seed} --trace {given.option}")
                print(broken, end="")
    print(f"{failing} of {len(seeds)} seeds fail")
    return bool(failing)


if __name__ == "__main__":
    sys.exit(main())
