"""Real servers and real sidecars keep every promise, whatever breaks.

With `TEST_EFFORT=N` or a `TEST_SEED`, N times as many rounds as usual are drawn, of all kinds.
"""

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from tests.harness.seeds import EFFORT, SEED, seeds
from tests.judge.checkers import verdict
from tests.judge.history import CalendarSeen, FireSeen, History, Leaves
from tests.nemesis.calendars import NAMES
from tests.nemesis.publishers import steady
from tests.nemesis.record import MACHINE
from tests.nemesis.round import Outcome, play

USUAL = (10, 13, 15, 17, 19)
"""Kills, partitions, a server that is killed, a node of a cluster that is, and a mixture with stops."""
AT_ONCE = 5

Outcomes = list[Outcome]

Result = TypeVar("Result")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that cuts connections while they are made, and have what is left of those found here.

    Before Python 3.12 `asyncio.wait_for`, in which nats-py makes a connection, may lose what it waited for.
    """
    result = asyncio.run(coroutine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    return result


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Play all rounds, some at a time: most of a round is waiting."""
    rounds = USUAL if (SEED, EFFORT) == (0, 1) else seeds(len(USUAL))
    places = asyncio.Semaphore(AT_ONCE)

    async def played(seed: int) -> Outcome:
        async with places:
            return await play(seed, tmp_path_factory.mktemp(f"round-{seed}"))

    async def all_played() -> Outcomes:
        return await asyncio.gather(*map(played, rounds))

    return run(all_played())


def test_no_promise_is_broken_whatever_breaks(outcomes: Outcomes) -> None:
    failed = "\n".join(outcome.evidence() for outcome in outcomes if outcome.violations)
    assert not failed, failed
    for outcome in outcomes:
        assert outcome.strikes, f"nothing was struck in {outcome.scenario}"
        assert len(outcome.history.fires) > 20, f"hardly anything fired in {outcome.scenario}"


def loses_a_fire(history: History) -> None:
    """Remove the last fire but one of a schedule that no publisher changed."""
    history.fires.remove(fires_of_one(history)[-2])


def doubles_a_fire(history: History) -> None:
    """Store a fire again, as if the server had not detected the duplicate."""
    history.fires.append(replace(fires_of_one(history)[-2], sequence=10**9))


def is_silent_in_the_end(history: History) -> None:
    """Remove everything that was stored after the last fault."""
    last = max(fault.end for fault in history.faults)
    history.fires = [fire for fire in history.fires if fire.stored_at < last]


def loses_a_schedule(history: History) -> None:
    """Remove a schedule that no publisher changed."""
    history.remaining.remove(fires_of_one(history)[0].schedule_sequence or 0)


def excepts_all_days(history: History) -> None:
    """Have the calendars except every day from the beginning on."""
    history.calendars = [CalendarSeen(name, 0, Leaves.NOTHING) for name in NAMES]


FALSIFIED: list[tuple[Callable[[History], None], str]] = [
    (loses_a_fire, "Complete"),
    (doubles_a_fire, "Unique"),
    (is_silent_in_the_end, "Live"),
    (loses_a_schedule, "Complete"),
    (excepts_all_days, "Unique"),
]


@pytest.mark.parametrize(("falsify", "promise"), FALSIFIED)
def test_what_is_falsified_in_a_real_history_is_found(
    outcomes: Outcomes, falsify: Callable[[History], None], promise: str
) -> None:
    sound = [outcome for outcome in outcomes if not outcome.violations]
    assert sound, "there is a round that kept every promise"

    def is_found(outcome: Outcome) -> bool:
        history = deepcopy(outcome.history)
        history.faults = [fault for fault in history.faults if fault.kind != MACHINE]  # which would excuse it
        falsify(history)
        return promise in {violation.promise for violation in verdict(history)}

    assert any(map(is_found, sound)), [outcome.scenario for outcome in sound]


def fires_of_one(history: History) -> list[FireSeen]:
    """Return the fires of a schedule that no publisher changed."""
    return [fire for fire in history.fires if fire.schedule == steady(0)]
