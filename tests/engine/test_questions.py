"""Pages, counts and timelines have what each schedule says when it is asked for alone, however rows are read for them.

It tests `engine/views/rows.py` too: with portions so small that each question needs many.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import pytest

from nats_scheduler.engine.holding.table import Table, in_memory
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views import rows
from nats_scheduler.engine.views import view as view_module
from nats_scheduler.engine.views.cursors import NO_FIRE, Cursor
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.seen import Question, done
from nats_scheduler.engine.views.timeline import Timeline
from nats_scheduler.engine.views.view import Counts, EngineView, FiredBy, ListedSchedule, Order, Query
from nats_scheduler.message.ages import Removal
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import encoded
from nats_scheduler.message.rejection import Failing
from nats_scheduler.message.schedule_findings import End, KnownSchedule
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, schedule
from tests.engine.paused_builders import paused
from tests.harness.seeds import generator, seeds

Answer = TypeVar("Answer")
Ask = Callable[[Question[Any]], Any]

SMALL = {
    rows: {"BESIDE_THE_ENGINE": 12, "IN_A_TRANSACTION": 16, "SLOW_ROWS": 7, "READ_AT_ONCE": 5, "LEFT_OUT_AT_ONCE": 10},
    view_module: {"MORE_BY_WAKE": 4, "MAX_BY_WAKE": 24, "MAX_UNSORTED": 3},
}
"""Portions of some rows."""

TTL = Removal(START + 90 * SECOND, is_by_age=False)
SERVER = Capabilities(api_level=2)
TOKENS = ["a", "b", "ä", "\udcff"]
TARGETS = ["t.a", "t.b", "t.a.deep"]
PATTERNS = ["@every 1h", "@every 90s", "@every 100h", "0 30 * * * *", "0 0 5 * * mon"]


def drawn(random: Random, count: int) -> list[StoredMessage]:
    """Make schedules of all kinds, of which some expire and some are paused."""
    subjects = {".".join(["s", *random.choices(TOKENS, k=random.randrange(1, 6))]) for _ in range(2 * count)}
    messages = []
    for number, subject in enumerate(sorted(subjects, key=lambda _one: random.random())[:count], 1):
        once = f"@at {format_rfc3339(START + random.choice((1, 30, 150, 900)) * MINUTE)}"
        more: Any = {"Nats_Schedule_Target": random.choice(TARGETS)}
        more |= random.choice([{}, {}, {"Nats_TTL": "40m"}, {"Nats_TTL": "never"}])
        more |= random.choice([{}, {"Nats_Schedule_X_Owner": "shop"}, {"Nats_Schedule_X_Note": "shop"}])
        make = paused if random.random() < 0.1 else schedule
        messages.append(make(random.choice([once, *PATTERNS]), number, subject, **more))
    return messages


WANTED: dict[str, list[Any]] = {
    "subject": ["s.>", "s.a.*", "s.*.b.>", "s.a.>", "s.ä.*", "s.b.b"],
    "target": ["t.*", "t.a.>", "t.b"],
    "states": [frozenset({one}) for one in (State.WAITING, State.OVERDUE, State.EXPIRING, State.PAUSED, State.FAILING)],
    "kinds": [frozenset({PatternKind.AT}), frozenset({PatternKind.CRON, PatternKind.EVERY})],
    "contains": ["a.b", "A.b", "ä", "s", "%"],
    "target_contains": ["deep"],
    "owner": ["shop", "sho"],
}
"""What queries want, each alone and some together."""


def queries(random: Random) -> list[Query]:
    each = [Query(**{name: value}) for name, values in WANTED.items() for value in values]
    some = [random.sample(list(WANTED), 2) for _ in range(8)]
    return [Query(), *each, *(Query(**{name: random.choice(WANTED[name]) for name in names}) for names in some)]


def is_wanted(one: ListedSchedule, query: Query) -> bool:
    return (
        (query.subject is None or is_covered(one.subject, (query.subject,)))
        and (query.target is None or is_covered(one.terms.target, (query.target,)))
        and (query.states is None or one.state in query.states)
        and (query.kinds is None or one.kind in query.kinds)
        and (query.contains or "") in one.subject
        and (query.target_contains or "") in one.terms.target
        and (query.owner is None or one.terms.policies.owner == query.owner)
    )


def place(order: Order, one: ListedSchedule) -> tuple[object, bytes]:
    fire = NO_FIRE if one.next_fire is None else one.next_fire
    first = {Order.NEXT_FIRE: fire, Order.TARGET: one.terms.target, Order.SUBJECT: ""}[order]
    return first, encoded(one.subject)


def in_a_transaction(question: Question[Answer]) -> Answer:
    """Answer a question as a second connection does, which only reads."""
    answers = []
    for part in question.parts:
        seen = part.see()
        seen.rows.through(part.table.place[0])
        answers.append(done(part.of(seen)))
    return question.merge(answers)


def pages(ask: Ask, view: EngineView, now: int, query: Query, limit: int | None, order: Order) -> list[ListedSchedule]:
    """Return what all pages list, one after the other."""
    found: list[ListedSchedule] = []
    after: Cursor | None = None
    while True:
        page = ask(view.page(now, query, limit=limit, after=after, order=order))
        assert limit is None or len(page.schedules) == limit or page.following is None
        found += page.schedules
        if (after := page.following) is None:
            return found
        assert after == order.cursor_of(page.schedules[-1])


def by_minute(known: list[ListedSchedule], timeline: Timeline) -> list[int]:
    """Count the fires of schedules in the minutes of a timeline, one by one."""
    counts = [0] * len(timeline.counts)
    for one in known:
        fire, end = one.next_fire, min(timeline.end, timeline.end if one.ends is None else one.ends)
        while fire is not None and fire < end:
            if fire > timeline.now:
                counts[(fire - timeline.start) // MINUTE] += 1
            fire = one.fire_after(fire)
    return counts


@pytest.mark.parametrize("others", [0, 300], ids=["alone", "among many rows of others"])
@pytest.mark.parametrize("ask", [Question.answer, in_a_transaction], ids=["beside", "in a transaction"])
def test_a_question_about_many_is_answered_as_one_about_each(
    others: int, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, names in SMALL.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)
    for seed in seeds(1):
        random, connection = generator(f"questions {seed}"), in_memory()
        Desk(*(schedule("@every 1h", number, f"s.a.{number}") for number in range(1, others)), table=Table(connection))
        messages = drawn(random, 50)
        desk = Desk(*messages, table=Table(connection, 1), max_age=50 * HOUR)
        desk.at(61)
        for subject, sequence in desk.reads[:9]:
            desk.found(messages[sequence - 1], of=schedule("@daily", sequence, subject))
            desk.concluded(desk.fire, Refused(503, 10077, "full"))
        for now in (desk.now, START + 3 * HOUR):
            view = desk.engine.view()
            known = [one for message in messages if (one := view.schedule(message.subject, now)) is not None]
            assert {State.WAITING, State.EXPIRING, State.PAUSED} <= {one.state for one in known}
            for minutes in random.randrange(2, 60), 100:
                timeline = Timeline(now, minutes, soonest=5)
                ask(view.add_to(timeline, "S"))
                done(timeline.finish())
                assert timeline.counts == by_minute(known, timeline)
            for query in queries(random):
                wanted = [one for one in known if is_wanted(one, query)]
                expected = Counts()
                for one in wanted:
                    expected.add(one.state, one.kind)
                assert ask(view.counts(now, query)) == expected, query
                for order in Order.NEXT_FIRE, random.choice((Order.SUBJECT, Order.TARGET)):
                    limit = random.choice((3, 9, 30, None))
                    expected_pages = sorted(wanted, key=lambda one: place(order, one))
                    assert pages(ask, view, now, query, limit, order) == expected_pages, (query, order, limit)


def test_what_is_known_of_a_schedule_that_is_listed_is_what_findings_are_made_of() -> None:
    end, three = Removal(START + 2 * HOUR, is_by_age=True), START + 3 * HOUR
    by_calendar = schedule("@every 1h", 6, "s.6", Nats_Schedule_X_Except="calendar:none")
    rows = [
        (schedule("@every 1h", 1, "s.1"), State.WAITING, End(end, None, cuts_off=True), START + HOUR),
        (schedule(f"@at {format_rfc3339(START + HOUR)}", 2, "s.2"), State.WAITING, End(end, None, False), START + HOUR),
        (schedule(f"@at {format_rfc3339(three)}", 3, "s.3"), State.EXPIRING, End(end, three, cuts_off=False), None),
        (schedule("@every 1h", 4, "s.4", Nats_TTL="90s"), State.EXPIRING, End(TTL, START + HOUR, cuts_off=False), None),
        (paused("@every 1h", 5, "s.5"), State.PAUSED, None, None),
        (by_calendar, State.NO_CALENDAR, End(end, None, cuts_off=True), None),
    ]
    rules = StreamRules("S", ("s.>", "t.>"), max_age=2 * HOUR, allow_msg_ttl=True)
    for fired_by, by_server in ((FiredBy.SIDECAR, False), (FiredBy.SERVER, True), (FiredBy.NONE, None)):
        stored = StoredSchedules(rules, DIALECTS, fired_by)
        stored.take([message for message, *_expected in rows], START)
        for message, state, ends, next_fire in rows if fired_by is FiredBy.SIDECAR else rows[:3]:
            one = stored.view.schedule(message.subject, START)
            assert one is not None
            known = one.known(rules, SERVER, START + SECOND)
            expected = KnownSchedule(one.terms, known.timetable, rules, SERVER, START + SECOND, True, by_server, ends)
            is_paused, waits = state is State.PAUSED, state is State.NO_CALENDAR
            expected = replace(expected, next_fire=next_fire, is_paused=is_paused, lacks_calendar=waits)
            assert (known, one.state) == (expected, state), message.subject
            assert known.timetable.stored_at == START
            failing = Failing(10077, "full", START)
            known = replace(one, failing=failing, unfired_since=START).known(rules, None, START)
            assert (known.refusal, known.unfired_since) == (failing, START)
