"""The form of a schedule: what people and programs write of it and read of it, in fields, and the headers of these.

The rules:

- `FIELDS` is the one table of the headers that have a field. The options of commands, the keyword arguments of the
  client, the keys of files, the fields of the page and the keys of answers are made from it, or stand beside it here.
- A value is text, as its header has it; bytes that are not UTF-8 are surrogate escapes. Whether it is valid is decided
  by the code that reads stored messages (`message.definition`).
- A form is read as whatever fires the schedule reads it: the first value of each header that the server finds.
- No block that is written has a header that the value of another one hides (`hidden_fault`): a server searches for a
  name in the whole block, and the search ends where a value contains it twice. `to_block` puts subjects last where
  that helps, which it does for every form that was read. Fires have a rule of their own (`message.effective_headers`).

Cost: some ten microseconds for each block. Limit: 64 KiB, the server's limit for a block, is not checked here.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, Literal, NamedTuple, cast

from nats_scheduler.message.dialect import DIALECTS, Dialect, schedule_fields
from nats_scheduler.message.headers import (
    CRLF,
    MSG_ID,
    MSG_ROLLUP,
    MSG_TTL,
    Header,
    block_of,
    decoded,
    encoded,
    header_items,
    header_value,
)
from nats_scheduler.message.policies import (
    NO_POLICIES,
    PAUSED,
    POLICY_NAMES,
    X_TARGET,
    Policies,
    policy_header,
)
from nats_scheduler.message.rejection import HEADER_HIDDEN, HEADER_UNREADABLE, Rejection
from nats_scheduler.schedule.patterns import Pattern

try:
    from typing_extensions import TypedDict  # that of typing is refused by pydantic before Python 3.12
except ImportError:  # a program with the client alone, which reads no answers
    from typing import TypedDict


class Field(NamedTuple):
    """A header of a schedule that has a field of its own."""

    name: str
    """That of the attribute of `ScheduleForm`, the keyword argument, the key of files and answers, the page's field."""
    label: str
    """What it is called on the page."""
    words: str
    """A sentence for people who write it."""
    kind: Literal["text", "zone", "subject", "duration"] = "text"
    on: str = ""
    """The only value of a header that is there or not; "" if it has values of its own."""
    example: str = ""
    short: str = ""
    """What people type for its name, if that is shorter: `--tz`."""

    def header(self, dialect: Dialect) -> bytes:
        """Return the name of the header."""
        name: bytes = dialect.schedule if self.name == "pattern" else getattr(dialect, self.name)
        return name

    def text(self, given: object) -> str | None:
        """Return what is given for it, as its header has it: a text or a number, or whether a switch is on."""
        if self.on:
            return self.on if given else None
        return None if given is None else str(given)

    @property
    def typed(self) -> str:
        """What people type for its name."""
        return self.short or self.name


FIELDS = (
    Field("pattern", "Pattern", "When it fires.", example="0 30 9 * * mon-fri"),
    Field(
        *("time_zone", "Time zone", "Time zone of the cron pattern, as Europe/Berlin."),
        kind="zone",
        example="Europe/Berlin",
        short="tz",
    ),
    Field("target", "Target", "Where the fires go.", kind="subject", example="orders.due"),
    Field("source", "Source", "Fires copy the last message here instead of the body.", kind="subject"),
    Field(
        *("ttl", "TTL of its fires", "How long the stream keeps a fire, such as 5m, or never."),
        kind="duration",
        example="5m",
    ),
    Field("rollup", "Roll-up", "A fire replaces the messages on its target.", on="sub"),
)
"""All of them, in the usual order of the headers."""

_HEADERS = {dialect.name: [(field.name, field.header(dialect)) for field in FIELDS] for dialect in DIALECTS}
"""The names of all fields with their headers, by the name of the dialect: a dialect takes long to hash."""

BESIDE_PATTERN = FIELDS[1:]
"""All but the pattern, for which people have several words: `--at`, `--every`, `--cron`."""


