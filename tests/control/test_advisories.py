"""A change can be read from its advisory, whatever an author has written into it."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nats_scheduler.control.change_advisory import MAX_FIRES_NAMED, change_advisory, read_change
from nats_scheduler.control.changes import MAX_AUTHOR_CHARS, Author, Change, Kind
from nats_scheduler.message.advisory_messages import SCHEDULE_CHANGED
from nats_scheduler.observe.advisories import advisories_schema
from nats_scheduler.schedule.instants import SECOND
from tests.harness.seeds import draws

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


def test_a_change_of_many_fires_says_how_many() -> None:
    fires = tuple(AT + number * SECOND for number in range(MAX_FIRES_NAMED + 5))
    body = body_of(replace(CHANGE, kind=Kind.BACKFILLED, fires=fires))
    assert (len(body["fires"]), body["fires_stored"]) == (MAX_FIRES_NAMED, MAX_FIRES_NAMED + 5)


@settings(max_examples=draws(40))
@given(st.text(), st.text(max_size=5), st.lists(st.text(), max_size=3))
def test_whatever_an_author_writes_is_printable_and_bounded(name: str, reason: str, notes: list[str]) -> None:
    wild = replace(CHANGE, author=Author(name, reason + "\x1b[2J\udcff\n"), notes=tuple(notes))
    body = body_of(wild)
    for text in (body["author"], body["reason"], *body["notes"]):
        assert text.isprintable()
        text.encode()  # JSON of other programs can hold it
    assert len(body["author"]) <= MAX_AUTHOR_CHARS
    assert body_of(replace(CHANGE, author=Author("x" * 1_000)))["author"] == "x" * (MAX_AUTHOR_CHARS - 1) + "…"


def test_what_describes_no_change_is_none() -> None:
    wrong = {"change": "other", "changed": "soon", "author": 7, "sequence_before": "7", "stream": None}
    assert [key for key in wrong if read_change(body_of(CHANGE) | {key: wrong[key]}) is not None] == []


def test_what_another_client_wrote_into_it_is_made_printable() -> None:
    read = read_change(body_of(CHANGE) | {"author": "\x1b[2J", "fires": ["x", 7], "notes": 3})
    assert read is not None
    assert (read.author.name, read.fires, read.notes) == ("\N{REPLACEMENT CHARACTER}[2J", (), ())
