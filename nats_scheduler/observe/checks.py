"""What a message would mean that is not published yet: for the command `check`, and for a running sidecar.

Rule: the answer comes from the code that reads stored messages, never from a second implementation of the rules.
Without the rules of a stream, the stream is taken to accept every subject and to allow TTLs, so that only errors of the
message itself are found.
Cost: microseconds. Limit: what depends on stored messages is not known here.
"""

from nats_scheduler.message.definition import pattern_headers, read_definition
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.reading import Reading
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.observe.documents import CheckedDocument, checked_document

ANY_STREAM_RULES = StreamRules(name="any", subjects=(">",), allow_msg_ttl=True, schedules_enabled=True, is_any=True)
"""The rules of a stream in which only the message itself can be wrong."""
DEFAULT_SUBJECT = "nats-scheduler.check"
"""The subject of a message if none is named."""
DEFAULT_TARGET = "nats-scheduler.target"
"""The target of a pattern that is checked without headers."""


def pattern_reading(pattern: str, zone: str | None, stored_at: int, syntax: str | None = None) -> Reading | None:
    """Return what a message means that has this pattern, and a target, and is stored at `stored_at` (ns).

    With a syntax its headers are the portable ones.
    """
    dialect = ADR51 if syntax is None else PORTABLE
    headers = [*pattern_headers(pattern, zone, syntax, dialect), (dialect.target, DEFAULT_TARGET.encode())]
    outcome = read_definition(with_headers(EMPTY_BLOCK, headers), DEFAULT_SUBJECT, ANY_STREAM_RULES, dialect, stored_at)
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
