"""A pending one-shot that is replaced before it fired is reported: `schedule_replaced_unfired`.

Also one that the server itself fires (`engine/receiving/fired_by_server.py`).
"""

from typing import Any

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.events import ScheduleReplacedUnfired
from nats_scheduler.engine.fire import CompareBodies
from nats_scheduler.engine.holding import lifetimes
from nats_scheduler.engine.inputs import (
    BodiesCompared,
    CaughtUp,
    ContactLost,
    MessagesRead,
    OwnershipChanged,
    RemovalRequested,
    Unanswered,
)
from nats_scheduler.engine.receiving import fired_by_server
from nats_scheduler.engine.receiving.replaced import MAX_COMPARED
from nats_scheduler.message.headers import with_header
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import StoredMessage, body_mark, is_other_body
from nats_scheduler.schedule.instants import DAY, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, message_on, plain, schedule

FIRST = f"@at {format_rfc3339(START + DAY)}"
LATER = f"@at {format_rfc3339(START + 2 * DAY)}"
LOST = ScheduleReplacedUnfired(SCHEDULE, 1, START, START + DAY, 2, START + SECOND)


def version(sequence: int, body: bytes, pattern: str = FIRST, **more: Any) -> StoredMessage:
    """Return a version of the schedule, stored a second after the one before."""
    return schedule(pattern, sequence, stored_at=START + (sequence - 1) * SECOND, body=body, **more)


def bare(message: StoredMessage) -> StoredMessage:
    """Return a message as a consumer of headers delivers it."""
    size = b"%d" % len(message.body or b"")
    return message._replace(block=with_header(message.block, b"Nats-Msg-Size", size), body=None)


def replaced(one: StoredMessage, *others: StoredMessage, **more: Any) -> Desk:
    """Let an engine read a schedule and what is stored on its subject after that, a second later."""
    desk = Desk(**more)
    desk.read(one)
    desk.at(1)
    desk.read(*others)
    return desk


def losses(desk: Desk) -> list[ScheduleReplacedUnfired]:
    """Return what the last step reported as lost."""
    return desk.reported(ScheduleReplacedUnfired)


def test_another_body_is_a_loss_and_the_same_one_is_not() -> None:
    for first in (FIRST, f"@at {format_rfc3339(START + 60 * SECOND)}"):  # far, and near
        due = START + (DAY if first is FIRST else 60 * SECOND)
        for message, is_lost in (
            (version(2, b"order 2"), True),
            (version(2, b"order 2", LATER), True),
            (version(2, b"order 2", "@every 1h"), True),
            (version(2, b"order 1"), False),
            (version(2, b"order 1", LATER), False),
            (version(2, b"order 2", "never"), True),
            (plain(SCHEDULE, 2, stored_at=START + SECOND, body=b"order 1"), True),
            (message_on(SCHEDULE, 2, Nats_Marker_Reason="Remove"), False),
            (message_on(SCHEDULE, 2, Nats_Schedule_X_Paused=first, Nats_Schedule_Target="t.out"), False),
        ):
            desk = replaced(version(1, b"order 1", first), message)
            assert losses(desk) == ([LOST._replace(due=due)] if is_lost else []), message


def test_replacement_that_is_meant_is_no_loss() -> None:
    meant = {"Nats_Schedule_X_Debounce": "true"}
    one, other = version(1, b"one"), version(2, b"other")
    assert losses(replaced(one, other)) == [LOST]
    assert losses(replaced(version(1, b"one", **meant), other)) == []
    assert losses(replaced(one, version(2, b"other", **meant))) == []
    assert losses(replaced(one, other, debounces=True)) == []
    assert losses(replaced(version(1, b"one", **meant), plain(SCHEDULE, 2))) == []


