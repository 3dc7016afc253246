"""Answers are read by their models, also those that another program sent."""

import json
import time
from typing import Any

import pytest

from nats_scheduler.service.endpoints import ENDPOINTS
from nats_scheduler.service.now import ActivityAnswer
from nats_scheduler.service.schemas import HealthAnswer, SchedulesAnswer, StreamsAnswer, read_answer

AT = "2026-03-01T12:00:00Z"
FIRE = {"utc": AT, "local": "", "nanoseconds": 1, "sent": None}
TEXTS = ("stream", "subject", "pattern", "kind", "target", "dialect", "mode", "state", "fired_by")
SCHEDULE: dict[str, Any] = {
    **dict.fromkeys(TEXTS, "x"),
    **dict.fromkeys(("time_zone", "source", "ttl", "rollup", "failing", "ends")),
    "sequence": 1,
    "stored": AT,
    "next_fire": FIRE,
    "policies": {"X-Start": "x"},
}
STREAM: dict[str, Any] = {
    **dict.fromkeys(("failing", "rejected", "misnamed"), 0),
    "stream": "O",
    "mode": "emulated",
    "ready": True,
    "unread": None,
    "schedules": {"total": 1, "states": {"waiting": 1}, "kinds": {"at": 1}},
    "next": SCHEDULE,
    "holders": ["one"],
}
HEAD: dict[str, Any] = {"at": AT, "instance": "one", "unanswered": [], "cursor": None}
ANSWER: dict[str, Any] = {**HEAD, "streams": [STREAM]}


def without(answer: dict[str, Any], *path: str | int) -> dict[str, Any]:
    """Return a copy of an answer without a key."""
    copy: dict[str, Any] = json.loads(json.dumps(answer))
    *parents, key = path
    inner: Any = copy
    for parent in parents:
        inner = inner[parent]
    del inner[key]
    return copy


def test_what_is_read_is_what_was_written_without_keys_that_are_not_in_the_model() -> None:
    assert read_answer(StreamsAnswer, {**ANSWER, "more": 1, "streams": [{**STREAM, "shortened": True}]}) == ANSWER


def test_a_sidecar_of_the_last_version_has_no_notes() -> None:
    answer = {"at": HEAD["at"], "instance": "one", "ready": True, "reasons": []}
    assert read_answer(HealthAnswer, answer) == answer


@pytest.mark.parametrize("time", ["", "x", "2026-13-01T00:00:00Z", None, 1])
def test_an_answer_with_a_time_that_is_none_is_no_answer(time: Any) -> None:
    assert read_answer(StreamsAnswer, {**ANSWER, "streams": [{**STREAM, "next": {**SCHEDULE, "stored": time}}]}) is None


@pytest.mark.parametrize("key", [("mode",), ("schedules", "total"), ("next", "subject"), ("next", "next_fire", "utc")])
def test_an_answer_without_another_key_is_none(key: tuple[str, ...]) -> None:
    assert read_answer(StreamsAnswer, without(ANSWER, "streams", 0, *key)) is None


@pytest.mark.parametrize("value", [None, True, 1, "x", [], {}, [[]], {"streams": 7}])
def test_another_object_is_no_answer(value: Any) -> None:
    assert [one.name for one in ENDPOINTS if read_answer(one.answer, value) is not None] == []


@pytest.mark.parametrize("row", ["{}", "1", "[]", '{"schedules":{}}'])
def test_a_long_list_of_something_else_is_refused_soon(row: str) -> None:
    """Each fault of each row was collected: half a megabyte took half a minute, and gigabytes of memory."""
    rows = json.loads(f"[{','.join([row] * 200_000)}]")
    given = {**HEAD, "stream": "O", "mode": "emulated", "read_through": 0, "bounds_seconds": rows}
    given |= {"streams": rows, "schedules": rows, "minutes": rows, "unanswered": rows}
    began = time.process_time()
    forms: tuple[Any, ...] = (StreamsAnswer, SchedulesAnswer, ActivityAnswer)
    assert [read_answer(form, given) for form in forms] == [None] * 3
    assert time.process_time() - began < 1
