"""The number of fires due in each of the next minutes: as if each fire of each schedule was counted by itself."""

from random import Random

import pytest

from nats_scheduler.engine.inputs import Stored
from nats_scheduler.engine.views import figures as module
from nats_scheduler.engine.views.figures import Timeline
from nats_scheduler.engine.views.stored import StoredSchedules
from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import Desk, schedule
from tests.harness.seeds import generator, seeds

RULES = StreamRules("S", ("s.>", "t.>"))


def at(after: int) -> str:
    return f"@at {format_rfc3339(START + after)}"


def stored(*patterns: str, rules: StreamRules = RULES) -> StoredSchedules:
    """Hold schedules on `s.1`, `s.2`, … that were stored at the start, one after the other."""
    found = StoredSchedules(rules, DIALECTS, FiredBy.SIDECAR)
    found.take([schedule(pattern, number, f"s.{number}") for number, pattern in enumerate(patterns, 1)], START)
    return found


def counted(*streams: StoredSchedules, now: int = START, minutes: int = 10, soonest: int = 3) -> Timeline:
    timeline = Timeline(now, minutes, soonest)
    for number, one in enumerate(streams):
        list(one.view.add_to(timeline, f"S{number}"))
    list(timeline.finish())
    return timeline


def subjects(timeline: Timeline) -> list[str]:
    return [subject for _fire, subject, _stream in timeline.soonest]


def test_each_kind_is_counted_for_all_of_its_fires() -> None:
    timeline = counted(stored(at(MINUTE), "@every 5m", "@every 20s", "0 * * * * *", "@yearly"), minutes=6)
    assert timeline.start == START - START % MINUTE
    expected = [
        START + MINUTE,
        START + 5 * MINUTE,
        *(START + n * 20 * SECOND for n in range(1, 20)),
        *(timeline.start + n * MINUTE for n in range(1, 7)),
    ]
    due = [(fire - timeline.start) // MINUTE for fire in expected if fire < timeline.end]
    assert timeline.counts == [due.count(number) for number in range(6)]
    assert timeline.is_complete


def test_the_soonest_of_all_streams_are_named_in_order() -> None:
    timeline = counted(stored(at(HOUR), at(3 * SECOND), at(100 * HOUR)), stored(at(2 * HOUR), at(2 * SECOND)))
    assert timeline.soonest == [
        (START + 2 * SECOND, "s.2", "S1"),
        (START + 3 * SECOND, "s.2", "S0"),
        (START + HOUR, "s.1", "S0"),
    ]
    overdue = counted(stored(at(-HOUR), at(MINUTE)))
    assert (sum(overdue.counts), subjects(overdue)) == (1, ["s.1", "s.2"]), "it is in no minute"
    random = generator("soonest")
    held = stored(*(at(random.randrange(1, 40) * HOUR + random.randrange(3) * SECOND) for _ in range(1_000)))
    page = held.view.page(START, limit=20).finish()
    assert subjects(counted(held, soonest=20)) == [one.subject for one in page.schedules]


def test_a_repeating_schedule_that_is_overdue_is_counted_from_now_on() -> None:
    timeline = counted(stored("@every 90s", "0 */2 * * * *"), now=START + HOUR, minutes=60)
    begin = timeline.start
    every = [START + n * 90 * SECOND for n in range(1, 200)]
    cron = [begin - begin % (2 * MINUTE) + n * 2 * MINUTE for n in range(100)]
    due = [fire for fire in (*every, *cron) if START + HOUR < fire < timeline.end]
    assert timeline.counts == [sum((fire - begin) // MINUTE == n for fire in due) for n in range(60)]


def test_a_schedule_that_its_stream_removes_is_counted_until_then() -> None:
    rules = StreamRules("S", ("s.>", "t.>"), max_age=3 * MINUTE)
    timeline = counted(stored("@every 1m", at(2 * MINUTE), at(4 * MINUTE), rules=rules))
    assert sum(timeline.counts) == 3  # after 1 and 2 min, and the first @at
    assert subjects(timeline) == ["s.1", "s.2"]


def test_one_that_has_fired_and_is_still_to_be_purged_is_not_counted() -> None:
    message = schedule(at(MINUTE), 1, "s.1")
    desk = Desk(message, schedule("@every 5m", 2, "s.2"))
    desk.concluded(desk.in_flight(message, 60), Stored(3))
    timeline = Timeline(START, 10, 3)
    list(desk.engine.view().add_to(timeline, "S"))
    assert (desk.purges, subjects(timeline), sum(timeline.counts)) == ([("s.1", 1)], ["s.2"], 1)


def test_the_counts_are_those_of_every_single_fire() -> None:
    for seed in seeds(4):
        random = Random(seed)
        texts = [f"@every {n}s" for n in (1, 7, 30, 60, 90, 3600)]
        texts += ["0 * * * * *", "*/5 * * * * *", "0 0 * * * *", "30 */7 9-17 * * *", "@daily"]
        texts += [at(random.randrange(-HOUR, 3 * HOUR)) for _ in range(20)]
        held = stored(*(random.choice(texts) for _ in range(60)))
        now = START + random.randrange(3 * HOUR)
        timeline = counted(held, now=now, minutes=random.randrange(1, 120))
        counts = [0] * len(timeline.counts)
        for one in held.view.page(now, limit=None).finish().schedules:
            fire = one.next_fire
            while fire is not None and fire < timeline.end:
                if fire > now:
                    counts[(fire - timeline.start) // MINUTE] += 1
                fire = one.pattern.next_fire(fire, one.stored_at)
        assert timeline.counts == counts, f"seed {seed}"


def test_equal_patterns_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 2 * 61 + 1)
    assert counted(stored(*["0 * * * * *", "@every 1m"] * 200), minutes=60).is_complete


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
