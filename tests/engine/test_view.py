"""Views of an engine: what it holds can be asked for at any time, and asking changes nothing."""

from collections.abc import Sequence
from random import Random

import pytest

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.holding.flight import Failing
from nats_scheduler.engine.holding.roster import ROW_LENGTH
from nats_scheduler.engine.inputs import CaughtUp, MessagesRead, Refused
from nats_scheduler.engine.views.figures import ScheduleKind, State
from nats_scheduler.engine.views.pages import Cursor, read_cursor
from nats_scheduler.engine.views.stored import StoredSchedules
from nats_scheduler.engine.views.view import ALL, MAX_PAGE_LENGTH, SEARCHED_PER_UNIT, FiredBy, Page, Query
from nats_scheduler.message.dialect import DIALECTS, PORTABLE
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import DAY, HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, message_on, plain, schedule, stored_fire

DENIED = Refused(403, 403, "no permission")


def at(after: int, sequence: int, subject: str = "", target: str = TARGET) -> StoredMessage:
    """Make a schedule that fires once, some time (ns) after the start."""
    pattern = f"@at {format_rfc3339(START + after)}"
    return schedule(pattern, sequence, subject or f"s.{sequence}", Nats_Schedule_Target=target)


def subjects(page: Page) -> list[str]:
    return [one.subject for one in page.schedules]


def pages(desk: Desk, length: int, query: Query = Query()) -> list[list[str]]:  # noqa: B008 - it is frozen
    """Return all pages, one after the other."""
    found, after = [], None
    while True:
        page = desk.engine.view().page(desk.now, query, limit=length, after=after).finish()
        found.append(subjects(page))
        if page.following is None:
            return found
        after = read_cursor(page.following.text)
        assert after is not None


def test_pages_are_soonest_first_and_each_schedule_is_on_one() -> None:
    after = [5, 3, 9, 3, 1, 7, 3]
    desk = Desk(*(at(HOUR * hours, number, f"s.{number}") for number, hours in enumerate(after, 1)))
    assert pages(desk, 3) == [["s.5", "s.2", "s.4"], ["s.7", "s.1", "s.6"], ["s.3"]]
    assert pages(desk, 7) == [["s.5", "s.2", "s.4", "s.7", "s.1", "s.6", "s.3"]]
    assert pages(desk, 1) == [[subject] for subject in pages(desk, 7)[0]]


@pytest.mark.parametrize("length", [1, 17, 300, MAX_PAGE_LENGTH])
def test_pages_of_many_schedules_are_those_of_a_sorted_list(length: int) -> None:
    random = Random(length)
    count = 6 * length if length > 17 else 120
    messages = [at(random.randrange(1, 500) * SECOND + HOUR, n, f"s.{random.random()}") for n in range(1, count + 1)]
    desk = Desk(*messages)
    expected = sorted((held.fire_time, held.subject) for held in desk.engine.held)
    found = pages(desk, length)
    assert [subject for page in found for subject in page] == [subject for _due, subject in expected]
    assert {len(page) for page in found[:-1]} == {length}


def test_those_without_a_next_fire_come_last_on_pages_too() -> None:
    rules = StreamRules("S", ("s.>", "t.>"), max_age=2 * HOUR)
    stored = StoredSchedules(rules, DIALECTS, FiredBy.SIDECAR)
    stored.take([at(3 * HOUR, 1), at(HOUR, 2), at(5 * HOUR, 3)], START)
    first = stored.view.page(START, limit=2).finish()
    assert [(one.subject, one.state) for one in first.schedules] == [("s.2", State.WAITING), ("s.1", State.EXPIRING)]
    second = stored.view.page(START, limit=2, after=first.following).finish()
    assert [(one.subject, one.ends, one.ended_by) for one in second.schedules] == [
        ("s.3", START + 2 * HOUR, Ending.MAX_AGE)
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(subject="s.a.*"), ["s.a.1", "s.a.2"]),
        (Query(subject="s.>"), ["s.a.1", "s.b.1", "s.a.2"]),
        (Query(subject="s.*"), []),
        (Query(subject="s.b.1"), ["s.b.1"]),
        (Query(target="t.*"), ["s.a.1", "s.a.2"]),
        (Query(target="t.deep.>"), ["s.b.1"]),
        (Query(kinds=frozenset({ScheduleKind.EVERY})), ["s.b.1"]),
        (Query(kinds=frozenset({ScheduleKind.AT, ScheduleKind.CRON}), subject="s.a.>"), ["s.a.1", "s.a.2"]),
        (Query(states=frozenset({State.OVERDUE})), ["s.a.1"]),
        (Query(states=frozenset({State.WAITING}), target="t.out"), ["s.a.2"]),
    ],
)
def test_a_query_names_what_is_wanted(query: Query, expected: list[str]) -> None:
    stored = StoredSchedules(StreamRules("S", ("s.>", "t.>")), DIALECTS, FiredBy.SIDECAR)
    every = schedule("@every 1m", 2, "s.b.1", Nats_Schedule_Target="t.deep.er")
    stored.take([at(-HOUR, 1, "s.a.1"), every, schedule("0 0 0 1 1 *", 3, "s.a.2")], START)
    page = stored.view.page(START, query).finish()
    counts = stored.view.counts(START, query).finish()
    assert (subjects(page), page.following, counts.total) == (expected, None, len(expected))


