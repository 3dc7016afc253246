"""The JSON Schema of a file is what the code accepts: a validator of its own decides the same for each document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nats_scheduler.control.declared import Declared, declare, dialect_of, policy_key
from nats_scheduler.files.models import files_schema
from nats_scheduler.files.reading import read_files
from nats_scheduler.files.writing import stream_document
from nats_scheduler.message.policies import POLICY_NAMES
from tests.harness.blocks import block_of

VALIDATOR = Draft202012Validator(files_schema())
GOOD: list[dict[str, Any]] = [
    {"at": "2030-01-01T00:00:00Z", "target": "t"},
    {"every": "5m", "time_zone": "UTC", "target": "t", "source": "s", "ttl": 5, "rollup": True, "paused": False},
    {"cron": "@daily", "spelling": "portable", "order": "sorted", "body": "x"},
    {"cron": "@daily", "policies": {"limit": 3, "report": True, "missed": "skip"}, "body_base64": "/w=="},
    {"cron": "@daily", "headers": [{"name": "A", "value": "b"}, {"name": "A", "value_base64": "/w=="}]},
    {"lines": ["A: b", {"base64": "/w=="}], "paused": True},
    {"block_base64": "/w=="},
]
BAD: list[dict[str, Any]] = [
    {},
    {"at": "x", "cron": "y"},
    {"cron": 5},
    {"cron": "two\nlines"},
    {"cron": None},
    {"cron": "@daily", "targt": "t"},
    {"cron": "@daily", "ttl": 1.5},
    {"cron": "@daily", "rollup": "yes"},
    {"cron": "@daily", "spelling": "other"},
    {"cron": "@daily", "policies": {"misssed": "skip"}},
    {"cron": "@daily", "policies": []},
    {"cron": "@daily", "body": "x", "body_base64": "/w=="},
    {"cron": "@daily", "body_base64": "!"},
    {"cron": "@daily", "headers": [{"name": "A"}]},
    {"cron": "@daily", "headers": [{"name": "A", "value": "b", "value_base64": "/w=="}]},
    {"cron": "@daily", "headers": [{"name": "A:", "value": "b"}]},
    {"cron": "@daily", "headers": {"A": "b"}},
    {"cron": "@daily", "order": "unsorted"},
    {"cron": "@daily", "subject": ""},
    {"lines": ["A: b"], "target": "t"},
    {"lines": ["A: b"], "block_base64": "/w=="},
    {"lines": [5]},
]


def accepted(document: Any) -> bool:
    return read_files([("f", json.dumps(document).encode())])[1] == []


def document_of(schedule: dict[str, Any]) -> dict[str, Any]:
    return {"stream": "ORDERS", "schedules": [{"subject": "s", **schedule}]}


@pytest.mark.parametrize("schedule", GOOD, ids=str)
def test_what_the_schema_accepts_is_read(schedule: dict[str, Any]) -> None:
    document = document_of(schedule)
    assert (VALIDATOR.is_valid(document), accepted(document)) == (True, True)


@pytest.mark.parametrize("schedule", BAD, ids=str)
def test_what_the_schema_rejects_is_a_problem(schedule: dict[str, Any]) -> None:
    document = document_of(schedule)
    assert (VALIDATOR.is_valid(document), accepted(document)) == (False, False)


@pytest.mark.parametrize(
    "document",
    [
        5,
        {},
        {"stream": "S"},
        {"stream": "", "schedules": []},
        {"stream": "S", "schedules": {}},
        {"stream": "S", "schedules": [], "x": 1},
        {"stream": "S", "schedules": [], "owner": ""},
        {"stream": "S", "schedules": [], "spelling": None},
    ],
    ids=str,
)
def test_a_document_that_the_schema_rejects_is_a_problem(document: Any) -> None:
    assert (VALIDATOR.is_valid(document), accepted(document)) == (False, False)


def test_the_schema_is_one_and_may_be_named_in_a_document() -> None:
    Draft202012Validator.check_schema(files_schema())
    document = {"$schema": "schedules.schema.json", "stream": "S", "owner": "billing", "schedules": []}
    assert VALIDATOR.is_valid(document)
    assert accepted(document)


def test_the_schema_has_every_policy() -> None:
    properties = files_schema()["$defs"]["PoliciesModel"]["properties"]
    assert set(properties) == {policy_key(name) for name in POLICY_NAMES}


def test_every_key_of_a_schedule_is_described() -> None:
    properties = files_schema()["$defs"]["ScheduleModel"]["properties"]
    assert [key for key, schema in properties.items() if not schema.get("description")] == []


def test_what_is_exported_is_accepted_by_the_schema() -> None:
    blocks = [
        block_of(("Nats-Schedule", "@daily"), ("Nats-Schedule-X-Owner", "me"), ("A", b"\xff"), ("B", "c")),
        block_of(("B", "c"), ("Nats-Schedule", "@every 5m"), ("Nats-Schedule-Rollup", "sub")),
        b"NATS/1.0\r\nNats-Schedule:@daily\r\nA: \xff\r\n\r\n",
        b"NATS/1.0\r\nNats-Schedule:@daily",
    ]
    exported = [Declared(f"s.{at}", declare(block, dialect_of(block)), b"\x00") for at, block in enumerate(blocks)]
    assert list(VALIDATOR.iter_errors(stream_document("S", exported))) == []
