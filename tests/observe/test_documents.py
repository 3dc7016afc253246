"""Every document has a JSON Schema, is what its schema says, and is read again."""

from typing import Any

from pydantic import ConfigDict, TypeAdapter

from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.observe import documents
from nats_scheduler.observe.documents import (
    ScheduleDocument,
    schedule_document,
)
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.service.read_back import read_schedule
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import schedule

RULES = StreamRules("S", ("s.>", "t.>", "in"), schedules_enabled=True, allow_msg_ttl=True)


def strictly(document: type, value: object) -> Any:
    """Return a document as its schema reads it: no key is missing, and none is unknown."""
    document.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(document).validate_python(value, strict=True)


def stored(*messages: StoredMessage, fired_by: FiredBy = FiredBy.SIDECAR) -> StoredSchedules:
    read = StoredSchedules(RULES, DIALECTS, fired_by)
    read.take(messages, START)
    return read


def test_schedules_are_what_their_schema_says() -> None:
    whole = schedule(
        "0 30 9 * * *",
        1,
        "s.1",
        Nats_Schedule_Time_Zone="Europe/Berlin",
        Nats_Schedule_Source="in",
        Nats_Schedule_Rollup="sub",
        Nats_Schedule_TTL="5m",
        Nats_TTL="1h",
    )
    page = stored(whole, schedule("@every 1h", 2, "s.2")).view.page(START + HOUR).answer()
    found = {one.subject: schedule_document("S", "emulated", one) for one in page.schedules}
    assert [read_schedule(document) for document in found.values()] == list(page.schedules)
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
        "unfired_since": None,
    }
    assert found["s.2"]["next_fire"] == {
        "utc": "2026-01-01T02:00:00Z",
        "local": "2026-01-01T02:00:00Z",
        "nanoseconds": START + 2 * HOUR,
        "sent": None,
    }


def test_each_document_has_a_schema_that_requires_every_key() -> None:
    found = [one for name, one in vars(documents).items() if name.endswith("Document")]
    assert len(found) >= 12
    for one in found:
        schema = TypeAdapter(one).json_schema()
        assert sorted(schema["required"]) == sorted(schema["properties"]), one
