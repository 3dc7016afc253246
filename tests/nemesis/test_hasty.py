"""Sidecars that take a snapshot after each few messages keep every promise, whatever breaks, and begin with some."""

import asyncio
from pathlib import Path

from tests.nemesis.round import play
from tests.nemesis.tally import evidence

SEEDS = (22, 51, 14)
"""A kill, a node of a cluster, a partition; and a kill in the middle of each."""


async def test_no_promise_is_broken_where_sidecars_begin_with_snapshots(tmp_path: Path) -> None:
    rounds = [play(seed, tmp_path / str(seed), snapshots=True) for seed in SEEDS]
    outcomes = await asyncio.gather(*rounds)
    failed = "\n".join(evidence(outcome) for outcome in outcomes if outcome.violations)
    assert not failed, failed
    assert sum(outcome.begun_with_snapshots for outcome in outcomes), "no life began with a snapshot"