@dataclass(frozen=True, slots=True)
class ScheduleForm:
    """A schedule in fields; None for a header that it does not have, or that is not said."""

    pattern: str | None = None
    time_zone: str | None = None
    target: str | None = None
    """None too if the target is in another stream, which the policy `X-Target` names."""
    source: str | None = None
    ttl: str | None = None
    rollup: str | None = None
    policies: tuple[tuple[str, str], ...] = ()
    """Their names without the prefix, such as `X-Jitter`, and their values."""
    headers: tuple[tuple[str, str], ...] = ()
    """All other headers in their order; duplicates are kept."""
    body: bytes | None = None
    """None if it is not said, as in a form that was read from a block."""

    @classmethod
    def from_block(cls, block: bytes, dialect: Dialect) -> "ScheduleForm":
        """Read the headers of a schedule that is not paused; its policies are in the order of their names."""
        found, named = schedule_fields(block, dialect), names_of_form(dialect)
        texts: dict[str, Any] = {name: found.get(header) for name, header in _HEADERS[dialect.name]}
        policies = ((name, found[header]) for header, name in _policy_headers(dialect).items() if header in found)
        own = ((decoded(name), decoded(value)) for name, value in header_items(block) if name not in named)
        return cls(**texts, policies=tuple(policies), headers=tuple(own))

    def items(self, dialect: Dialect) -> list[Header]:
        """Return the headers in the usual order: the fields, the policies as they are given, and the other headers."""
        values = [(header, getattr(self, name)) for name, header in _HEADERS[dialect.name]]
        values += [(policy_header(name, dialect), value) for name, value in self.policies]
        values += [(encoded(name), value) for name, value in self.headers]
        return [(name, encoded(value)) for name, value in values if value is not None]

    def effective_items(self, dialect: Dialect) -> list[Header] | Rejection:
        """Return the headers in an order in which they are read as this form; the reason if a value hides a header.

        It is the usual order, unless only one with the subjects at the end does.
        """
        items = self.items(dialect)
        wanted = {name: decoded(value) for name, value in reversed(items) if name.startswith(dialect.schedule)}
        for order in _orders(items, dialect):
            block = block_of(order)
            if schedule_fields(block, dialect) == wanted and hidden_fault(block) is None:
                return order
        block = block_of(items)
        return hidden_fault(block) or _unreadable(items, schedule_fields(block, dialect), dialect)

    def to_block(self, dialect: Dialect) -> bytes | Rejection:
        """Return the header block from which this form is read; the reason if a value hides a header."""
        items = self.effective_items(dialect)
        return block_of(items) if isinstance(items, list) else items


@dataclass(frozen=True, slots=True)
class Edit:
    """The changes of a schedule that an edit makes; all else stays as it is."""

    set: Sequence[Header] = ()
    """Headers with their new values. `Nats-Schedule` is the pattern, also of a schedule that is paused."""
    unset: Sequence[bytes] = ()
    """The names of headers to remove."""
    body: bytes | None = None
    """The new body; None to keep it."""
    policies: Sequence[tuple[str, str | None]] = ()
    """Policies by names such as `X-Limit`, in whichever spelling the schedule has: the new value, or None to remove."""

    def spelled(self, dialect: Dialect) -> "Edit":
        """Return the same edit with its policies among the headers."""
        headers = [(policy_header(name, dialect), value) for name, value in self.policies]
        new = [(header, encoded(value)) for header, value in headers if value is not None]
        gone = [header for header, value in headers if value is None]
        return Edit([*self.set, *new], [*self.unset, *gone], self.body)


def diff(before: ScheduleForm, after: ScheduleForm, dialect: Dialect) -> Edit:
    """Return the edit that makes one form of another one.

    Limit: an edit gives a header one value, so a name that occurs several times in `after` cannot be set.
    """
    old, new = before.items(dialect), after.items(dialect)
    names = {name for name, _value in new}
    gone = dict.fromkeys(name for name, _value in old if name not in names)
    body = None if after.body == before.body else after.body
    return Edit([item for item in new if item not in old], list(gone), body)


def differing(before: ScheduleForm, after: ScheduleForm) -> list[tuple[str, str | None, str | None]]:
    """Return the fields and the policies that differ: the name of each, and its values before and after."""
    old, new = [{**_fields(form), **dict(form.policies)} for form in (before, after)]
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    return [(name, old.get(name), new.get(name)) for name in names]


def _fields(form: ScheduleForm) -> dict[str, str | None]:
    return {field.name: getattr(form, field.name) for field in FIELDS}


@cache
def names_of_form(dialect: Dialect) -> frozenset[bytes]:
    """Return the headers that have a field, or are policies: all others are the publisher's own."""
    return frozenset((*(field.header(dialect) for field in FIELDS), *_policy_headers(dialect)))


@cache
def _policy_headers(dialect: Dialect) -> Mapping[bytes, str]:
    """Return the names of all policies by their headers, in order."""
    return {policy_header(name, dialect): name for name in sorted(POLICY_NAMES)}


# -- values that hide headers ------------------------------------------------------------------------------------------

_SEARCHED = (
    *(name for dialect in DIALECTS for name in (*dialect.names, policy_header(PAUSED, dialect))),
    *(MSG_ID, MSG_TTL, MSG_ROLLUP),
)
"""The names for which a server, or a sidecar, searches the block of a schedule. Policies are found line by line."""


