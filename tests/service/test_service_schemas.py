"""What the endpoints take and answer, in memory: models, printed schemas, pages, lists of items, and their limits."""

import json
import time
from typing import Any

import pytest

from nats_scheduler.engine.views.seen import done
from nats_scheduler.service.encoded_items import encode_items
from nats_scheduler.service.endpoints import ALL_ENDPOINTS, ENDPOINTS
from nats_scheduler.service.now import ActivityAnswer
from nats_scheduler.service.schemas import HealthAnswer, SchedulesAnswer, StreamsAnswer, read_answer
from tests.service.reference import PAGES, derived_part, page_with


def test_the_reference_page_says_what_the_models_say() -> None:
    for page, endpoints in PAGES.items():
        expected = page_with(page, derived_part(endpoints))
        assert page.read_text(encoding="utf-8") == expected, "python -m tests.service.reference"


def test_each_key_of_a_request_is_described_and_no_other_is_taken() -> None:
    for one in ALL_ENDPOINTS:
        schema = one.request.model_json_schema()
        assert schema["additionalProperties"] is False
        assert all(said.get("description") for said in schema.get("properties", {}).values()), one.name


AT = "2026-03-01T12:00:00Z"
FIRE = {"utc": AT, "local": "", "nanoseconds": 1, "sent": None}
TEXTS = ("stream", "subject", "pattern", "kind", "target", "dialect", "mode", "state", "fired_by")
SCHEDULE: dict[str, Any] = {
    **dict.fromkeys(TEXTS, "x"),
    **dict.fromkeys(("time_zone", "source", "ttl", "rollup", "failing", "ends", "unfired_since")),
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
    "owner": "one",
    "owner_since": AT,
    "takeover_reason": "first",
    "standbys": [],
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


def test_what_is_read_is_what_the_model_has() -> None:
    assert read_answer(StreamsAnswer, {**ANSWER, "more": 1, "streams": [{**STREAM, "shortened": True}]}) == ANSWER
    health = {"at": HEAD["at"], "instance": "one", "ready": True, "reasons": []}
    assert read_answer(HealthAnswer, health) == health, "a sidecar of the last version has no notes"


def test_an_answer_with_another_value_or_without_a_key_is_none() -> None:
    for instant in ("", "x", "2026-13-01T00:00:00Z", None, 1):
        answer = {**ANSWER, "streams": [{**STREAM, "next": {**SCHEDULE, "stored": instant}}]}
        assert read_answer(StreamsAnswer, answer) is None, instant
    paths = [("mode",), ("schedules", "total"), ("next", "subject"), ("next", "next_fire", "utc")]
    for path in paths:
        assert read_answer(StreamsAnswer, without(ANSWER, "streams", 0, *path)) is None, path
    others: list[Any] = [None, True, 1, "x", [], {}, [[]], {"streams": 7}]
    for value in others:
        assert [one.name for one in ENDPOINTS if read_answer(one.answer, value) is not None] == [], value


@pytest.mark.parametrize("row", ["1", '{"schedules":{}}'])
def test_a_long_list_of_something_else_is_refused_soon(row: str) -> None:
    """Each fault of each row was collected: half a megabyte took half a minute, and gigabytes of memory."""
    rows = json.loads(f"[{','.join([row] * 50_000)}]")
    given = {**HEAD, "stream": "O", "mode": "emulated", "read_through": 0, "bounds_seconds": rows}
    given |= {"streams": rows, "schedules": rows, "minutes": rows, "unanswered": rows}
    forms: tuple[Any, ...] = (StreamsAnswer, SchedulesAnswer, ActivityAnswer)
    began = time.process_time()
    assert [read_answer(form, given) for form in forms] == [None] * 3
    assert time.process_time() - began < 3, "one fault is enough, and not each of them is collected"


def encoded(rows: list[dict[str, object]], room: int) -> list[bytes]:
    return done(encode_items(rows, lambda row: row, room))


def test_a_list_ends_where_the_next_item_would_not_fit() -> None:
    rows: list[dict[str, object]] = [{"a": number} for number in range(1_000)]
    items = encoded(rows, 1_000)
    assert 0 < len(items) < 1_000
    assert [json.loads(item) for item in items] == rows[: len(items)]
    assert sum(map(len, items)) <= 1_000
    assert len(encoded(rows, 1_000_000)) == 1_000


def test_an_item_that_does_not_fit_alone_is_shortened() -> None:
    large: dict[str, object] = {
        "text": "x" * 10_000,
        "list": list(range(5_000)),
        "inner": {"text": "y" * 10_000},
        "n": 7,
    }
    (item,) = encoded([large, large], 1_200)
    read = json.loads(item)
    assert (len(item) <= 1_200, read["n"], read["text"][-1]) == (True, 7, "…")
    assert read["shortened"] is True
