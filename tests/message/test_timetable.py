"""A timetable answers for one schedule what its pattern answers for all that have it."""

from hashlib import blake2b
from itertools import islice, product

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.jitter import JitteredTimetable, delay_of, stored_timetable
from nats_scheduler.message.policies import NO_POLICIES, Policies
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.timetable import Timetable, first_fire_of, never_fires
from nats_scheduler.schedule.bounds import Bounded, Bounds
from nats_scheduler.schedule.calendars import Calendar
from nats_scheduler.schedule.days import DayRows, Days
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, SECOND, days_from_civil
from nats_scheduler.schedule.patterns import Pattern
from nats_scheduler.testing.manual_clock import START
from tests.harness.seeds import draws
from tests.schedule.reading import read

STORED_AT = 1_768_564_800 * SECOND + 300_000_000
"""2026-01-16T12:00:00.3Z."""

NOON = STORED_AT - 300_000_000

MARCH_2096 = 3_981_830_400 * SECOND
"""2096-03-06T00:00:00Z: the next leap year is 2104, since 2100 is none."""


def timetable(text: str, stored_at: int = STORED_AT) -> Timetable:
    return Definition(read(text), Terms(ADR51, "t", None, "", False)).timetable(stored_at)


def seconds(fires: list[int]) -> list[float]:
    """Return fire times in seconds after noon."""
    return [(fire - NOON) / SECOND for fire in fires]


def test_the_fire_times_of_a_schedule_begin_with_its_first() -> None:
    for text, first_three in {
        "@at 2026-01-16T12:00:10Z": [10],
        "@every 7s": [7, 14, 21],
        "*/5 * * * * *": [5, 10, 15],
    }.items():
        asked = timetable(text)
        assert seconds(asked.fires(3)) == first_three
        assert asked.fires(0) == []
        assert asked.repeats is (len(first_three) > 1)
        for after in (NOON + 7 * SECOND, NOON + 10 * SECOND, None):
            later = [fire for fire in asked.fires(9) if after is None or fire > after]
            assert list(islice(asked.each(after), 3)) == later[:3], (text, after)


def test_a_schedule_that_never_fires_has_no_fire_times() -> None:
    never = timetable("0 0 0 29 2 *", MARCH_2096)
    assert never_fires(never.pattern, never.stored_at)
    assert (never.first_fire(), never.next_fire(MARCH_2096), never.fires(3)) == (None, None, [])
    past = timetable("@at 2020-01-01T00:00:00Z")
    assert not never_fires(past.pattern, past.stored_at), "it fires at once"


def test_fire_times_are_counted_and_found_between_two_instants() -> None:
    asked = timetable("@every 7s")
    assert first_fire_of(asked.pattern, STORED_AT) == NOON + 7 * SECOND
    for after, until, count, latest in (
        (STORED_AT, 6, 0, None),
        (STORED_AT, 7, 1, 7),
        (7, 7, 0, None),
        (7, 21, 2, 21),
        (6, 22, 3, 21),
        (STORED_AT, 700, 100, 700),
    ):
        first, last = (moment if moment > NOON else NOON + moment * SECOND for moment in (after, until))
        assert asked.count(first, last) == count
        assert asked.latest_passed(first, last) == (None if latest is None else NOON + latest * SECOND)
        assert asked.latest_due(first, last) == asked.latest_passed(first, last)


def test_an_edit_of_a_calendar_takes_no_possible_fire_away() -> None:
    day = days_from_civil(2026, 1, 17)
    closed = Bounded(read("@every 6h"), Bounds(calendars=(Calendar("closed", DayRows([Days(day, day)])),)))
    asked, plain = (Timetable(pattern, STORED_AT) for pattern in (closed, read("@every 6h")))
    on_that_day = NOON + 18 * HOUR
    assert (asked.is_left(on_that_day), asked.is_fire(on_that_day), asked.is_fire(on_that_day + 1)) == (
        False,
        True,
        False,
    )
    assert (plain.is_left(on_that_day), plain.is_fire(on_that_day)) == (True, True)
    assert asked.next_possible(NOON + 12 * HOUR) == on_that_day
    assert asked.next_fire(NOON + 12 * HOUR) == NOON + 36 * HOUR
    assert list(asked.excepted_fires(NOON + HOUR, NOON + 40 * HOUR)) == [(NOON + 12 * HOUR, NOON + 30 * HOUR)]
    assert list(plain.excepted_fires(NOON + HOUR, NOON + 40 * HOUR)) == []
    assert (asked.ends_by_itself, plain.ends_by_itself) == (True, False)
    assert timetable("@at 2026-01-16T12:00:10Z").ends_by_itself