def hidden_headers(block: bytes) -> list[bytes]:
    """Return the headers of a block that whatever reads the schedule does not find, or reads with another value."""
    if block.count(b"Nats-") == block.count(b"\r\nNats-") + block.count(b"\r\nX-Nats-"):
        return []  # no value has the beginning of a name, as in most blocks
    first = dict(reversed(header_items(block)))
    return [name for name in _SEARCHED if name in first and header_value(block, name) != first[name]]


def hidden_fault(block: bytes, but_for: Container[bytes] = ()) -> Rejection | None:
    """Return which value of a block hides a header; None if none does, or only those of `but_for` are hidden."""
    name = next((name for name in hidden_headers(block) if name not in but_for), None)
    if name is None:
        return None
    items = [item for item in header_items(block) if item[0] != name]
    hides = (item for item in items if header_value(block_of([item, (name, b"found")]), name) != b"found")
    by, value = next(hides, (name, b""))
    reason = f"hides {name.decode()} from the server: expected a value without this name"
    return HEADER_HIDDEN.rejection(decoded(by), decoded(value), reason)


def _orders(items: list[Header], dialect: Dialect) -> Iterator[list[Header]]:
    """Yield the usual order, and two that end in the target and the source: only these may contain any text."""
    yield items
    subjects = [item for item in items if item[0] in (dialect.target, dialect.source, X_TARGET)]
    others = [item for item in items if item not in subjects]
    yield [*others, *subjects]
    yield [*others, *subjects[::-1]]


def _unreadable(items: Sequence[Header], read: Mapping[bytes, str], dialect: Dialect) -> Rejection:
    """Return which value is not read as it is written."""
    wrong = items[0]
    for name, value in items:
        if CRLF in name + value or (name.startswith(dialect.schedule) and read.get(name) != decoded(value)):
            wrong = name, value
            break
    return HEADER_UNREADABLE.rejection(
        decoded(wrong[0]), decoded(wrong[1]), "is not one line without a blank before it"
    )


# -- the form as schedules are read ------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """The definition of a schedule without its pattern; the schedules of a fleet have only a few different ones.

    `ttl` is the text of the header as it was written, "" if there is none; it goes into the generated message
    unchanged.
    `rollup` is true if the generated message rolls up its target.
    `policies` contain their effect on the fire times too, which is in the pattern already.
    """

    dialect: Dialect
    target: str
    source: str | None
    ttl: str
    rollup: bool
    policies: Policies = NO_POLICIES


def terms_of(fields: Mapping[bytes, str], dialect: Dialect, policies: Policies) -> Terms:
    """Return the terms that headers say, by their names, beside policies that were read from them."""
    target = fields.get(dialect.target, "") if policies.target_stream is None else policies.target_stream
    source, ttl, rollup = fields.get(dialect.source), fields.get(dialect.ttl, ""), fields.get(dialect.rollup)
    return Terms(dialect, target, source or None, ttl, bool(rollup), policies)


def form_of(pattern: Pattern, terms: Terms) -> ScheduleForm:
    """Return the form of a schedule that was read; what its publisher's message holds besides is not in it."""
    _dialect, target, source, ttl, rollup, policies = terms
    return ScheduleForm(
        pattern.text,
        pattern.time_zone,
        target if policies.target_stream is None else None,
        source,
        ttl or None,
        "sub" if rollup else None,
        policies.written,
    )


# -- the form as programs write and read it ----------------------------------------------------------------------------


class FormArguments(TypedDict, total=False):
    """The keyword arguments of the client for the fields that a schedule may have; None is as if it was not given.

    The pattern with its time zone, and the target, have types of their own.
    """

    source: str | None
    """Fires copy the last message on this subject instead of the body."""
    ttl: timedelta | Literal["never"] | None
    """The TTL of each fire, a second or more."""
    rollup: bool | None
    """True if each fire replaces the earlier ones on its target; False, in an edit, if it does not any more."""


class FormDocument(TypedDict):
    """The fields of a schedule in an answer, as they were written."""

    pattern: str
    time_zone: str | None
    target: str | None
    """Null only where a pattern is checked without headers."""
    source: str | None
    ttl: str | None
    rollup: str | None
    """`sub`, or null."""


def form_document(pattern: Pattern, terms: Terms) -> FormDocument:
    """Return the fields of a schedule that was read; its target may be in another stream."""
    form = replace(form_of(pattern, terms), target=terms.target)
    return cast(FormDocument, {field.name: getattr(form, field.name) for field in FIELDS})
