"""Answers are read into plain values: those of this version completely, others as far as they can be read."""

import json
from random import Random
from typing import Any

import pytest

from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service import overview
from nats_scheduler.service.overview import (
    Ahead,
    Due,
    Failure,
    Health,
    Histogram,
    Instance,
    RecentFire,
    read_activity,
    read_ahead,
    read_due,
    read_failures,
    read_health,
    read_instances,
    read_recent_fires,
    read_streams,
)
from nats_scheduler.testing.clock import START

NOON = START - START % MINUTE
AT = format_rfc3339(NOON + 30 * SECOND)
SCHEDULE = {
    "stream": "S",
    "subject": "s.1",
    "pattern": "@every 1m",
    "target": "t.1",
    "state": "waiting",
    "next_fire": {"utc": AT, "local": AT, "nanoseconds": NOON + 30 * SECOND},
}
DUE = Due("S", "s.1", "@every 1m", "t.1", NOON + 30 * SECOND, "waiting")


def minute(number: int, fires: int, lateness: list[int]) -> dict[str, Any]:
    return {
        "from": format_rfc3339(NOON + number * MINUTE),
        "fires": fires,
        "duplicates": 1,
        "overdue": 2,
        "refused": 3,
        "lateness": lateness,
        "lateness_max_nanoseconds": 4 * MILLISECOND,
    }


ACTIVITY = {
    "at": AT,
    "unanswered": ["one"],
    "bounds_seconds": [0.001, 0.005],
    "minutes": [minute(-1, 120, [60, 60, 0]), minute(0, 30, [0, 30, 0])],
}


def test_the_activity() -> None:
    found = read_activity(ACTIVITY)
    assert found is not None
    assert [(one.start, one.fires, one.duplicates, one.overdue, one.refused) for one in found.minutes] == [
        (NOON - MINUTE, 120, 1, 2, 3),
        (NOON, 30, 1, 2, 3),
    ]
    bounds = (MILLISECOND, 5 * MILLISECOND)
    assert found.minutes[0].lateness == Histogram(bounds, (60, 60, 0), 4 * MILLISECOND)
    assert found.lateness(10) == Histogram(bounds, (60, 90, 0), 4 * MILLISECOND)
    assert found.lateness(1).total == 30
    assert (found.refused(1), found.refused(10)) == (3, 6)
    assert found.rate() == (30 + 60) / 60, "the present minute, and half of the one before"
    assert found.unanswered == ["one"]


def test_streams_instances_and_health() -> None:
    document = {
        "stream": "S",
        "mode": "emulated",
        "ready": True,
        "schedules": {"total": 3, "states": {"waiting": 2, "overdue": 1}, "kinds": {"at": 3}},
        "failing": 1,
        "rejected": 2,
        "misnamed": 0,
        "next": SCHEDULE,
        "holders": ["one"],
    }
    (stream,) = read_streams({"streams": [document]})
    assert (stream.name, stream.mode, stream.is_ready, stream.schedules) == ("S", "emulated", True, 3)
    assert (stream.states["overdue"], stream.kinds, stream.failing, stream.next) == (1, {"at": 3}, 1, DUE)
    (unread,) = read_streams({"streams": [{**document, "ready": False, "schedules": None, "next": None}]})
    assert (unread.is_ready, unread.schedules, unread.next) == (False, None, None)
    instance = {
        "id": "one",
        "state": "alive",
        "since": AT,
        "last_heartbeat": None,
        "holds": [{"stream": "S", "mode": "emulated", "shards": [1, 2]}],
        "unable": [{"stream": "T", "reason": "no permission"}],
    }
    expected = Instance("one", "alive", NOON + 30 * SECOND, None, {"S": [1, 2]}, {"T": "no permission"})
    assert read_instances({"instances": [instance]}) == [expected]
    assert read_health({"instance": "one", "ready": False, "reasons": ["r"]}) == Health("one", False, ["r"], [])
    assert read_health({"instance": "one", "ready": True, "notes": ["n"]}) == Health("one", True, [], ["n"])


def test_what_fires_next() -> None:
    assert read_ahead({"at": AT, "soonest": [SCHEDULE, {**SCHEDULE, "next_fire": None}]}) == Ahead(
        NOON + 30 * SECOND, [DUE]
    )


def test_recent_fires_and_failures() -> None:
    fire = {
        "stream": "S",
        "schedule": "s.1",
        "target": "t.1",
        "sequence": 9,
        "fire_time": format_rfc3339(NOON),
        "stored": AT,
        "lateness_nanoseconds": 5,
        "overdue": False,
    }
    assert read_recent_fires({"fires": [fire, {**fire, "overdue": True}]}) == [
        RecentFire("S", "s.1", "t.1", 9, NOON, NOON + 30 * SECOND, 5),
        RecentFire("S", "s.1", "t.1", 9, NOON, NOON + 30 * SECOND, None),
    ]
    failure = {"kind": "fire_late", "stored": AT, "stream": "S", "schedule": "s.1", "advisory": {"a": 1}}
    assert read_failures({"failures": [failure]}) == [Failure("fire_late", NOON + 30 * SECOND, "S", "s.1", {"a": 1})]


WHOLE: dict[str, Any] = {
    **ACTIVITY,
    "streams": [
        {"stream": "S", "schedules": {"total": 1, "states": {"waiting": 1}}, "next": SCHEDULE, "holders": ["a"]}
    ],
    "instances": [{"id": "a", "holds": [{"stream": "S", "shards": [1]}], "unable": [{"stream": "S", "reason": "r"}]}],
    "fires": [{"stream": "S", "stored": AT, "lateness_nanoseconds": 5}],
    "soonest": [SCHEDULE],
    "failures": [{"kind": "k", "stored": AT, "advisory": {}}],
    "reasons": ["r"],
}
STRANGE: list[Any] = [
    None,
    True,
    -1,
    1 << 70,
    0.5,
    1e400,
    "",
    "x",
    "2026-13-01T00:00:00Z",
    [],
    [[]],
    [None],
    [1],
    {},
    {"a": 1},
]
READERS: list[Any] = [getattr(overview, name) for name in vars(overview) if name.startswith("read_")]


def changed(value: Any, random: Random) -> Any:
    """Return a value with something strange in a random place, or with something missing or added."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(sorted(value))
        if random.random() < 0.2:
            return {**{k: v for k, v in value.items() if k != key}, "unknown": 1}
        return {**value, key: changed(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        return [*value[:place], changed(value[place], random), *value[place + 1 :]]
    return random.choice(STRANGE)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_answered_can_be_read(seed: int) -> None:
    random = Random(seed)
    assert len(READERS) == 8
    for _ in range(200):
        answer = changed(changed(WHOLE, random), random)
        if not isinstance(answer, dict):
            continue
        for read in READERS:
            found = read(answer)
            if read is read_activity and found is not None:
                assert found.rate() >= 0
                assert found.lateness(60).quantile(0.99) is None or found.lateness(60).total


def test_a_schedule_without_a_subject_or_a_next_fire_is_none() -> None:
    assert read_due(json.loads(json.dumps(SCHEDULE))) == DUE
    assert read_due({**SCHEDULE, "subject": None}) is None
    assert read_due({**SCHEDULE, "next_fire": None}) is None
    assert read_due({}) is None