def test_counts_are_by_state_and_by_kind() -> None:
    stored = StoredSchedules(StreamRules("S", ("s.>", "t.>")), DIALECTS, FiredBy.SIDECAR)
    cancel = message_on("s.stop", 9, Nats_Scheduler="s.4", Nats_Schedule_Next="purge")
    messages = [at(HOUR, 1), at(-HOUR, 2), schedule("@every 1m", 3, "s.3"), schedule("@daily", 4, "s.4"), cancel]
    stored.take(messages, START)
    counts = stored.view.counts(START).finish()
    assert (counts.total, counts.states, counts.kinds) == (
        4,
        {State.WAITING: 2, State.OVERDUE: 1, State.CANCELLED: 1},
        {ScheduleKind.AT: 2, ScheduleKind.EVERY: 1, ScheduleKind.CRON: 1},
    )


def test_one_schedule_is_found_by_its_subject() -> None:
    desk = Desk(at(HOUR, 1), schedule("@often", 2, "s.wrong"), message_on("s.near", 3, **{"Nats-Schedul": "@daily"}))
    view = desk.engine.view()
    found = view.schedule("s.1", desk.now)
    assert found is not None
    assert (found.sequence, found.stored_at, found.next_fire, found.state, found.fired_by, found.kind, found.ends) == (
        *(1, START, START + HOUR, State.WAITING),
        *(FiredBy.SIDECAR, ScheduleKind.AT, None),
    )
    assert view.schedule("s.wrong", desk.now) is None
    assert view.schedule("s.none", desk.now) is None
    assert view.rejection("s.1") is None
    rejected = view.rejection("s.wrong")
    assert rejected is not None
    assert (rejected.sequence, rejected.pattern, rejected.target, rejected.rejection.code) == (
        2,
        "@often",
        TARGET,
        10189,
    )
    assert view.rejected_page(ALL, 9, "").finish().messages == [rejected]
    assert [noted.subject for noted in view.misnamed_page(ALL, 9, "").finish().messages] == ["s.near"]


def test_the_dialect_of_a_rejected_schedule_is_the_one_that_it_was_written_in() -> None:
    portable = {"X-Nats-Schedule": "@often", "X-Nats-Schedule-Target": "t.x"}
    rejected = Desk(message_on("s.wrong", 1, **portable)).engine.view().rejection("s.wrong")
    assert rejected is not None
    assert (rejected.dialect, rejected.pattern, rejected.target) == (PORTABLE, "@often", "t.x")


def test_a_running_engine_shows_what_is_in_progress_fails_or_is_done() -> None:
    desk = Desk(at(5 * SECOND, 1, SCHEDULE))
    view = desk.engine.view()
    desk.at(4)
    desk.found(at(5 * SECOND, 1, SCHEDULE))
    before = view.schedule(SCHEDULE, desk.now)
    desk.at(5)
    in_flight = view.schedule(SCHEDULE, desk.now)
    fire = desk.fire
    desk.concluded(fire, DENIED)
    refused = view.schedule(SCHEDULE, desk.now)
    assert before is not None
    assert in_flight is not None
    assert refused is not None
    assert (before.state, in_flight.state, refused.state) == (State.WAITING, State.OVERDUE, State.FAILING)
    assert refused.failing is not None
    assert refused.failing.code == 403
    desk.step(MessagesRead([stored_fire(fire, 2, desk.now)]))
    done = view.schedule(SCHEDULE, desk.now)
    assert done is not None
    assert (done.state, done.next_fire, desk.purges) == (State.FIRED, None, [(SCHEDULE, 1)])


def test_a_repeating_schedule_that_is_overdue_shows_its_next_regular_fire() -> None:
    stored = StoredSchedules(StreamRules("S", ("s.>", "t.>")), DIALECTS, FiredBy.SERVER)
    stored.take([schedule("@every 1h", 1, "s.1"), schedule("0 0 0 * * *", 2, "s.2")], START)
    page = stored.view.page(START + 3 * DAY + 1).finish()
    assert [(one.subject, one.next_fire, one.fired_by) for one in page.schedules] == [
        ("s.1", START + 3 * DAY + HOUR, FiredBy.SERVER),
        ("s.2", START + 4 * DAY, FiredBy.SERVER),
    ]


@pytest.mark.parametrize(
    "text", ["", "!", "e30=", "WzEsMl0=", "W3RydWUsInMiXQ==", "WzFd", "bnVsbA==", "MQ==", "AAAA", "W" * 40, "ä"]
)
def test_a_text_that_is_no_cursor_of_ours_is_none(text: str) -> None:
    assert read_cursor(text) is None


def test_a_cursor_is_the_same_after_it_was_sent_as_text() -> None:
    for cursor in (Cursor(1 << 100, "s.ä"), Cursor(-5, "s.\udc80 \n"), Cursor(START, "")):
        assert read_cursor(cursor.text) == cursor
        assert cursor.text.isascii()


