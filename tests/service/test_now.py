"""Answers of other instances are added to ours as far as they can be, and each of the last fires is listed once."""

import json
from random import Random
from typing import Any

from nats_scheduler.engine.events import FireConfirmed
from nats_scheduler.observe.activity import Minute, nothing_in
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.service.now import (
    ActivityAnswer,
    RecentFiresRequest,
    merged,
    minute_document,
    newest,
    read_activity,
)
from nats_scheduler.service.schemas import read_answer
from nats_scheduler.testing.manual_clock import START
from tests.harness.seeds import generator, seeds

NOON = START - START % MINUTE
BUCKETS = len(LATENESS_BUCKETS_SECONDS) + 1
HEAD: dict[str, Any] = {"at": "2026-11-22T12:00:01Z", "instance": "b", "unanswered": []}


def drawn(random: Random, start: int) -> Minute:
    fires, duplicates, overdue, refused, latest = (random.randrange(1 << 40) for _ in range(5))
    lateness = tuple(random.randrange(1 << 40) for _ in range(BUCKETS))
    return Minute(start, fires, duplicates, overdue, refused, lateness, latest)


def answer_of(minutes: list[Minute]) -> dict[str, Any]:
    """Return the answer of an instance, as it arrives."""
    document = {**HEAD, "since": HEAD["at"], "bounds_seconds": LATENESS_BUCKETS_SECONDS}
    document["minutes"] = [*map(minute_document, minutes)]
    arrived: dict[str, Any] = json.loads(json.dumps(document))
    return arrived


def minutes_of(answer: dict[str, Any]) -> dict[int, Minute] | None:
    """Return what is added to our own minutes; None if the answer counts as none."""
    read = read_answer(ActivityAnswer, answer)
    return None if read is None else {one.start: one for one in read_activity(read).minutes}


def test_minutes_are_read_as_they_were_written() -> None:
    random = generator("minutes of others")
    minutes = [drawn(random, NOON + n * MINUTE) for n in range(5)]
    assert minutes_of(answer_of(minutes)) == {one.start: one for one in minutes}


def test_counts_with_other_bounds_cannot_be_added() -> None:
    wrong: list[Any] = [[], None, [0.1], list(LATENESS_BUCKETS_SECONDS[:-1]), {}, "x"]
    for bounds in wrong:
        assert minutes_of({**answer_of([nothing_in(NOON)]), "bounds_seconds": bounds}) is None, bounds
    assert minutes_of({"bounds_seconds": list(LATENESS_BUCKETS_SECONDS)}) is None


FIRES = 40


def read_back(number: int) -> tuple[str, FireConfirmed]:
    """Return a fire of one of two streams; two of each are stored at the same time."""
    stored_at = START + number // 4 * MINUTE
    fire = FireConfirmed(f"s.{number}", "t", stored_at, stored_at, stored_at, stored_sequence=1 + number // 2)
    return "AB"[number % 2], fire


def test_last_fires_of_instances_are_listed_once_newest_first() -> None:
    for seed in seeds(5):
        fires = [read_back(number) for number in range(FIRES)]
        generator(f"order of fires {seed}").shuffle(fires)
        some = newest(fires, RecentFiresRequest(stream="B", limit=5))
        assert [one["schedule"] for one in some] == ["s.39", "s.37", "s.35", "s.33", "s.31"]
        request = RecentFiresRequest(limit=FIRES)
        listed = merged([newest(fires[: FIRES // 2 + 3], request), newest(fires[FIRES // 2 - 3 :], request)])
        assert sorted(one["schedule"] for one in listed) == sorted(fire.schedule for _stream, fire in fires)
        stored = [(one["stored"], one["sequence"]) for one in listed]
        assert stored == sorted(stored, reverse=True)
