"""The meaning of a pattern, or of a message that is not published yet, as a JSON object.

A pattern is explained in plain words, and by its next fires with the changes of the clock.
The commands and the service use the same functions. As in `observe.documents`, whose objects these contain, an object
always has all of its keys.
Limit: what a stream, a TTL or an outage does to a schedule, and what depends on stored messages, is not known here.
"""

from dataclasses import replace

from typing_extensions import TypedDict

from nats_scheduler.message.definition import pattern_form, read_definition, read_pattern
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.reading import Reading
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.spread import NO_SUBJECT
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.documents import (
    CheckedDocument,
    ErrorDocument,
    MarkedFireDocument,
    Rows,
    SkippedDocument,
    Time,
    checked_document,
    error_document,
    marked_fire_documents,
    skipped_documents,
)
from nats_scheduler.schedule.clock_changes import with_clock_changes
from nats_scheduler.schedule.explain import explain_pattern
from nats_scheduler.schedule.patterns import kind_of
from nats_scheduler.schedule.rfc3339 import format_rfc3339


class ExceptedDocument(TypedDict):
    """A row of days that `X-Except` leaves out, by the fire times of the pattern in it, in UTC."""

    first: Time
    last: Time


class ExplanationDocument(TypedDict):
    """The meaning of a pattern."""

    pattern: str
    time_zone: str | None
    kind: str | None
    """`at`, `every` or `cron`; null where it is no valid pattern, as is `words`."""
    words: str | None
    after: Time
    """The time at which the schedule would be stored."""
    fires: Rows[MarkedFireDocument]
    skipped: Rows[SkippedDocument]
    """The local times that are skipped before the last of the fires."""
    ends: bool
    """True if nothing fires after those."""
    error: ErrorDocument | None
    """Why the server would refuse it; null also where the pattern is none, and the message an ordinary one."""


def explanation_document(
    text: str, time_zone: str | None, stored_at: int, count: int, syntax: str | None = None
) -> ExplanationDocument:
    """Explain the pattern of a schedule that would be stored at an instant (ns), with at most `count` of its fires."""
    pattern = read_pattern(text, time_zone, stored_at, syntax)
    after = format_rfc3339(stored_at)
    if pattern is None or isinstance(pattern, Rejection):
        return {
            "pattern": text,
            "time_zone": time_zone,
            "kind": None,
            "words": None,
            "after": after,
            "fires": [],
            "skipped": [],
            "ends": True,
            "error": None if pattern is None else error_document(pattern),
        }
    timetable = Timetable(pattern, stored_at)
    fires = timetable.fires(count + 1)
    entries = with_clock_changes(pattern, stored_at, fires[:count])
    return {
        "pattern": text,
        "time_zone": time_zone,
        "kind": kind_of(pattern).value,
        "words": explain_pattern(pattern),
        "after": after,
        "fires": marked_fire_documents(timetable, entries),
        "skipped": skipped_documents(entries),
        "ends": len(fires) <= count,
        "error": None,
    }


def excepted_document(row: tuple[int, int]) -> ExceptedDocument:
    """Return a row of days that are left out, by its first and last fire time (ns)."""
    first, last = row
    return {"first": format_rfc3339(first), "last": format_rfc3339(last)}


ANY_STREAM_RULES = StreamRules(name="any", subjects=(">",), allow_msg_ttl=True, schedules_enabled=True, is_any=True)
"""The rules of a stream in which only the message itself can be wrong: it accepts any subject, and allows TTLs."""
DEFAULT_TARGET = "nats-scheduler.target"
"""The target of a pattern that is checked without headers."""


def pattern_reading(pattern: str, zone: str | None, stored_at: int, syntax: str | None = None) -> Reading | None:
    """Return what a message means that has this pattern, and a target, and is stored at `stored_at` (ns).

    It comes from the code that reads stored messages. With a syntax its headers are the portable ones.
    """
    dialect = ADR51 if syntax is None else PORTABLE
    headers = replace(pattern_form(pattern, zone, syntax), target=DEFAULT_TARGET).items(dialect)
    outcome = read_definition(with_headers(EMPTY_BLOCK, headers), NO_SUBJECT, ANY_STREAM_RULES, dialect, stored_at)
    if isinstance(outcome, Rejection):
        return Reading(rejection=outcome)
    return None if outcome is None else Reading(definition=outcome)


def reading_document(reading: Reading | None, now: int) -> CheckedDocument:
    """Return what a message means that is stored at `now` (ns); a pattern without headers has no target."""
    document = checked_document(reading, now)
    if document["schedule"] is not None and document["schedule"]["target"] == DEFAULT_TARGET:
        document["schedule"]["target"] = None
    return document


def is_valid(reading: Reading | None) -> bool:
    """Return whether a message is a schedule or a cancel that is accepted, and not any other message.

    A paused schedule is one if it would be accepted when it is resumed.
    """
    return reading is not None and reading.fault is None
