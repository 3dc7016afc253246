"""Every document has a JSON Schema, is what its schema says, and is read again; what the words about policies say."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter

from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import ALL, FiredBy, ListedSchedule
from nats_scheduler.message.dialect import DIALECTS, PORTABLE
from nats_scheduler.message.findings import Code
from nats_scheduler.message.policies import policies_text
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.schedule_findings import schedule_findings
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
from nats_scheduler.observe.explanations import ExplanationDocument, explanation_document
from nats_scheduler.observe.texts import schedule_words
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.schedule.patterns import Syntax
from nats_scheduler.service.read_back import read_schedule
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import message_on, schedule
from tests.harness.blocks import block_with

RULES = StreamRules("S", ("s.>", "t.>", "in"), schedules_enabled=True, allow_msg_ttl=True)
HOURLY = "every hour, counted from 2026-01-01T00:00:00Z"


def strictly(document: type, value: object) -> Any:
    """Return a document as its schema reads it: no key is missing, and none is unknown."""
    document.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(document).validate_python(value, strict=True)


def stored(*messages: StoredMessage, fired_by: FiredBy = FiredBy.SIDECAR) -> StoredSchedules:
    read = StoredSchedules(RULES, DIALECTS, fired_by)
    read.take(messages, START)
    return read


def listed(policies: Mapping[str, str], fired_by: FiredBy = FiredBy.SIDECAR, after: int = 0) -> ListedSchedule:
    """Read a schedule with policies, as it is listed `after` ns after it was stored; its document is read again."""
    headers = {f"Nats-Schedule-{name}": value for name, value in policies.items()}
    message = message_on("s.2", 2, Nats_Schedule="@every 1h", Nats_Schedule_Target="t.out", **headers)
    read = stored(message, fired_by=fired_by)
    assert read.rejected == {}
    (found,) = read.view.page(START + after).answer().schedules
    document = schedule_document("S", "emulated", found)
    assert document["policies"] == policies
    assert read_schedule(document) == found
    return found


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


def test_rejected_misnamed_and_counts_fit_their_schemas() -> None:
    view = stored(schedule("@often", 1, "s.1"), message_on("s.2", 2, **{"Nats-Schedul": "@daily"})).view
    (rejected,) = done(view.rejected_page(ALL, 9, "")).messages
    (noted,) = done(view.misnamed_page(ALL, 9, "")).messages
    for kind, document in (
        (RejectedDocument, rejected_document("S", "emulated", rejected)),
        (MisnamedDocument, misnamed_document("S", noted)),
        (CountsDocument, counts_document(view.counts(START).answer())),
    ):
        assert strictly(kind, document) == document


def test_what_a_message_means_is_what_its_schema_says() -> None:
    identity = "nats-scheduler:7:1795392000000000000:s"
    for headers in (
        {"Nats_Schedule": "@daily", "Nats_Schedule_Target": "t.out"},
        {"Nats_Schedule": "@often", "Nats_Schedule_Target": "t.out"},
        {"Nats_Scheduler": "s.1", "Nats_Schedule_Next": "purge"},
        {"Nats_Msg_Id": identity, "Nats_Scheduler": "s", "Nats_Schedule_Next": "2026-11-24T00:00:00Z"},
        {"Some": "header"},
    ):
        document = checked_document(read_message(block_with(**headers), "s.x", START, RULES, DIALECTS), START)
        assert strictly(CheckedDocument, document) == document


def test_each_document_has_a_json_schema_in_which_every_key_is_required() -> None:
    found = [one for name, one in vars(documents).items() if name.endswith("Document")]
    assert len(found) >= 12
    for one in found:
        schema = TypeAdapter(one).json_schema()
        assert sorted(schema["required"]) == sorted(schema["properties"]), one


def test_the_answer_about_any_pattern_is_one_document() -> None:
    said = {}
    for text, zone in (
        ("0 30 2 * * *", "Europe/Berlin"),
        ("@every 90m", None),
        ("@at 2027-01-01T00:00:00Z", None),
        ("@often", None),
        ("@daily", "Mars/Olympus"),
        ("", None),
        (" @daily ", None),
        ("@daily\r\nX: y", None),
        ("@daily", "Europe/Berlin\n"),
    ):
        document = explanation_document(text, zone, START, 3)
        assert TypeAdapter(ExplanationDocument).validate_python(document, strict=True) == document
        assert set(document) == set(ExplanationDocument.__annotations__)
        assert (document["words"] is None) == (document["kind"] is None) == (document["fires"] == [])
        error = document["error"]
        said[text, zone] = document["words"] if error is None else (error["err_code"], "one line" in error["reason"])
    assert said[" @daily ", None] == "every day at 00:00 in UTC", "blanks do not survive in a header"
    assert said["@daily\r\nX: y", None] == (10189, True), "a line break is in no header"
    assert said["@daily", "Europe/Berlin\n"] == (10223, True)


def ignored(one: ListedSchedule) -> list[Code]:
    """Return whether it is found that the server ignores policies of a schedule."""
    found = [finding.code for finding in schedule_findings(one.known(RULES, None, START))]
    return [code for code in found if code is Code.POLICIES_IGNORED]


@pytest.mark.parametrize("fired_by", [FiredBy.SERVER, FiredBy.NONE])
def test_policies_have_no_effect_where_no_sidecar_fires(fired_by: FiredBy) -> None:
    for policies in ({"X-Limit": "1"}, {"X-Limit": "none"}, {"X-Unknown": "1"}, {"X-Jitter": "30m"}):
        one = listed(policies, fired_by, after=3 * HOUR)
        assert (one.next_fire, one.sent, one.timetable.jitters) == (START + 4 * HOUR, None, False), policies
        assert schedule_words(one.pattern, one.terms.policies, START) == HOURLY
        assert ignored(one) == [Code.POLICIES_IGNORED], policies
    one = listed({"X-Note": "a", "X-Owner": "b"}, fired_by)
    assert (one.terms.policies.note, one.terms.policies.owner) == ("a", "b")
    assert ignored(one) == [], "they are for people"


@pytest.mark.parametrize("fired_by", [FiredBy.SIDECAR, FiredBy.NONE])
def test_the_document_of_a_pattern_in_another_syntax_is_read_again(fired_by: FiredBy) -> None:
    read = StoredSchedules(RULES, (PORTABLE,), fired_by)
    headers = {"X_Nats_Schedule_Target": "t.out", "X_Nats_Schedule_X_Syntax": "quartz"}
    read.take([message_on("s.2", 2, X_Nats_Schedule="0 0 9 ? * L5 2026-2027", **headers)], START)
    (one,) = read.view.page(START).answer().schedules
    document = schedule_document("S", "portable", one)
    assert document["policies"] == {"X-Syntax": "quartz"}
    assert document["next_fire"] is not None
    assert document["next_fire"]["utc"] == "2026-01-30T09:00:00Z"
    assert read_schedule(document) == one
    assert policies_text(one.terms.policies) == "X-Syntax quartz"
    assert one.terms.policies.syntax is Syntax.QUARTZ


def test_a_check_says_what_a_change_of_the_clock_does_to_the_next_fire() -> None:
    headers = {
        "Nats-Schedule": "0 30 1 29 3 *",
        "Nats-Schedule-Time-Zone": "Europe/Lisbon",
        "Nats-Schedule-Target": "t.out",
    }
    found = {}
    for value in ("skip", "after"):
        given = block_with(**headers, **{"Nats-Schedule-X-Clock-Change": value})
        schedule = checked_document(read_message(given, "s.x", START, RULES, DIALECTS), START)["schedule"]
        assert schedule is not None
        assert schedule["next_fire"] is not None
        found[value] = schedule["next_fire"]["local"], schedule["next_fire"]["clock_change"], schedule["skipped"]
    hour = {"clock_from": "2026-03-29T01:00:00", "clock_to": "2026-03-29T02:00:00"}
    assert found == {
        "skip": (
            "2027-03-29T01:30:00+01:00",
            "moved",
            [{"first": "2026-03-29T01:30:00", "last": "2026-03-29T01:30:00", **hour}],
        ),
        "after": ("2026-03-29T02:00:00+01:00", "after_gap", []),
    }
