"""In a burst only what the next fires need is done at once; the rest is neither lost nor unreported, only later."""

from itertools import chain

import pytest

from nats_scheduler.engine.actions import WakeAt
from nats_scheduler.engine.events import Ending, FireStored
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.firing import answers
from nats_scheduler.engine.holding.in_flight import BURST_LIMIT_NS
from nats_scheduler.engine.inputs import (
    ContentFetched,
    DrainRequested,
    FiresStored,
    MessagesRead,
    PublishConcluded,
    PurgeConcluded,
    Unknown,
)
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.contract.sides import each
from tests.engine.direct import Desk, plain, schedule

AT_5S, AT_6S, AT_60S = (f"@at 2026-01-01T00:{time}Z" for time in ("00:05", "00:06", "01:00"))
COUNT = 100
FIRST = 1_001
"""The sequence under which the first fire of a burst is stored."""


def burst(*patterns: str) -> tuple[Desk, list[Fire]]:
    """Bring many schedules into flight, all by the sixth second; return the desk and their fires."""
    messages = [schedule(pattern, number, f"s.{number}") for number, pattern in enumerate(patterns, 1)]
    desk, fires = Desk(*messages), []
    for seconds in (4, 5):
        desk.at(seconds)
        while desk.reads or desk.fires:
            fires += desk.fires
            asked = {sequence for _subject, sequence in desk.reads}
            desk.step(*(ContentFetched(m.subject, m.sequence, m, None) for m in messages if m.sequence in asked))
    fires += desk.at(6).fires
    assert len(fires) == COUNT
    return desk, fires


@pytest.mark.parametrize("pattern", [AT_5S, "@every 5s", "*/5 * * * * *"])
def test_many_at_once_are_as_many_one_by_one(pattern: str) -> None:
    reported = []
    for takes_apart in (False, True):
        (desk, fires), actions = burst(*[pattern] * COUNT), []
        for start, end in ((0, 30), (30, 31), (31, COUNT)):
            stored = FiresStored(fires[start:end], range(FIRST + start, FIRST + end))
            actions.append(desk.step(*(each(stored) if takes_apart else [stored])))
        actions.append(desk.step(MessagesRead([], through=FIRST + COUNT)))
        reported.append(repr(actions))
    assert reported[0] == reported[1]


def waiting() -> tuple[Desk, list[Fire]]:
    """Bring a herd of instants into flight, of which the first 30 are stored, so that what follows from it waits."""
    desk, fires = burst(*[AT_5S] * COUNT)
    desk.step(FiresStored(fires[:30], range(FIRST, FIRST + 30)))
    return desk, fires


def test_what_was_stored_is_told_and_removed_after_the_herd() -> None:
    desk, fires = waiting()
    assert (desk.reported(FireStored), desk.purges) == ([], [])
    assert desk.asked(WakeAt) == [], "what waits for outcomes makes no steps in between"
    assert {fire.purge_through for fire in fires} == {0}, "the server purges more slowly than it stores"
    desk.step(FiresStored(fires[30:], range(FIRST + 30, FIRST + COUNT)))
    assert [event.stored_sequence for event in desk.reported(FireStored)] == list(range(FIRST, FIRST + COUNT))
    assert desk.purges == [(fire.schedule, fire.sequence) for fire in fires]


def test_of_very_many_some_are_told_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_REPORTS_PER_STEP", 40)
    desk, fires = waiting()
    desk.step(FiresStored(fires[30:], range(FIRST + 30, FIRST + COUNT)))
    told = []
    while some := [event.stored_sequence for event in desk.reported(FireStored)]:
        told.append(some)
        desk.step()
    assert [len(some) for some in told] == [40, 40, 20]
    assert [*chain(*told)] == list(range(FIRST, FIRST + COUNT))


def test_a_herd_that_never_ends_keeps_nothing_waiting() -> None:
    desk, _fires = waiting()
    assert desk.at(5 + BURST_LIMIT_NS / SECOND - 0.001).purges == []
    assert len(desk.at(5 + BURST_LIMIT_NS / SECOND).purges) == 30


def test_what_was_stored_is_settled_though_it_waits_to_be_removed() -> None:
    """In a burst the checkpoint covers each stored fire at once: after a crash its message may have been consumed."""
    desk, fires = burst(*[AT_5S] * 20, *[AT_6S] * 80)
    assert desk.engine.checkpoint(desk.now).through == START + 5 * SECOND - 1
    desk.step(FiresStored(fires[:20], range(FIRST, FIRST + 20)))
    assert desk.purges == []
    assert desk.engine.checkpoint(desk.now).through == START + 6 * SECOND - 1


def test_what_waits_to_be_removed_keeps_the_engine_from_being_idle() -> None:
    desk, fires = burst(*[AT_5S] * COUNT)
    desk.step(DrainRequested(), FiresStored(fires[:30], range(FIRST, FIRST + 30)))
    desk.step(*(PublishConcluded(fire, Unknown("cut")) for fire in fires[30:]))
    assert not desk.engine.is_idle
    assert len(desk.purges) == 30
    desk.step(*(PurgeConcluded(*purge) for purge in desk.purges))
    assert desk.engine.is_idle


def test_what_is_replaced_while_it_waits_is_removed_once() -> None:
    desk, fires = waiting()
    desk.read(schedule(AT_60S, 2_000, fires[0].schedule), plain(fires[1].schedule, 2_001))
    assert desk.endings == [Ending.OVERWRITTEN]
    desk.step(FiresStored(fires[30:], range(FIRST + 30, FIRST + COUNT)))
    assert desk.purges.count((fires[0].schedule, 1_999)) == 1
    assert (fires[0].schedule, 1) not in desk.purges
    assert desk.engine.held.exactly(fires[0].schedule, 2_000) is not None
    assert fires[1].schedule not in dict(desk.purges)
    assert len(desk.purges) == COUNT - 1
