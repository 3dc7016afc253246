"""What a change makes of a schedule, as it is recorded: fields with their values, and of all else that it changed.

It tests `control/change_advisory.py` too.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nats_scheduler.control.change_advisory import change_advisory, read_change
from nats_scheduler.control.changed_parts import (
    MAX_CHARS,
    MAX_HEADERS,
    MAX_NAME_CHARS,
    MAX_VALUE_CHARS,
    NO_PARTS,
    ChangedParts,
    FieldChange,
    changed_parts,
    parts_document,
    read_parts,
)
from nats_scheduler.control.changes import MAX_AUTHOR_CHARS, NOBODY, Author, Change, Kind
from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.store_port import Served
from nats_scheduler.message.advisory_messages import SCHEDULE_CHANGED
from nats_scheduler.message.dialect import ADR51, DIALECTS, Dialect
from nats_scheduler.message.policies import POLICY_NAMES, policy_header
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.observe.advisories import advisories_schema
from nats_scheduler.observe.texts import parts_text
from nats_scheduler.schedule.instants import SECOND
from tests.harness.blocks import block_of
from tests.harness.seeds import draws

BEFORE = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "S.out", "Nats-Schedule-X-Limit": "3", "Kind": "order"}
SERVED = Served(StreamRules("S", (">",)), tuple(DIALECTS), is_native=False)


def stored(headers: dict[str, str], body: bytes = b"tea") -> Current:
    found = read_current(StoredMessage("S.s", 7, 0, block_of(*headers.items()), body), SERVED)
    assert found is not None
    return found


def parts(after: dict[str, str], body: bytes = b"tea", dialect: Dialect = ADR51, **before: str) -> ChangedParts:
    """Return what changes if the schedule of this module, with more headers, is replaced."""
    found = changed_parts(stored({**BEFORE, **before}), dialect, block_of(*after.items()), body)
    assert read_parts(json.loads(json.dumps(parts_document(found)))) == found, "it is read as it is written"
    return found


def test_only_fields_and_policies_have_their_values() -> None:
    after = {"Nats-Schedule": "@every 2h", "Nats-Schedule-Target": "S.out", "Nats-Schedule-TTL": "5m", "Secret": "key"}
    found = parts(after, b"milk")
    assert found == ChangedParts(
        (
            FieldChange("pattern", "@every 1h", "@every 2h"),
            FieldChange("ttl", None, "5m"),
            FieldChange("X-Limit", "3", None),
        ),
        ("Kind", "Secret"),
        True,
    )
    text = "pattern: @every 1h → @every 2h, ttl: none → 5m, X-Limit: 3 → none, header Kind, header Secret, body"
    assert parts_text(found) == text
    assert (parts(BEFORE), parts_text(NO_PARTS)) == (NO_PARTS, "")


def test_what_only_a_publish_or_a_server_adds_is_no_change() -> None:
    more = {"Nats-Msg-Id": "7", "Nats-Rollup": "sub", "Nats-Expected-Last-Sequence": "3"}
    assert parts(BEFORE | more) == NO_PARTS
    assert parts(BEFORE | {"Nats-TTL": "1h"}).headers == ("Nats-TTL",)


@pytest.mark.parametrize("value", ["S." + "x" * MAX_VALUE_CHARS, "S.a\x1b[2J", "S.\u202eb", "S.\udcff"])
def test_a_value_that_is_not_recorded_as_it_was_written_is_marked(value: str) -> None:
    [one] = parts(BEFORE | {"Nats-Schedule-Target": value}).fields
    assert (one.name, one.before, one.is_exact) == ("target", "S.out", False)
    assert one.after is not None
    assert (len(one.after) <= MAX_VALUE_CHARS, one.after.isprintable()) == (True, True)


def test_a_record_has_limits_whatever_the_schedule_has() -> None:
    policies = {policy_header(name, ADR51).decode(): "9" * 60_000 for name in POLICY_NAMES}
    own = {f"{number}-" + "h" * 1_000: "v" for number in range(1_000)}
    found = parts({**BEFORE, **policies, **own})
    assert len(found.headers) == MAX_HEADERS
    assert {len(name) for name in found.headers} == {MAX_NAME_CHARS}
    assert sum(len(one.after or "") for one in found.fields) <= MAX_CHARS + len(POLICY_NAMES)
    change = Change(Kind.EDITED, "S", "S.s", 1, 2, NOBODY, 0, parts=found)
    assert len(change_advisory(change).body) < 32 * 1024


def test_what_any_client_has_written_is_read_within_the_limits() -> None:
    row = {"name": "pattern", "before": "x" * 10**6, "after": "\x1b[2J", "exact": True}
    found = read_parts({"fields": [row] * 1_000, "headers": ["h" * 10**6] * 1_000, "body": True})
    [one] = found.fields
    assert (len(one.before or ""), one.is_exact) == (MAX_VALUE_CHARS, False)
    assert (one.after or "").isprintable()
    assert [len(name) for name in found.headers] == [MAX_NAME_CHARS] * MAX_HEADERS
    unmarked = read_parts({"fields": [{"name": "pattern", "before": "a", "after": "b"}]})
    assert unmarked.fields == (FieldChange("pattern", "a", "b", is_exact=False),)


# -- a change can be read from its advisory, whatever an author has written into it ----------------------------------

AT = 1_790_000_000 * SECOND + 1
CHANGE = Change(Kind.PAUSED, "S", "S.s", 7, 8, Author("jane", "maintenance"), AT, (), ("a note",))
SCHEMA = Draft202012Validator(advisories_schema())


def body_of(change: Change) -> dict[str, Any]:
    """Return the body of the advisory, as the schema describes it."""
    message = change_advisory(change)
    body: dict[str, Any] = json.loads(message.body)
    SCHEMA.validate(body)
    return body


def test_a_change_is_read_back_as_it_was() -> None:
    assert change_advisory(CHANGE).subject == f"nats_scheduler.advisory.{SCHEDULE_CHANGED}.S.S.s"
    assert read_change(body_of(CHANGE)) == CHANGE
    removed = replace(CHANGE, kind=Kind.REMOVED, after=None)
    assert read_change(body_of(removed)) == removed
    fired = replace(CHANGE, kind=Kind.FIRED, after=7, fires=(AT, AT + SECOND))
    assert read_change(body_of(fired)) == fired


@settings(max_examples=draws(15))
@given(st.text(), st.text(max_size=5), st.lists(st.text(), max_size=3))
def test_whatever_an_author_writes_is_printable_and_bounded(name: str, reason: str, notes: list[str]) -> None:
    wild = replace(CHANGE, author=Author(name, reason + "\x1b[2J\udcff\n"), notes=tuple(notes))
    body = body_of(wild)
    for text in (body["author"], body["reason"], *body["notes"]):
        assert text.isprintable()
        text.encode()  # JSON of other programs can hold it
    assert len(body["author"]) <= MAX_AUTHOR_CHARS
    assert body_of(replace(CHANGE, author=Author("x" * 1_000)))["author"] == "x" * (MAX_AUTHOR_CHARS - 1) + "…"
