"""The JSON Schema of a file is what the code accepts: a validator of its own decides the same for each document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from jsonschema import Draft202012Validator

from nats_scheduler.files.file_reading import read_files
from nats_scheduler.files.models import files_schema

VALIDATOR = Draft202012Validator(files_schema())
GOOD: list[dict[str, Any]] = [
    {"at": "2030-01-01T00:00:00Z", "target": "t"},
    {"every": "5m", "time_zone": "UTC", "target": "t", "source": "s", "ttl": 5, "rollup": True, "paused": False},
    {"cron": "@daily", "spelling": "portable", "order": "sorted", "body": "x"},
    {"cron": "@daily", "policies": {"limit": 3, "report": True, "missed": "skip"}, "body_base64": "/w=="},
    {"cron": "@daily", "policies": {"X-Limit": 3, "Done-Within": "1h", "x_missed": "skip"}},
    {"cron": "@daily", "headers": [{"name": "A", "value": "b"}, {"name": "A", "value_base64": "/w=="}]},
    {"lines": ["A: b", {"base64": "/w=="}], "paused": True},
    {"block_base64": "/w=="},
]
WRONG_KEYS: list[dict[str, Any]] = [
    *({"targt": "t"}, {"ttl": 1.5}, {"rollup": "yes"}, {"spelling": "other"}, {"policies": []}),
    *({"policies": {"misssed": "skip"}}, {"policies": {"X-Limit": 1.5}}, {"policies": {"Nats-Schedule-Limit": 2}}),
    *({"body": "x", "body_base64": "/w=="}, {"body_base64": "!"}),
    *({"headers": [{"name": "A"}]}, {"headers": {"A": "b"}}, {"headers": [{"name": "A:", "value": "b"}]}),
    *({"headers": [{"name": "A", "value": "b", "value_base64": "/w=="}]}, {"order": "unsorted"}, {"subject": ""}),
]
BAD: list[dict[str, Any]] = [
    {},
    {"at": "x", "cron": "y"},
    {"cron": 5},
    {"cron": "two\nlines"},
    {"cron": None},
    *({"cron": "@daily", **wrong} for wrong in WRONG_KEYS),
    {"lines": ["A: b"], "target": "t"},
    {"lines": ["A: b"], "block_base64": "/w=="},
    {"lines": [5]},
]
BAD_DOCUMENTS: list[Any] = [
    *(5, {}, {"stream": "S"}, {"stream": "", "schedules": []}, {"stream": "S", "schedules": {}}),
    *({"stream": "S", "schedules": [], wrong: value} for wrong, value in (("x", 1), ("owner", ""), ("spelling", None))),
]


def accepted(document: Any) -> bool:
    return read_files([("f", json.dumps(document).encode())])[1] == []


def document_of(schedule: dict[str, Any]) -> dict[str, Any]:
    return {"stream": "ORDERS", "schedules": [{"subject": "s", **schedule}]}


def judged(documents: Iterable[Any]) -> list[tuple[Any, bool, bool]]:
    """Return what the schema and the reader say of each document."""
    return [(document, VALIDATOR.is_valid(document), accepted(document)) for document in documents]


def test_what_the_schema_accepts_is_read() -> None:
    documents = [document_of(schedule) for schedule in GOOD]
    assert judged(documents) == [(document, True, True) for document in documents]


def test_what_the_schema_rejects_is_a_problem() -> None:
    documents = [*map(document_of, BAD), *BAD_DOCUMENTS]
    assert judged(documents) == [(document, False, False) for document in documents]


def test_the_schema_is_one_and_may_be_named_in_a_document() -> None:
    Draft202012Validator.check_schema(files_schema())
    document = {"$schema": "schedules.schema.json", "stream": "S", "owner": "billing", "schedules": []}
    assert VALIDATOR.is_valid(document)
    assert accepted(document)
