"""What a change makes of a schedule: its fields and policies before and after, for the record of changes.

The rules:

- Fields and policies are recorded with their values. Of headers that are none of a schedule only the names are, and of
  a body only that it is another one: these may hold secrets, and the record has other readers than the stream.
- What is recorded is limited: `MAX_VALUE_CHARS` of each value, `MAX_CHARS` of all, `MAX_HEADERS` names. A value that is
  not recorded as it was written is marked, so that nobody takes it for the value.
- What is read back may have been written by any client: whatever it is, it is within the same limits.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nats_scheduler.control.current import Current
from nats_scheduler.control.words import words_of
from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.headers import MSG_ROLLUP, decoded
from nats_scheduler.message.policies import POLICY_NAMES
from nats_scheduler.message.schedule_form import FIELDS, ScheduleForm, differing, names_of_form

try:
    from typing_extensions import TypedDict  # that of typing is refused by pydantic before Python 3.12
except ImportError:  # a program with the client alone, which reads no answers
    from typing import TypedDict

SPELLING = "dialect"
"""The name of the change between two spellings of the headers, `adr51` and `portable`: no edit makes it."""

MAX_VALUE_CHARS = 200
"""Characters of one value that are recorded."""

MAX_CHARS = 4_000
"""Characters of all values together."""

MAX_HEADERS = 16
"""Names of headers that are none of a schedule."""

MAX_NAME_CHARS = 80

_NAMES = frozenset((SPELLING, *(field.name for field in FIELDS), *POLICY_NAMES))

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class FieldChange(NamedTuple):
    """A field, or a policy, that a change makes another one."""

    name: str
    """That of the field, such as `pattern`, of the policy, such as `X-Limit`, or `SPELLING`."""
    before: str | None
    """None if the schedule did not have it."""
    after: str | None
    is_exact: bool = True
    """True if both values are recorded as they were written: all of them, and nothing replaced."""


class ChangedParts(NamedTuple):
    """All that a change makes another one."""

    fields: tuple[FieldChange, ...] = ()
    headers: tuple[str, ...] = ()
    """Names of headers that are none of a schedule, which were added, changed or removed."""
    has_other_body: bool = False


NO_PARTS = ChangedParts()


class FieldChangeDocument(TypedDict):
    """A field, or a policy, that a change makes another one."""

    name: str
    """That of the field, such as `pattern`, of the policy, such as `X-Limit`, or `dialect`."""
    before: str | None
    """Null if the schedule did not have it."""
    after: str | None
    """Null if it does not have it any more."""
    exact: bool
    """True if both values are as they were written; false if one is cut, or a character was replaced."""


class PartsDocument(TypedDict):
    """What a change makes of a schedule that was there before; empty if there was none, or if it changes nothing."""

    fields: list[FieldChangeDocument]
    headers: list[str]
    """Names of headers that are none of a schedule, which were added, changed or removed: at most 16."""
    body: bool
    """True if it has another body."""


def changed_parts(before: Current, dialect: Dialect, block: bytes, body: bytes) -> ChangedParts:
    """Return what changes if another schedule replaces one: it has this spelling, active block and body."""
    forms = ScheduleForm.from_block(before.active_block, before.dialect), ScheduleForm.from_block(block, dialect)
    found = differing(*forms)
    if dialect is not before.dialect:
        found.insert(0, (SPELLING, before.dialect.name, dialect.name))
    return ChangedParts(_limited(found), _headers(before.active_block, block), body != (before.message.body or b""))


def parts_document(found: ChangedParts) -> PartsDocument:
    """Describe changed parts, for the record and for answers."""
    return {
        "fields": [
            {"name": name, "before": before, "after": after, "exact": is_exact}
            for name, before, after, is_exact in found.fields
        ],
        "headers": list(found.headers),
        "body": found.has_other_body,
    }


def read_parts(value: Any) -> ChangedParts:
    """Return the changed parts that a document describes, as far as it describes any."""
    given: Mapping[str, Any] = value if isinstance(value, dict) else {}
    rows = [one for one in _list(given.get("fields"))[: len(_NAMES)] if isinstance(one, dict)]
    fields: dict[str, tuple[str | None, str | None]] = {
        str(row.get("name")): (_text(row.get("before")), _text(row.get("after"))) for row in rows
    }
    inexact = {str(row.get("name")) for row in rows if row.get("exact") is not True}
    found = _limited([(name, *values) for name, values in fields.items() if name in _NAMES])
    headers = [one for one in _list(given.get("headers")) if isinstance(one, str)][:MAX_HEADERS]
    return ChangedParts(
        tuple(one._replace(is_exact=one.is_exact and one.name not in inexact) for one in found),
        tuple(printable(one, MAX_NAME_CHARS) for one in headers),
        given.get("body") is True,
    )


def _limited(found: list[tuple[str, str | None, str | None]]) -> tuple[FieldChange, ...]:
    """Return changes within the limits; each is marked if it is not as it was written."""
    limited, room = list[FieldChange](), MAX_CHARS
    for name, *values in found:
        kept = [None if one is None else printable(one, max(min(MAX_VALUE_CHARS, room), 1)) for one in values]
        room -= sum(len(one or "") for one in kept)
        limited.append(FieldChange(name, kept[0], kept[1], kept == values))
    return tuple(limited)


def _headers(before: bytes, after: bytes) -> tuple[str, ...]:
    """Return the names of the publisher's own headers that differ."""
    old, new = words_of(before), words_of(after)
    known = {MSG_ROLLUP, *(name for dialect in DIALECTS for name in names_of_form(dialect))}
    names = [name for name in dict.fromkeys((*old, *new)) if name not in known and old.get(name) != new.get(name)]
    return tuple(printable(decoded(name), MAX_NAME_CHARS) for name in names[:MAX_HEADERS])


def printable(text: str, most: int) -> str:
    """Return a text of at most `most` characters, without those that a terminal would act on or JSON cannot hold."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(one if one.isprintable() else _REPLACEMENT for one in cut)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
