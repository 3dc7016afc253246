"""Real servers and real sidecars keep every promise, whatever breaks.

With `TEST_EFFORT=N` or a `TEST_SEED`, N times as many rounds as usual are drawn, of all kinds.
"""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from nats_scheduler.message.identity import fire_identity
from tests.harness.account import account_on
from tests.harness.seeds import EFFORT, SEED, seeds
from tests.harness.servers import EMULATED_VERSIONS, running_server
from tests.harness.waiting import few_at_once
from tests.judge.checkers import verdict
from tests.judge.history import SECOND, CalendarSeen, FireKey, FireSeen, History, Leaves
from tests.judge.reading import store_seen
from tests.nemesis.calendars import NAMES
from tests.nemesis.ground import STORE, STREAM
from tests.nemesis.publishers import steady
from tests.nemesis.record import MACHINE
from tests.nemesis.round import Outcome, play
from tests.nemesis.tally import evidence

USUAL = (22, 1, 14, 59, 5, 51)
"""A kill, a stop, a partition, delays, a server that is killed, and a node of a cluster."""
AT_ONCE = 8

Outcomes = list[Outcome]


def rounds() -> list[int]:
    """Return the seeds of the rounds to play."""
    return list(USUAL) if (SEED, EFFORT) == (0, 1) else list(seeds(len(USUAL)))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Play all rounds, some at a time: most of a round is waiting."""
    played = (play(seed, tmp_path_factory.mktemp(f"round-{seed}")) for seed in rounds())
    return asyncio.run(few_at_once(played, AT_ONCE))


def test_no_promise_is_broken_whatever_breaks(outcomes: Outcomes) -> None:
    failed = "\n".join(evidence(outcome) for outcome in outcomes if outcome.violations)
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


def excepts_all_days(history: History) -> None:
    """Have the calendars except every day from the beginning on."""
    history.calendars = [CalendarSeen(name, 0, Leaves.NOTHING) for name in NAMES]


FALSIFIED: list[tuple[Callable[[History], None], str]] = [
    (loses_a_fire, "Complete"),
    (doubles_a_fire, "Unique"),
    (is_silent_in_the_end, "Live"),
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


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_the_files_of_a_server_show_what_it_ever_stored(version: str, tmp_path: Path) -> None:
    """A message that another one replaces stays written, and one that is deleted leaves a note of that."""
    identity = fire_identity("s.1", 1, SECOND)
    async with running_server(version, tmp_path) as server, account_on(server.url) as account:
        await account.create(STREAM, subjects=["s.>"], max_msgs_per_subject=1, storage="file")
        await account.publish("s.0", body=b"nothing")
        await account.publish("s.1", {"Nats-Msg-Id": identity}, b"one")
        await account.publish("s.1", body=b"two")
        await account.api.call(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 3})
        await account.publish("s.2", body=b"three")
    seen = store_seen("n0", tmp_path / STORE)
    found = {sequence: record[1:] for sequence, record in seen.records.items()}
    assert found == {
        1: ("s.0", None, b"nothing"),
        2: ("s.1", FireKey(1, SECOND), b"one"),
        4: ("s.2", None, b"three"),
    }
    assert 3 in seen.erased
    assert seen.last() == 4
