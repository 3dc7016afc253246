"""Views of an engine: what it holds can be asked for at any time, and asking changes nothing."""

from random import Random

import pytest

from nats_scheduler.engine.inputs import MessagesRead, Refused
from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views import timeline as module
from nats_scheduler.engine.views.cursors import LOOKED_AT_PER_UNIT, MAX_UNSORTED, Cursor, by_subject, read_cursor
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.rows import BESIDE_THE_ENGINE, READ_AT_ONCE
from nats_scheduler.engine.views.seen import EFFORT_PER_UNIT, SEARCHED, done
from nats_scheduler.engine.views.survey import MAX_OF_A_KIND, MAX_TARGETS, Survey, survey
from nats_scheduler.engine.views.timeline import Timeline
from nats_scheduler.engine.views.view import ALL, FiredBy, ListedSchedule
from nats_scheduler.message.dialect import DIALECTS, PORTABLE
from nats_scheduler.message.rejection import Failing
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import DAY, HOUR, MINUTE, SECOND
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, message_on, plain, schedule, stored_fire
from tests.engine.test_questions import by_minute
from tests.harness.seeds import generator, seeds


def at(after: int, sequence: int, subject: str = "", target: str = TARGET) -> StoredMessage:
    """Make a schedule that fires once, some time (ns) after the start."""
    pattern = f"@at {format_rfc3339(START + after)}"
    return schedule(pattern, sequence, subject or f"s.{sequence}", Nats_Schedule_Target=target)


def stored_of(*messages: StoredMessage, max_age: int = 0) -> StoredSchedules:
    stored = StoredSchedules(StreamRules("S", ("s.>", "t.>"), max_age=max_age), DIALECTS, FiredBy.SIDECAR)
    stored.take(messages, START)
    return stored


def test_one_schedule_is_found_by_its_subject() -> None:
    portable = {"X-Nats-Schedule": "@often", "X-Nats-Schedule-Target": "t.x"}
    wrong, near = schedule("@often", 2, "s.wrong"), message_on("s.near", 3, **{"Nats-Schedul": "@daily"})
    desk = Desk(at(HOUR, 1), wrong, near, message_on("s.x", 4, **portable))
    view = desk.engine.view()
    found = view.schedule("s.1", desk.now)
    assert found is not None
    assert (found.sequence, found.stored_at, found.next_fire, found.ends) == (1, START, START + HOUR, None)
    assert (found.state, found.fired_by, found.kind) == (State.WAITING, FiredBy.SIDECAR, PatternKind.AT)
    assert [view.schedule(subject, desk.now) for subject in ("s.wrong", "s.none")] == [None, None]
    assert view.rejection("s.1") is None
    rejected, other = view.rejection("s.wrong"), view.rejection("s.x")
    assert rejected is not None
    assert other is not None
    assert (rejected.sequence, rejected.pattern, rejected.target) == (2, "@often", TARGET)
    assert rejected.rejection.code == 10189
    assert (other.dialect, other.pattern, other.target) == (PORTABLE, "@often", "t.x")
    assert done(view.rejected_page(ALL, 9, "")).messages == [rejected, other]
    assert [noted.subject for noted in done(view.misnamed_page(ALL, 9, "")).messages] == ["s.near"]


def test_a_running_engine_shows_what_is_in_progress_fails_or_is_done() -> None:
    message = at(5 * SECOND, 1, SCHEDULE)
    desk = Desk(message)

    def shown() -> ListedSchedule:
        one = desk.engine.view().schedule(SCHEDULE, desk.now)
        assert one is not None
        return one

    desk.at(4)
    desk.found(message)
    assert shown().state is State.WAITING
    desk.at(5)
    assert shown().state is State.OVERDUE
    fire = desk.fire
    desk.concluded(fire, Refused(403, 403, "no permission"))
    assert shown().state is State.FAILING
    failing = shown().failing
    assert failing is not None
    assert failing.code == 403
    desk.step(MessagesRead([stored_fire(fire, 2, desk.now)]))
    assert (shown().state, shown().next_fire, desk.purges) == (State.FIRED, None, [(SCHEDULE, 1)])


