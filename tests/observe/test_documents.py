"""Every document has a JSON Schema, and is what its schema says."""

from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter

from nats_scheduler.engine.views.figures import State
from nats_scheduler.engine.views.stored import StoredSchedules
from nats_scheduler.engine.views.view import ALL, FiredBy
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.observe import documents
from nats_scheduler.observe.documents import (
    CheckedDocument,
    CountsDocument,
    MisnamedDocument,
    RejectedDocument,
    ScheduleDocument,
    checked_document,
    counts_document,
    misnamed_document,
    rejected_document,
    schedule_document,
)
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.testing.clock import START
from tests.engine.direct import message_on, schedule
from tests.harness.blocks import block_with

RULES = StreamRules("S", ("s.>", "t.>", "in"), schedules_enabled=True, allow_msg_ttl=True)
WHOLE = {
    "Nats_Schedule_Time_Zone": "Europe/Berlin",
    "Nats_Schedule_Source": "in",
    "Nats_Schedule_Rollup": "sub",
    "Nats_Schedule_TTL": "5m",
    "Nats_TTL": "1h",
}


def strictly(document: type, value: object) -> Any:
    """Return a document as its schema reads it: no key is missing, and none is unknown."""
    document.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(document).validate_python(value, strict=True)


def stored(*messages: StoredMessage) -> StoredSchedules:
    read = StoredSchedules(RULES, DIALECTS, FiredBy.SIDECAR)
    read.take(messages, START)
    return read


def test_schedules_are_what_their_schema_says() -> None:
    whole = message_on("s.1", 1, Nats_Schedule="0 30 9 * * *", Nats_Schedule_Target="t.out", **WHOLE)
    view = stored(whole, schedule("@every 1h", 2, "s.2")).view
    page = view.page(START + HOUR).finish()
    found = {one.subject: schedule_document("S", "emulated", one) for one in page.schedules}
    for document in found.values():
        assert strictly(ScheduleDocument, document) == document
    assert found["s.1"] == {
        "stream": "S",
        "subject": "s.1",
        "sequence": 1,
        "stored": "2026-01-01T00:00:00Z",
        "pattern": "0 30 9 * * *",
        "kind": "cron",
        "time_zone": "Europe/Berlin",
        "target": "t.out",
        "source": "in",
        "ttl": "5m",
        "rollup": "sub",
        "policies": {},
        "dialect": "adr51",
        "mode": "emulated",
        "state": State.EXPIRING.value,
        "next_fire": None,
        "fired_by": "sidecar",
        "failing": None,
        "ends": {"utc": "2026-01-01T01:00:00Z", "reason": "expired"},
    }
    assert found["s.2"]["next_fire"] == {
        "utc": "2026-01-01T02:00:00Z",
        "local": "2026-01-01T02:00:00Z",
        "nanoseconds": START + 2 * HOUR,
        "sent": None,
    }


def test_what_is_rejected_or_misnamed_and_counts_are_what_their_schemas_say() -> None:
    view = stored(schedule("@often", 1, "s.1"), message_on("s.2", 2, **{"Nats-Schedul": "@daily"})).view
    (rejected,) = view.rejected_page(ALL, 9, "").finish().messages
    (noted,) = view.misnamed_page(ALL, 9, "").finish().messages
    for kind, document in (
        (RejectedDocument, rejected_document("S", "emulated", rejected)),
        (MisnamedDocument, misnamed_document("S", noted)),
        (CountsDocument, counts_document(view.counts(START).finish())),
    ):
        assert strictly(kind, document) == document


@pytest.mark.parametrize(
    "headers",
    [
        {"Nats_Schedule": "@daily", "Nats_Schedule_Target": "t.out"},
        {"Nats_Schedule": "@often", "Nats_Schedule_Target": "t.out"},
        {"Nats_Scheduler": "s.1", "Nats_Schedule_Next": "purge"},
        {
            "Nats_Msg_Id": "nats-scheduler:7:1795392000000000000:s",
            "Nats_Scheduler": "s",
            "Nats_Schedule_Next": "2026-11-24T00:00:00Z",
        },
        {"Some": "header"},
    ],
)
def test_what_a_message_means_is_what_its_schema_says(headers: dict[str, str]) -> None:
    reading = read_message(block_with(**headers), "s.x", START, RULES, DIALECTS)
    document = checked_document(reading, START)
    assert strictly(CheckedDocument, document) == document


def test_each_document_has_a_json_schema_in_which_every_key_is_required() -> None:
    found = [one for name, one in vars(documents).items() if name.endswith("Document")]
    assert len(found) >= 12
    for one in found:
        schema = TypeAdapter(one).json_schema()
        assert sorted(schema["required"]) == sorted(schema["properties"]), one