IRREGULAR = [
    "@every 1s",
    "@every 1.4s",
    "@every 90m",
    "*/5 * * * * *",
    "0 0 0,1 1,2 * *",
    "0 0 12 29-31 * *",
    "0 7 2 * * 0",
]


@settings(max_examples=draws(60))
@given(st.sampled_from(IRREGULAR), st.integers(1, 12), st.integers(0, 30), st.integers(0, 30), st.integers(-1, 1))
def test_the_last_fires_are_found_however_irregular_they_are(
    text: str, number: int, first: int, last: int, shift: int
) -> None:
    asked = timetable(text)
    fires = asked.fires(31)
    after, until = max(fires[first] + shift, STORED_AT), fires[last] + shift
    between = [fire for fire in fires if after < fire <= until]
    expected = between[-number] if len(between) > number else None
    assert asked.latest_but(number, after, until) == expected


# -- jitter: when each fire is sent, computed from its identity alone, and always before the next fire time --------

SUBJECT = "orders.one"
JITTERED = [
    read("@every 1s"),
    read("@every 7s"),
    read("@every 1h"),
    read("0 */5 * * * *"),
    read("0 30 2 * * *", "Europe/Berlin"),
    Bounded(read("@every 90m"), Bounds(limit=30, excepted=DayRows([Days(20_455, 20_455)]))),
]


def jittered(of: Pattern, jitter: int, sequence: int = 7) -> JitteredTimetable:
    return JitteredTimetable(of, START, SUBJECT, sequence, jitter)


def test_a_delay_is_the_same_for_ever() -> None:
    """Instances of two versions share a stream during an upgrade: these numbers may never change."""
    found = [delay_of("orders.one", 7, START, HOUR), delay_of("odd.\udcff", 1, START + 1, HOUR)]
    assert found == [1_512_429_552_261, 1_657_223_679_067]
    hashed = blake2b(b"nats-scheduler:7:1767225600000000000:orders.one", digest_size=8).hexdigest()
    assert found[0] == int(hashed, 16) * HOUR // 2**64, "as the reference page says"


def test_each_fire_is_sent_between_its_fire_time_and_the_next() -> None:
    for of, jitter in product(JITTERED, (1, 30 * MILLISECOND, 10 * SECOND, DAY)):
        table = jittered(of, jitter)
        fires = table.fires(31)
        sent = [table.send_time_of(fire) for fire in fires]
        for fire, at, following in zip(fires, sent, fires[1:], strict=False):
            assert fire <= at < following, of.text
            assert at - fire < jitter
        assert sent == sorted(sent)
        assert 0 <= sent[-1] - fires[-1] < jitter, "the last one of those that are bounded has the whole jitter"


def test_what_is_sent_next_and_what_is_due_are_those_of_a_list() -> None:
    for of in JITTERED:
        table = jittered(of, HOUR)
        fires = table.fires(20)
        sent = [table.send_time_of(fire) for fire in fires]
        for at in sorted({*(instant + off for instant in (*fires[:-1], *sent[:-1]) for off in (-1, 0, 1)), START}):
            assert table.next_to_send(at) == next(fire for fire, s in zip(fires, sent, strict=True) if s > at), of.text
            due = [fire for fire, s in zip(fires, sent, strict=True) if s <= at]
            assert table.latest_due(START, at) == (due[-1] if due else None), of.text


def test_the_last_fire_and_one_that_somebody_made_up_have_a_send_time() -> None:
    table = jittered(Bounded(read("@every 1h"), Bounds(limit=2)), HOUR)
    last = table.send_time_of(START + 2 * HOUR)
    assert (table.next_to_send(last - 1), table.next_to_send(last)) == (START + 2 * HOUR, None)
    for of in (*JITTERED, read("@at 2026-05-01T00:00:00Z")):
        for made_up in (-(10**39), 0, START - 1):
            assert 0 <= jittered(of, HOUR).send_time_of(made_up) - made_up < HOUR, of.text


def test_a_schedule_without_a_jitter_has_a_plain_jittered() -> None:
    every = read("@every 1h")
    plain = stored_timetable(every, NO_POLICIES, START, SUBJECT, 7)
    assert (type(plain), plain.jitters, plain.delayed_to(START + HOUR)) == (Timetable, False, None)
    assert plain.next_to_send(START + HOUR) == START + 2 * HOUR
    found = stored_timetable(every, Policies(jitter=HOUR), START, SUBJECT, 7)
    sent = jittered(every, HOUR).send_time_of(START + HOUR)
    assert (found.send_time_of(START + HOUR), found.delayed_to(START + HOUR)) == (sent, sent)