def test_a_schedule_that_is_removed_before_its_next_fire_is_expiring() -> None:
    for max_age, expected in (
        (2 * HOUR, (None, State.EXPIRING)),
        (2 * HOUR + 1, (START + 2 * HOUR, State.WAITING)),
        (HOUR, (None, State.EXPIRING)),
    ):
        one = stored_of(schedule("@every 1h"), max_age=max_age).view.schedule(SCHEDULE, START + 70 * MINUTE)
        assert one is not None
        assert (one.next_fire, one.state) == expected, max_age


def test_a_cursor_is_read_from_its_text_and_from_no_other() -> None:
    for cursor in (Cursor(1 << 100, "s.ä"), Cursor(-5, "s.\udc80 \n"), Cursor(START, "")):
        assert read_cursor(cursor.text) == cursor
        assert cursor.text.isascii()
    for text in ("", "!", "e30=", "WzEsMl0=", "W3RydWUsInMiXQ==", "WzFd", "bnVsbA==", "MQ==", "AAAA", "W" * 40, "ä"):
        assert read_cursor(text) is None, text


def test_a_unit_looks_at_a_bounded_number_of_schedules() -> None:
    """The fires that have to be searched are counted too: after an outage every schedule is overdue."""
    count = 8 * READ_AT_ONCE
    stored = stored_of(*(schedule(f"0 {n % 60} {n // 60 % 24} * * *", n, f"s.{n}") for n in range(1, count)))
    (part,) = stored.view.page(START + 3 * DAY, limit=100).parts
    units = 0

    def count_units() -> None:
        nonlocal units
        units += 1

    assert len(done(part.here(), count_units)) == 101
    assert units >= 8 + count * SEARCHED // EFFORT_PER_UNIT


def test_a_schedule_that_ends_while_its_page_is_found_is_not_on_it() -> None:
    desk = Desk(*(at(HOUR + number * SECOND, number) for number in range(1, 2 * BESIDE_THE_ENGINE)))
    (part,) = desk.engine.view().page(desk.now, limit=2).parts
    work = part.here()
    next(work)
    desk.read(plain("s.1", 4 * BESIDE_THE_ENGINE))
    assert [listed.subject for _place, listed in done(work)] == ["s.2", "s.3"]


def test_a_view_changes_nothing_that_the_engine_does() -> None:
    """The same inputs give the same actions, whether somebody looks between them or not."""

    def actions(*, is_watched: bool) -> list[str]:
        desk = Desk(*(at(number * SECOND, number) for number in range(1, 40)))
        done = []
        for second in range(1, 45):
            if is_watched:
                view = desk.engine.view()
                view.page(desk.now, limit=7).answer()
                view.counts(desk.now).answer()
                view.schedule("s.9", desk.now)
            desk.at(second)
            done.append(repr(desk.actions))
        return done

    assert actions(is_watched=True) == actions(is_watched=False)


class Note(str):
    """A note that is its subject."""

    __slots__ = ()

    @property
    def subject(self) -> str:
        return str(self)


@pytest.mark.parametrize("limit", [7, MAX_UNSORTED])
def test_pages_are_in_the_order_of_the_subjects_and_each_note_is_on_one(limit: int) -> None:
    drawn = generator(limit).sample(range(10_000), 3 * LOOKED_AT_PER_UNIT + 5)
    noted = {(subject := f"s.{number}"): Note(subject) for number in drawn[: 10 * limit + 3]}
    found, after, is_last = list[list[Note]](), "", False
    while not is_last:
        page = done(by_subject([noted], lambda _note: True, limit, after))
        found.append(page.messages)
        after, is_last = page.messages[-1], page.is_last
    assert [one for page in found for one in page] == sorted(noted)
    assert all(len(page) == limit for page in found[:-1])


def surveyed(desk: Desk, *filters: str, failing: dict[int, Failing] | None = None) -> Survey:
    return survey(desk.engine.view(), desk.now, filters, failing or {}).answer()


def test_one_schedule_is_listed_for_each_target_zone_and_filter() -> None:
    cron = schedule("0 0 5 * * *", 4, "s.berlin", Nats_Schedule_Time_Zone="Europe/Berlin")
    desk = Desk(at(HOUR, 1), at(HOUR, 2), at(HOUR, 3, target="s.other"), cron, at(HOUR, 5, "s.deep.x"), at(HOUR, 6))
    found = surveyed(desk, "s.deep.*", "s.none.*").schedules
    assert [one.subject for one in found] == ["s.1", "s.3", "s.berlin", "s.deep.x"]