def many(count: int, pattern: str) -> Sequence[StoredMessage]:
    return [
        schedule(pattern.format(number % 60, number // 60 % 24), number, f"s.{number}") for number in range(1, count)
    ]


@pytest.mark.parametrize("pattern", ["@every 1h", "0 {0} {1} * * *"])
def test_a_unit_looks_at_a_bounded_number_of_schedules(pattern: str) -> None:
    """The fires that have to be searched are counted too: after an outage every schedule is overdue."""
    count, later = 40 * ROW_LENGTH, START + 3 * DAY
    stored = StoredSchedules(StreamRules("S", ("s.>", "t.>")), DIALECTS, FiredBy.SIDECAR)
    stored.take(many(count, pattern), START)
    units = 1
    page = stored.view.page(later, limit=100)
    while page.advance():
        units += 1
    assert len(page.result.schedules) == 100
    searched = count // SEARCHED_PER_UNIT if "{" in pattern else 0
    assert units >= 40 + searched


@pytest.mark.slow
def test_an_engine_that_steps_between_two_slices_hides_nothing() -> None:
    """Schedules fire, end, begin and are replaced while a page is found: all others are on it, once."""
    random, count = Random(5), 20 * ROW_LENGTH
    desk = Desk(*(at(HOUR + number * SECOND, number) for number in range(1, count)))
    staying = {f"s.{number}" for number in range(1, count) if number % 5}
    page, counts, sequence = desk.engine.view().page(desk.now, limit=None), desk.engine.view().counts(desk.now), count
    while page.advance() | counts.advance():
        messages = []
        for _ in range(50):
            sequence += 3
            messages.append(plain(f"s.{random.randrange(0, count, 5)}", sequence))
            messages.append(at(DAY, sequence + 1, f"s.new.{sequence}"))
            messages.append(at(DAY, sequence + 2, f"s.{random.randrange(0, count, 5)}"))
        desk.step(MessagesRead(messages))
    found = [subject for subject in subjects(page.result) if subject in staying]
    assert (len(found), set(found)) == (len(staying), staying)
    assert len(staying) <= counts.result.total <= len(staying) + sequence


def test_a_schedule_that_ends_while_its_page_is_found_is_not_on_it() -> None:
    count = 2 * ROW_LENGTH
    desk = Desk(*(at(HOUR + number * SECOND, number) for number in range(1, count)))
    page = desk.engine.view().page(desk.now, limit=2)
    assert page.advance()
    desk.read(plain("s.1", count))
    assert subjects(page.finish()) == ["s.2"]


def test_a_view_changes_nothing_that_the_engine_does() -> None:
    """The same inputs give the same actions, whether somebody looks between them or not."""

    def actions(*, is_watched: bool) -> list[str]:
        desk = Desk(*(at(number * SECOND, number) for number in range(1, 40)))
        done = []
        for second in range(1, 45):
            if is_watched:
                view = desk.engine.view()
                view.page(desk.now, limit=7).finish()
                view.counts(desk.now).finish()
                view.schedule("s.9", desk.now)
            desk.at(second)
            done.append(repr(desk.actions))
        return done

    assert actions(is_watched=True) == actions(is_watched=False)


def test_stored_messages_alone_say_the_same_as_the_engine_that_fires() -> None:
    messages = [at(HOUR, 1), schedule("@every 1m", 2, "s.2"), schedule("@often", 3, "s.3"), at(2 * HOUR, 4)]
    desk = Desk(*messages)
    desk.step(CaughtUp())
    stored = StoredSchedules(StreamRules("S", ("s.>", "t.>")), DIALECTS, FiredBy.SIDECAR)
    stored.take(messages, START)
    assert stored.view.page(START).finish() == desk.engine.view().page(START).finish()
    assert stored.rejected == desk.engine.inactive.rejected


def test_what_other_holders_say_of_their_schedules_is_listed_and_counted() -> None:
    desk = Desk(at(HOUR, 1), at(2 * HOUR, 2), at(3 * HOUR, 3))
    why = Failing(10054, "message size exceeds maximum allowed", START)
    view, failing = desk.engine.view(), {2: why, 9: why}
    page = view.page(desk.now, Query(states=frozenset({State.FAILING})), failing=failing).finish()
    assert [(one.subject, one.state, one.failing) for one in page.schedules] == [("s.2", State.FAILING, why)]
    assert view.counts(desk.now, failing=failing).finish().states == {State.WAITING: 2, State.FAILING: 1}
    assert view.counts(desk.now).finish().states == {State.WAITING: 3}


def test_what_fails_and_ends_before_its_next_fire_is_shown_as_ending() -> None:
    desk = Desk(at(HOUR, 1), max_age=HOUR // 2)
    failing = {1: Failing(10054, "message size exceeds maximum allowed", START)}
    (listed,) = desk.engine.view().page(desk.now, failing=failing).finish().schedules
    assert (listed.state, listed.failing) == (State.EXPIRING, failing[1])