def test_what_may_have_fired_or_was_never_to_fire_is_no_loss() -> None:
    late = version(2, b"other")._replace(stored_at=START + DAY)
    assert losses(replaced(version(1, b"one"), late)) == []
    assert losses(replaced(version(1, b"one", "@every 1h"), version(2, b"other"))) == []
    assert losses(replaced(version(1, b"one", Nats_TTL="1h"), version(2, b"other"), removes_expired=True)) == []
    desk = Desk()
    desk.step(OwnershipChanged(False))
    desk.read(version(1, b"one"), version(2, b"other"))
    assert losses(desk) == [], "the owner reports it"


def test_what_was_removed_before_is_no_loss() -> None:
    for request, is_lost in (RemovalRequested(SCHEDULE), False), (RemovalRequested("s.other"), True):
        desk = Desk()
        desk.read(version(1, b"one"))
        desk.step(request)  # it is held until it is read again
        desk.read(version(2, b"other"))
        assert losses(desk) == ([LOST] if is_lost else []), request
    late = version(2, b"other")._replace(stored_at=START + 3 * SECOND)
    assert losses(replaced(version(1, b"one"), late, max_age=2 * SECOND)) == []


def test_subjects_that_were_emptied_are_noted_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "MAX_SUBJECTS_NOTED", 1)
    desk = Desk()
    desk.step(RemovalRequested(SCHEDULE), RemovalRequested("s.other"))
    desk.read(version(1, b"one"), version(2, b"other"))
    assert losses(desk) == [LOST], "beyond that number it is reported"


def test_bodies_of_one_size_are_read_before_the_older_one_is_purged() -> None:
    question = CompareBodies(SCHEDULE, 1, 2)
    for answer, is_lost in (
        (BodiesCompared(question, is_other=True), True),
        (BodiesCompared(question, is_other=False), False),
        (Unanswered(question, "nothing came"), False),
    ):
        desk = replaced(bare(version(1, b"one")), bare(version(2, b"two")))
        assert (desk.asked(CompareBodies), desk.asked(PurgeSchedule), losses(desk)) == ([question], [], [])
        desk.step(answer)
        assert losses(desk) == ([LOST] if is_lost else [])
        assert [(one.schedule, one.through) for one in desk.asked(PurgeSchedule)] == [(SCHEDULE, 1)]
        desk.step(answer)
        assert desk.asked(PurgeSchedule) == []
    desk = replaced(bare(version(1, b"one")), bare(version(2, b"other")))
    assert (desk.asked(CompareBodies), losses(desk)) == ([], [LOST]), "their sizes tell"


def test_no_more_bodies_are_read_at_once_than_allowed() -> None:
    subjects = [f"s.{number}" for number in range(MAX_COMPARED + 3)]
    desk = Desk(*(bare(schedule(FIRST, place, one, body=b"1")) for place, one in enumerate(subjects, 1)))
    desk.read(*(bare(schedule(FIRST, place, one, body=b"2")) for place, one in enumerate(subjects, 1_001)))
    assert (len(desk.asked(CompareBodies)), len(desk.asked(PurgeSchedule))) == (MAX_COMPARED, 3)


def test_what_was_replaced_unwatched_is_reported_by_the_owner() -> None:
    stored = [bare(version(1, b"one")), bare(version(2, b"other")), bare(version(3, b"3rd", LATER))]
    desk = Desk(*stored, live=False)
    desk.step(CaughtUp())
    second = ScheduleReplacedUnfired(SCHEDULE, 2, START + SECOND, START + DAY, 3, START + 2 * SECOND)
    assert losses(desk) == [LOST, second]
    desk.step(ContactLost("gone"))
    desk.step(MessagesRead(stored), CaughtUp())
    assert losses(desk) == [], "once"
    desk = Desk(live=False)
    desk.step(OwnershipChanged(False), MessagesRead(stored), CaughtUp())
    assert losses(desk) == []


