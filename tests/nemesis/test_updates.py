"""A rolling update from the last version, and one back to it, keeps every promise; kills happen meanwhile.

`NATS_SCHEDULER_NEMESIS=N` plays N rounds in the place of the usual ones.
"""

import asyncio
import os
from pathlib import Path

import pytest

from nats_scheduler.version import VERSION
from tests.harness.servers import V2_10, V2_11
from tests.nemesis.round import Outcome
from tests.nemesis.scenario import UPDATE
from tests.nemesis.tally import evidence
from tests.nemesis.updates import play_update, rolling
from tests.release.last_version import LAST_VERSION, last_version

USUAL = (2, 3)
"""To this version on a work queue of 2.10, and back from it on a stream of 2.11 that keeps its fires."""


def seeds() -> list[int]:
    """Return the seeds of the rounds to play."""
    return list(range(int(os.environ.get("NATS_SCHEDULER_NEMESIS") or 0))) or list(USUAL)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Outcome]:
    """Play the rounds, two at a time."""
    folder: Path = tmp_path_factory.mktemp("updates")
    last = last_version(folder)
    if isinstance(last, str):
        pytest.skip(last)
    places = asyncio.Semaphore(2)

    async def played(seed: int) -> Outcome:
        async with places:
            return await play_update(seed, folder / str(seed), last)

    async def all_played() -> dict[int, Outcome]:
        return dict(zip(seeds(), await asyncio.gather(*map(played, seeds())), strict=True))

    return asyncio.run(all_played())


def test_no_promise_is_broken_by_a_rolling_update_or_its_reverse(outcomes: dict[int, Outcome]) -> None:
    failed = "\n".join(evidence(outcome) for outcome in outcomes.values() if outcome.violations)
    assert not failed, failed


def test_each_sidecar_ran_one_version_and_then_the_other(outcomes: dict[int, Outcome]) -> None:
    for seed, outcome in outcomes.items():
        first, second = (VERSION, LAST_VERSION) if seed % 2 else (LAST_VERSION, VERSION)
        for versions in outcome.versions:
            assert (versions[0], versions[-1]) == (first, second)
            assert versions == sorted(versions, reverse=seed % 2 == 1), "it does not go back in between"
        assert outcome.strikes.count(UPDATE) == len(outcome.versions)
        assert len(outcome.history.fires) > 20


def test_the_usual_rounds_are_of_both_directions_servers_and_kinds_of_streams() -> None:
    scenarios = [rolling(seed) for seed in USUAL]
    assert {seed % 2 for seed in USUAL} == {0, 1}
    assert {(one.version, one.consumes) for one in scenarios} == {(V2_10, True), (V2_11, False)}
    assert {strike.way for one in scenarios for strike in one.strikes if strike.kind == UPDATE} == {"drain", "kill"}
