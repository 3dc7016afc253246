"""Run rounds: `python -m tests.nemesis --rounds N [--seed S] [--jobs J]`, or repeat one with `--round-seed S`.

Its rule: what fails is printed with the command that repeats it and with its evidence, and the exit code says whether
anything did.
The logs of a failed round are kept, the others are removed.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import count, islice
from pathlib import Path
from typing import Any

from tests.nemesis.round import Outcome, play
from tests.nemesis.scenario import CLUSTER_KINDS, KINDS, drawn, in_cluster
from tests.nemesis.tally import Tally, evidence

TOLD_EVERY = 50
"""Rounds between two intermediate tallies."""


def main() -> int:
    """Run the command line."""
    given = _arguments()
    seeds = _seeds(given) if given.round_seed is None else [given.round_seed]
    folder = Path(tempfile.mkdtemp(prefix="nemesis-"))
    tally, crashed, begun = Tally(), 0, time.monotonic()
    for number, (seed, outcome) in enumerate(_outcomes(seeds, given, folder), 1):
        if isinstance(outcome, str):
            crashed += 1
            print(f"round {seed} could not be played; logs in {folder / str(seed)}\n{outcome}", flush=True)
            continue
        tally.add(outcome)
        if outcome.violations or given.round_seed is not None:
            print(f"{evidence(outcome)}\n  logs in {folder / str(seed)}", flush=True)
        if number % TOLD_EVERY == 0:
            print(f"{number} rounds in {time.monotonic() - begun:.0f} s\n{tally.written()}", flush=True)
    print(f"{len(seeds)} rounds in {time.monotonic() - begun:.0f} s, {crashed} could not be played")
    print(tally.written())
    print(f"{tally.continued} lives of sidecars continued from their file")
    return bool(tally.failed or crashed)


def played(seed: int, folder: Path, kind: dict[str, Any]) -> Outcome | str:
    """Play one round in this process; returns its result, or the error that prevented it."""
    try:
        outcome = asyncio.run(play(seed, folder, **kind))
    except Exception:
        return traceback.format_exc()
    if not outcome.violations:
        shutil.rmtree(folder)
    return outcome


def _outcomes(seeds: list[int], given: argparse.Namespace, folder: Path) -> Iterator[tuple[int, Outcome | str]]:
    kind = {"cluster": given.cluster, "busy": given.busy}
    if len(seeds) == 1 or given.jobs == 1:
        for seed in seeds:
            yield seed, played(seed, folder / str(seed), kind)
        return
    with ProcessPoolExecutor(given.jobs) as processes:
        under_way = {processes.submit(played, seed, folder / str(seed), kind): seed for seed in seeds}
        for done in as_completed(under_way):
            yield under_way[done], done.result()


def _seeds(given: argparse.Namespace) -> list[int]:
    """Return the seeds of the rounds to play, those of one kind if that is given."""
    draw = in_cluster if given.cluster else drawn
    return list(islice((n for n in count(given.seed) if given.kind in (None, draw(n).kind)), given.rounds))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis")
    parser.add_argument("--rounds", type=int, default=20, help="how many rounds to play")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first of them; the others count from it")
    parser.add_argument("--jobs", type=int, default=2, help="how many are played side by side")
    parser.add_argument("--round-seed", type=int, help="play the round with this seed only")
    parser.add_argument("--cluster", action="store_true", help="play rounds of a loaded cluster")
    parser.add_argument("--kind", choices=sorted({*KINDS, *CLUSTER_KINDS}), help="play rounds of this kind only")
    parser.add_argument("--busy", type=int, default=0, help="how many processes compute beside each of those rounds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
