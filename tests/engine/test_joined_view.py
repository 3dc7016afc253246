"""Two views of one stream answer as one: what the sidecar fires, and what the server does."""

from random import Random

import pytest

from nats_scheduler.engine.holding.flight import Failing
from nats_scheduler.engine.views.figures import ScheduleKind, State
from nats_scheduler.engine.views.stored import StoredSchedules
from nats_scheduler.engine.views.view import EngineView, FiredBy, ListedSchedule, Query
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import message_on, schedule

RULES = StreamRules("S", ("s.>", "t.>"))


def portable(pattern: str, sequence: int, subject: str = "", **more: str) -> StoredMessage:
    headers = {"X_Nats_Schedule": pattern, "X_Nats_Schedule_Target": "t.out", **more}
    return message_on(subject or f"s.{sequence}", sequence, **headers)


def at(seconds: int) -> str:
    return f"@at {format_rfc3339(START + HOUR + seconds * SECOND)}"


def joined(*messages: StoredMessage) -> EngineView:
    """Read messages as a native server and the sidecar beside it do."""
    own = StoredSchedules(RULES, (PORTABLE,), FiredBy.SIDECAR)
    other = StoredSchedules(RULES, (ADR51,), FiredBy.SERVER)
    for one in (own, other):
        one.take(messages, START)
    return own.view.joined(other.view)


def all_of(view: EngineView, limit: int) -> list[list[ListedSchedule]]:
    """Return all pages, one after the other."""
    pages, after = [], None
    while True:
        page = view.page(START, limit=limit, after=after).finish()
        pages.append(page.schedules)
        if (after := page.following) is None:
            return pages


@pytest.mark.parametrize("length", [1, 7, 100, 1_000])
def test_each_schedule_is_on_one_page_soonest_first(length: int) -> None:
    random = Random(length)
    messages = [
        random.choice((portable, lambda p, n: schedule(p, n, f"s.{n}")))(at(random.randrange(200)), number)
        for number in range(1, 300)
    ]
    pages = all_of(joined(*messages), length)
    found = [(one.next_fire, one.subject) for page in pages for one in page]
    assert found == sorted(found, key=lambda place: (place[0] or 0, place[1]))
    assert sorted(subject for _, subject in found) == sorted(f"s.{number}" for number in range(1, 300))
    assert {len(page) for page in pages[:-1]} <= {length}


def test_a_message_in_both_spellings_is_on_one_page_with_itself() -> None:
    both = {"Nats_Schedule": at(5), "Nats_Schedule_Target": "t.out"}
    messages = [portable(at(5), 1, "s.both", **both), schedule(at(9), 2, "s.later"), portable(at(1), 3, "s.soon")]
    pages = [[(one.subject, one.fired_by) for one in page] for page in all_of(joined(*messages), 2)]
    assert pages == [
        [("s.soon", FiredBy.SIDECAR), ("s.both", FiredBy.SIDECAR), ("s.both", FiredBy.SERVER)],
        [("s.later", FiredBy.SERVER)],
    ]
    one = joined(*messages).schedule("s.both", START)
    assert one is not None
    assert one.fired_by is FiredBy.SIDECAR


def test_counts_are_those_of_both() -> None:
    view = joined(schedule(at(1), 1, "s.1"), portable(at(2), 2), portable("@every 1h", 3), schedule("@daily", 4, "s.4"))
    counts = view.counts(START, Query(subject="s.>"), {2: Failing(1, "", 1), 1: Failing(2, "", 1)}).finish()
    assert counts.total == 4
    assert counts.kinds == {ScheduleKind.AT: 2, ScheduleKind.EVERY: 1, ScheduleKind.CRON: 1}
    assert counts.states == {State.WAITING: 3, State.FAILING: 1}, "only what the sidecar fires can fail"


def test_what_is_rejected_is_listed_by_subject() -> None:
    wrong = [schedule("@never", 1, "s.b"), portable("@never", 2, "s.a"), schedule("@never", 3, "s.c")]
    view = joined(*wrong, message_on("s.near", 4, **{"Nats-Schedul": "@daily"}))
    first = view.rejected_page(Query(), 2, "").finish()
    second = view.rejected_page(Query(), 2, first.messages[-1].subject).finish()
    assert [([one.subject for one in page.messages], page.is_last) for page in (first, second)] == [
        (["s.a", "s.b"], False),
        (["s.c"], True),
    ]
    assert (view.rejected_count, view.misnamed_count) == (3, 1)
    rejected = view.rejection("s.b")
    assert rejected is not None
    assert rejected.dialect is ADR51
    assert [one.subject for one in view.misnamed_page(Query(), 9, "").finish().messages] == ["s.near"]
    assert view.misnaming("s.near") is not None
    assert (view.schedule("s.b", START), view.flight("s.b"), view.rejection("s.near")) == (None, None, None)


def test_what_is_gone_is_held_no_more() -> None:
    stored = StoredSchedules(RULES, (ADR51,), FiredBy.SERVER)
    stored.take([schedule("@daily", 1, "s.1"), schedule("@never", 2, "s.2"), schedule("@daily", 5, "s.3")], START)
    assert (stored.count, stored.read_through) == (3, 5)
    stored.remove([("s.1", 1), ("s.2", 2), ("s.3", 4), ("s.none", 3)], START)
    assert [held.subject for held in stored.held] == ["s.3"], "another message than the one that is gone"
    assert stored.rejected == {}
    stored.take([schedule("@daily", 7, "s.1")], START)
    assert stored.count == 2