def test_what_expires_and_what_fails_is_counted_and_some_are_listed() -> None:
    number = MAX_OF_A_KIND + 5
    expiring = [schedule("@at 2026-01-02T00:00:00Z", n, f"s.{n}", Nats_TTL="60s") for n in range(1, number + 1)]
    healthy = [at(HOUR, number + sequence) for sequence in range(1, 31)]
    failing = {number + sequence: Failing(10054, "too large", 1) for sequence in range(1, 13)}
    found = surveyed(Desk(*expiring, *healthy), failing=failing)
    assert found.counts == {State.EXPIRING: number, State.FAILING: 12, State.NO_CALENDAR: 0}
    states = [one.state for one in found.schedules]
    assert states.count(State.EXPIRING) == states.count(State.FAILING) == MAX_OF_A_KIND


def test_it_says_whether_all_targets_are_listed() -> None:
    for count, is_all in ((MAX_TARGETS, True), (MAX_TARGETS + 1, False)):
        found = surveyed(Desk(*(at(HOUR, number, target=f"s.t.{number}") for number in range(1, count + 1))))
        assert (len(found.schedules), found.names_all_targets) == (MAX_TARGETS, is_all)


def at_text(after: int) -> str:
    return f"@at {format_rfc3339(START + after)}"


def stored(*patterns: str) -> StoredSchedules:
    """Hold schedules on `s.1`, `s.2`, … that were stored at the start, one after the other."""
    messages = (schedule(pattern, number, f"s.{number}") for number, pattern in enumerate(patterns, 1))
    return stored_of(*messages)


def counted(*streams: StoredSchedules, now: int = START, minutes: int = 10) -> Timeline:
    timeline = Timeline(now, minutes, 3)
    for number, one in enumerate(streams):
        one.view.add_to(timeline, f"S{number}").answer()
    list(timeline.finish())
    return timeline


def test_the_soonest_of_all_streams_are_named_in_order() -> None:
    timeline = counted(
        stored(at_text(HOUR), at_text(3 * SECOND), at_text(100 * HOUR)), stored(at_text(2 * HOUR), at_text(2 * SECOND))
    )
    assert timeline.soonest == [
        (START + 2 * SECOND, "s.2", "S1"),
        (START + 3 * SECOND, "s.2", "S0"),
        (START + HOUR, "s.1", "S0"),
    ]
    overdue = counted(stored(at_text(-HOUR), at_text(MINUTE)))
    soonest = [subject for _fire, subject, _stream in overdue.soonest]
    assert (sum(overdue.counts), soonest) == (1, ["s.1", "s.2"]), "it is in no minute"


def test_the_counts_are_those_of_every_single_fire() -> None:
    for seed in seeds(2):
        random = Random(seed)
        texts = [f"@every {n}s" for n in (1, 7, 30, 60, 90, 3600)]
        texts += ["0 * * * * *", "*/5 * * * * *", "0 0 * * * *", "30 */7 9-17 * * *", "@daily"]
        texts += [at_text(random.randrange(-HOUR, 3 * HOUR)) for _ in range(20)]
        held = stored(*(random.choice(texts) for _ in range(60)))
        now = START + random.randrange(3 * HOUR)
        timeline = counted(held, now=now, minutes=random.randrange(1, 120))
        known = held.view.page(now, limit=None).answer().schedules
        assert timeline.counts == by_minute(known, timeline), f"seed {seed}"


def test_the_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    held = stored(*(f"{n % 60} {n // 60} * * * *" for n in range(100)), "@every 1s")
    assert counted(held, minutes=60).is_complete
    monkeypatch.setattr(module, "MAX_GRIDS", 50)
    few = counted(held, minutes=60)
    assert not few.is_complete
    assert sum(few.counts) >= 101 - 1, "of each further schedule the next fire is counted"
    monkeypatch.undo()
    monkeypatch.setattr(module, "MAX_STEPS", 10)
    assert not counted(held, minutes=60).is_complete
