"""The advisory of a change, `schedule_changed`: who changed which schedule, when, why, and what was done.

It is published by whatever changes schedules, and kept by the stream that keeps failures.

The rules:

- What people write (author, reason) is cut to `MAX_AUTHOR_CHARS` and made printable. The server vouches for none of it.
- Its keys are those of a change in a JSON document (`observe.documents`), with 0 for no sequence.
- A change that is read back from an advisory is one that any client may have written.
- What of the schedule is another one is in it as `control.changed_parts` limits it.
- A change of many fires names the first `MAX_FIRES_NAMED`.
"""

from collections.abc import Mapping
from typing import Any

from nats_scheduler.control.changed_parts import parts_document, printable, read_parts
from nats_scheduler.control.changes import MAX_AUTHOR_CHARS, Author, Change, Kind
from nats_scheduler.message.advisory_messages import AdvisoryMessage, advisory_message
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339

MAX_FIRES_NAMED = 100
"""Fires of one change that its advisory names."""

MAX_NOTE_CHARS = 400
"""Characters of one note: it may show a header."""


def change_advisory(change: Change) -> AdvisoryMessage:
    """Return the advisory of a change that was made; what is found about the schedule is among its notes."""
    found = (finding.sentence for finding in change.findings)
    return advisory_message(
        "schedule_changed",
        change.stream,
        {
            "schedule": change.subject,
            "change": change.kind.value,
            "sequence_before": change.before or 0,
            "sequence": change.after or 0,
            "changed": format_rfc3339(change.at),
            "author": printable(change.author.name, MAX_AUTHOR_CHARS),
            "reason": printable(change.author.reason, MAX_AUTHOR_CHARS),
            "fires": [format_rfc3339(one) for one in change.fires[:MAX_FIRES_NAMED]],
            "fires_stored": len(change.fires),
            "parts": parts_document(change.parts),
            "notes": [printable(note, MAX_NOTE_CHARS) for note in (*change.notes, *found)],
        },
    )


def read_change(body: Mapping[str, Any]) -> Change | None:
    """Return the change that an advisory describes; None if it describes none."""
    texts = [body.get(key) for key in ("stream", "schedule", "change", "changed", "author", "reason")]
    numbers = [body.get(key) for key in ("sequence_before", "sequence")]
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(number, int) for number in numbers):
        return None
    stream, schedule, kind, at, author, reason = map(str, texts)
    when = parse_rfc3339(at)
    if kind not in list(Kind) or not isinstance(when, int):
        return None
    fires = [parse_rfc3339(one) for one in _texts(body.get("fires"))]
    return Change(
        Kind(kind),
        stream,
        schedule,
        numbers[0] or None,
        numbers[1] or None,
        Author(printable(author, MAX_AUTHOR_CHARS), printable(reason, MAX_AUTHOR_CHARS)),
        when,
        tuple(fire for fire in fires if isinstance(fire, int)),
        tuple(printable(note, MAX_NOTE_CHARS) for note in _texts(body.get("notes"))),
        read_parts(body.get("parts")),
    )


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
