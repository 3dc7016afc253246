"""Jitter: when each fire is sent, computed from its identity alone, and always before the next fire time."""

from hashlib import blake2b

import pytest

from nats_scheduler.message.fires import FireReader
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.policies import NO_POLICIES, Policies
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.timetable import JitteredTimetable, Timetable, delay_of, stored_timetable
from nats_scheduler.schedule.bounds import Bounded, Bounds
from nats_scheduler.schedule.calendars import Days
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.patterns import At, Cron, Every, Pattern, parse_pattern
from nats_scheduler.testing.clock import START
from tests.harness.blocks import block_of

SUBJECT = "orders.one"


def pattern(text: str, zone: str | None = None) -> Pattern:
    parsed = parse_pattern(text, zone)
    assert isinstance(parsed, At | Every | Cron)
    return parsed


PATTERNS = [
    pattern("@every 1s"),
    pattern("@every 7s"),
    pattern("@every 1h"),
    pattern("0 */5 * * * *"),
    pattern("0 30 2 * * *", "Europe/Berlin"),
    Bounded(pattern("@every 90m"), Bounds(limit=30, excepted=(Days(20_455, 20_455),))),
]


def timetable(of: Pattern, jitter: int, sequence: int = 7) -> JitteredTimetable:
    return JitteredTimetable(of, START, SUBJECT, sequence, jitter)


def test_a_delay_is_the_same_for_ever() -> None:
    """Instances of two versions share a stream during an upgrade: these numbers may never change."""
    found = [delay_of("orders.one", 7, START, HOUR), delay_of("odd.\udcff", 1, START + 1, HOUR)]
    assert found == [1_512_429_552_261, 1_657_223_679_067]
    hashed = blake2b(b"nats-scheduler:7:1767225600000000000:orders.one", digest_size=8).hexdigest()
    assert found[0] == int(hashed, 16) * HOUR // 2**64, "as the reference page says"


@pytest.mark.parametrize("of", PATTERNS, ids=lambda one: one.text)
@pytest.mark.parametrize("jitter", [1, 30 * MILLISECOND, 10 * SECOND, DAY])
def test_each_fire_is_sent_between_its_fire_time_and_the_next(of: Pattern, jitter: int) -> None:
    table = timetable(of, jitter)
    fires = table.fires(31)
    sent = [table.send_time_of(fire) for fire in fires]
    for fire, at, following in zip(fires, sent, fires[1:], strict=False):
        assert fire <= at < following
        assert at - fire < jitter
    assert sent == sorted(sent)
    assert 0 <= sent[-1] - fires[-1] < jitter, "the last one of those that are bounded has the whole jitter"


def test_delays_are_spread_evenly() -> None:
    table = timetable(pattern("@every 1m"), HOUR)
    parts = [0] * 10
    for fire in table.fires(5_000):
        parts[(table.send_time_of(fire) - fire) * 10 // MINUTE] += 1
    assert min(parts) > 400, parts
    schedules = [delay_of(f"s.{number}", number, START, 10) for number in range(5_000)]
    assert min(schedules.count(part) for part in range(10)) > 400


def test_each_version_and_each_schedule_has_delays_of_its_own() -> None:
    every = pattern("@every 1h")
    first = timetable(every, HOUR, 7).first_fire()
    assert first is not None
    tables = [
        timetable(every, HOUR, 7),
        timetable(every, HOUR, 8),
        JitteredTimetable(every, START, "orders.two", 7, HOUR),
    ]
    assert len({table.send_time_of(first) for table in tables}) == 3


@pytest.mark.parametrize("of", PATTERNS, ids=lambda one: one.text)
def test_what_is_to_be_sent_next_and_what_is_due_are_those_of_a_list(of: Pattern) -> None:
    table = timetable(of, HOUR)
    fires = table.fires(20)
    sent = [table.send_time_of(fire) for fire in fires]
    for at in sorted({*(instant + off for instant in (*fires[:-1], *sent[:-1]) for off in (-1, 0, 1)), START}):
        assert table.next_to_send(at) == next(fire for fire, s in zip(fires, sent, strict=True) if s > at)
        due = [fire for fire, s in zip(fires, sent, strict=True) if s <= at]
        assert table.latest_due(START, at) == (due[-1] if due else None)


def test_nothing_is_to_be_sent_after_the_last_fire() -> None:
    table = timetable(Bounded(pattern("@every 1h"), Bounds(limit=2)), HOUR)
    last = table.send_time_of(START + 2 * HOUR)
    assert (table.next_to_send(last - 1), table.next_to_send(last)) == (START + 2 * HOUR, None)


@pytest.mark.parametrize("instant", [START + HOUR, START - HOUR])
def test_an_at_is_delayed_by_up_to_the_whole_jitter_also_in_the_past(instant: int) -> None:
    at = At(None, instant)
    assert timetable(at, HOUR).send_time_of(instant) - instant == delay_of(SUBJECT, 7, instant, HOUR)


@pytest.mark.parametrize("of", [*PATTERNS, pattern("@at 2026-05-01T00:00:00Z")], ids=lambda one: one.text)
@pytest.mark.parametrize("made_up", [-(10**39), -1, 0, START - 1])
def test_a_time_that_somebody_made_up_has_a_send_time_too(of: Pattern, made_up: int) -> None:
    assert 0 <= timetable(of, HOUR).send_time_of(made_up) - made_up < HOUR


@pytest.mark.parametrize("x", ["", "X-"])
def test_the_lateness_of_a_fire_that_is_watched_counts_from_its_send_time(x: str) -> None:
    reader = FireReader({"name": "S", "subjects": ["s.>", "t.>"]})
    headers = [(f"{x}Nats-Schedule", "@every 1h"), (f"{x}Nats-Schedule-Target", "t.out")]
    block = block_of(*headers, (f"{x}Nats-Schedule-X-Jitter", "30m"))
    assert reader.read(StoredMessage("s.one", 7, START, block, b"")) is None
    fire_time = START + HOUR
    sent = fire_time + delay_of("s.one", 7, fire_time, HOUR // 2)
    identity = fire_identity("s.one", 7, fire_time)
    generated = block_of((f"{x}Nats-Scheduler", "s.one"), ("Nats-Msg-Id", identity))
    fire = reader.read(StoredMessage("t.out", 8, sent + 5, generated, b""))
    assert fire is not None
    assert (fire.due, fire.send_time, fire.lateness) == (fire_time, sent, 5)


def test_a_schedule_without_a_jitter_has_a_plain_timetable() -> None:
    every = pattern("@every 1h")
    plain = stored_timetable(every, NO_POLICIES, START, SUBJECT, 7)
    assert (type(plain), plain.jitters) == (Timetable, False)
    assert plain.next_to_send(START + HOUR) == START + 2 * HOUR
    found = stored_timetable(every, Policies(jitter=HOUR), START, SUBJECT, 7)
    assert found.send_time_of(START + HOUR) == timetable(every, HOUR).send_time_of(START + HOUR)