def test_what_the_server_itself_fires_is_watched_while_it_is_pending() -> None:
    first, later = version(1, b"order 1"), version(2, b"order 1", LATER)
    for messages, is_lost in (
        ((version(2, b"order 2"),), True),
        ((bare(version(2, b"order 12")),), True),
        ((bare(version(2, b"order 2")),), False),  # nothing was read of it but its size
        ((later,), False),
        ((MessageRun.of([plain(SCHEDULE, 2, stored_at=START + SECOND)._replace(body=None)]),), True),
        ((version(2, b"order 2", Nats_Schedule_X_Debounce="true"),), False),
        ((message_on(SCHEDULE, 2, Nats_Marker_Reason="Remove"),), False),
        ((message_on(SCHEDULE, 2, Nats_Scheduler="s.other", Nats_Schedule_Next="purge"),), False),
        ((message_on(SCHEDULE, 2, Nats_Schedule_X_Paused=FIRST, Nats_Schedule_Target="t.out"),), False),
        ((version(2, b"order 2")._replace(stored_at=START + DAY),), False),
    ):
        desk = Desk(is_native=True)
        desk.read(first)
        assert (desk.reads, len(desk.engine.held)) == ([], 0)
        desk.step(*(MessagesRead(one if isinstance(one, MessageRun) else [one]) for one in messages))
        assert losses(desk) == ([LOST] if is_lost else []), messages
    desk = replaced(first, later, version(3, b"order 2"), is_native=True)
    assert [(one.sequence, one.due) for one in losses(desk)] == [(2, START + 2 * DAY)]
    for more in ({"debounces": True}, {"max_age": SECOND}):
        assert losses(replaced(first, version(2, b"order 2"), is_native=True, **more)) == []
    assert losses(replaced(version(1, b"1", Nats_TTL="1h"), version(2, b"2"), is_native=True)) == []


def test_what_the_server_fired_or_a_client_cancelled_is_watched_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def fired(sequence: int, following: str, at: int, target: str) -> StoredMessage:
        fire = message_on(target, sequence, Nats_Scheduler=SCHEDULE, Nats_Schedule_Next=following)
        return fire._replace(stored_at=at)

    following = format_rfc3339(START + 3 * DAY)
    desk = Desk(is_native=True)
    desk.read(version(1, b"order 1"), fired(2, "purge", START + SECOND, "t.cancel"), version(3, b"order 2"))
    assert losses(desk) == []
    of_server = desk.engine.of_server
    assert of_server is not None
    monkeypatch.setattr(fired_by_server, "MAX_TARGETS", 2)
    desk.read(schedule("@every 1h", 6, Nats_Schedule_Source="t.in"))
    desk.read(*(fired(7, following, START + DAY, target) for target in ("t.one", "t.two", "t.three")))
    assert (list(of_server.sampled), list(of_server.fired_since(START))) == (["t.in"], ["t.two", "t.three"])
    assert of_server.fired_since(START + DAY + 1) == {}
    monkeypatch.setattr(fired_by_server, "MAX_WATCHED", 1)
    one, two = schedule(FIRST, 8, "s.1", body=b"1"), schedule(FIRST, 9, "s.2", body=b"1")
    desk.read(one, two, *(plain(subject, 10, stored_at=START + SECOND) for subject in ("s.1", "s.2")))
    assert [lost.schedule for lost in losses(desk)] == ["s.2"]


def test_a_mark_says_what_is_known_of_a_body() -> None:
    def mark(body: bytes | None, *, size: int | None = None) -> int:
        block = b"" if size is None else with_header(b"", b"Nats-Msg-Size", b"%d" % size)
        return body_mark(StoredMessage("s", 1, START, block, body))

    assert mark(None) == 0
    for one, other, expected in (
        (mark(b"a"), mark(b"b"), True),
        (mark(b"a"), mark(b"a"), False),
        (mark(b""), mark(b""), False),
        (mark(b"aa"), mark(b"a"), True),
        (mark(None, size=1), mark(None, size=2), True),
        (mark(None, size=1), mark(b"ab"), True),
        (mark(None, size=1), mark(None, size=1), None),
        (mark(None, size=1), mark(b"a"), None),
        (mark(None), mark(b"a"), None),
        (mark(None, size=1), mark(None, size=4097), None),
    ):
        assert is_other_body(one, other) is expected is is_other_body(other, one)
        assert max(one, other) < 1 << 32
