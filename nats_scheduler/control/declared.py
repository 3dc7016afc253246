"""A schedule as a file declares it: in keys that people read, or as raw headers where these cannot say it exactly.

The rules:

- What is declared for a stored message writes that message again, byte for byte: the order of the headers, duplicates,
  blanks, and bytes that are not text. `declare` writes what it has found and compares; if the keys do not give the same
  block, the block itself is declared.
- What belongs to the publish that stored a message (`Nats-Msg-Id`, `Nats-Expected-…`) is left out, and so is the
  roll-up that a server adds where it fires itself: it adds that again.

Limit: what a subject that is not UTF-8 names cannot be written into a file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeAlias

from nats_scheduler.control.words import publishable_again
from nats_scheduler.message.dialect import ADR51, DIALECTS, Dialect
from nats_scheduler.message.headers import (
    CRLF,
    HEADER_LINE,
    MSG_ROLLUP,
    Header,
    decoded,
    encoded,
    header_value,
    with_headers,
)
from nats_scheduler.message.policies import POLICY_NAMES, PolicyText, extension_prefix, policy_header

OWNER = "X-Owner"
AT, EVERY = "@at ", "@every "

_ADDED_ROLLUP = CRLF + MSG_ROLLUP + b": sub" + CRLF + CRLF
"""The end of the block of a schedule to which a server has added the roll-up."""

_ORDERS: tuple[Literal["usual", "sorted"], ...] = ("usual", "sorted")

Order: TypeAlias = Literal["usual", "sorted"] | tuple[bytes, ...]
"""The order of the headers: that of `usual_headers`, by name (as Go clients send them), or these names in turn."""

_control = re.compile(r"[\x00-\x1f\x7f-\x9f]").search


@dataclass(frozen=True, slots=True)
class Readable:
    """The headers of a schedule in keys; a value is one line of text."""

    pattern: str
    dialect: Dialect = ADR51
    time_zone: str | None = None
    target: str | None = None
    source: str | None = None
    ttl: str | None = None
    rollup: bool = False
    policies: tuple[PolicyText, ...] = ()
    """In the order of their names."""
    headers: tuple[Header, ...] = ()
    """All other headers; duplicates are kept."""
    order: Order = "usual"


Content: TypeAlias = Readable | bytes
"""The headers of a schedule, as they are while it is not paused; bytes are a raw header block."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One schedule of a file."""

    subject: str
    content: Content
    body: bytes = b""
    paused: bool | None = None
    """True if it is to be paused, False if it is to be active; None leaves that as it is."""


def declare(block: bytes, dialect: Dialect, *, owner: str | None = None, is_fired_by_server: bool = False) -> Content:
    """Return what a file says of the headers of a schedule that is not paused.

    With an owner, the file as a whole names it, and so the label of this owner is left out.
    """
    block = publishable_again(block)
    if is_fired_by_server and block.endswith(_ADDED_ROLLUP):
        block = block[: -len(_ADDED_ROLLUP)] + CRLF + CRLF
    readable = _readable(block, dialect)
    if readable is None:
        return block
    unlabelled = _without_owner(readable, owner)
    for one, added in ((unlabelled, owner), (readable, None)):
        for order in _ORDERS:
            ordered = replace(one, order=order)
            if written(ordered, added) == block:
                return ordered
    ordered = replace(readable, order=_names(block))
    return ordered if written(ordered) == block else block


def written(content: Content, owner: str | None = None) -> bytes:
    """Return the header block of what is declared, with the label of an owner unless it has one."""
    if isinstance(content, bytes):
        return _with_owner_line(content, owner)
    if owner is not None and owner_of(content) is None:
        content = replace(content, policies=tuple(sorted([*content.policies, PolicyText(OWNER, owner)])))
    return block_of_lines([b"%b: %b" % item for item in _arranged(usual_headers(content), content.order)])


def dialect_of(content: Content) -> Dialect:
    """Return the spelling of what is declared; that of ADR-51 for headers that are no schedule."""
    if isinstance(content, Readable):
        return content.dialect
    return next((one for one in DIALECTS if header_value(content, one.schedule)), ADR51)


def usual_headers(content: Readable) -> list[Header]:
    """Return the headers in the usual order: those of the definition, its policies by name, then the others."""
    dialect = content.dialect
    values = [
        (dialect.schedule, content.pattern),
        (dialect.time_zone, content.time_zone),
        (dialect.target, content.target),
        (dialect.source, content.source),
        (dialect.ttl, content.ttl),
        (dialect.rollup, "sub" if content.rollup else None),
        *((policy_header(name, dialect), value) for name, value in content.policies),
    ]
    return [(name, encoded(value)) for name, value in values if value is not None] + list(content.headers)


def owner_of(content: Content) -> str | None:
    """Return the owner that the declared headers name themselves; None if they name none."""
    if isinstance(content, bytes):
        value = header_value(content, policy_header(OWNER, dialect_of(content)))
        return None if value is None else decoded(value)
    return next((value for name, value in content.policies if name == OWNER), None)


@cache
def reserved_names(dialect: Dialect) -> Mapping[bytes, str]:
    """Return the headers that have a key of their own, each with the key."""
    keys = {
        dialect.schedule: "at, every or cron",
        dialect.time_zone: "time_zone",
        dialect.target: "target",
        dialect.source: "source",
        dialect.ttl: "ttl",
        dialect.rollup: "rollup",
    }
    return keys | {policy_header(name, dialect): f"policies.{policy_key(name)}" for name in POLICY_NAMES}


def policy_key(name: str) -> str:
    """Return the key of a policy in a file: `done_within` for `X-Done-Within`."""
    return name.removeprefix("X-").lower().replace("-", "_")


def order_fault(content: Readable) -> str:
    """Return what is wrong with an order that was given; "" if it has each header once."""
    if isinstance(content.order, str):
        return ""
    names = [name for name, _value in usual_headers(content)]
    if sorted(names) == sorted(content.order):
        return ""
    return f"the names of all headers, each as often as it occurs: {', '.join(sorted(map(_shown, names)))}"


def as_text(value: bytes) -> str | None:
    """Return a value as text that a file can hold in one line; None if it has to be encoded."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if _control(text) else text


def _readable(block: bytes, dialect: Dialect) -> Readable | None:
    """Read a block whose lines are all `Name: value`, and in which no header of the schedule occurs twice."""
    items = _items(block)
    if items is None:
        return None
    reserved, found, others = reserved_names(dialect), dict[bytes, str](), list[Header]()
    for name, value in items:
        if as_text(name) is None:
            return None
        if name not in reserved:
            others.append((name, value))
            continue
        text = as_text(value)
        if text is None or name in found:
            return None
        found[name] = text
    if dialect.schedule not in found or found.get(dialect.rollup, "sub") != "sub":
        return None
    prefix = extension_prefix(dialect)
    policies = [
        PolicyText(name[len(dialect.schedule) + 1 :].decode(), value)
        for name, value in found.items()
        if name.startswith(prefix)
    ]
    return Readable(
        found[dialect.schedule],
        dialect,
        found.get(dialect.time_zone),
        found.get(dialect.target),
        found.get(dialect.source),
        found.get(dialect.ttl),
        dialect.rollup in found,
        tuple(sorted(policies)),
        tuple(others),
    )


def _items(block: bytes) -> list[Header] | None:
    """Return the headers of a block; None if `Name: value` in each line does not give the same block."""
    lines = lines_of(block)
    if lines is None:
        return None
    parts = [line.partition(b": ") for line in lines]
    if any(not name or b":" in name or not colon for name, colon, _value in parts):
        return None
    return [(name, value) for name, _colon, value in parts]


def lines_of(block: bytes) -> list[bytes] | None:
    """Return the lines of a block after its first one; None if `block_of_lines` would not give the same block."""
    lines = block[len(HEADER_LINE) :].split(CRLF)[:-2]
    return lines if block_of_lines(lines) == block else None


def block_of_lines(lines: Sequence[bytes]) -> bytes:
    """Return the header block with these lines."""
    return b"".join((HEADER_LINE, *(line + CRLF for line in lines), CRLF))


def _names(block: bytes) -> tuple[bytes, ...]:
    return tuple(name for name, _value in _items(block) or ())


def _arranged(items: list[Header], order: Order) -> list[Header]:
    """Put headers into an order; those that it does not name are the last."""
    if order == "usual":
        return items
    if order == "sorted":
        return sorted(items, key=lambda item: item[0])
    left, arranged = list(items), []
    for name in order:
        at = next((index for index, item in enumerate(left) if item[0] == name), None)
        if at is not None:
            arranged.append(left.pop(at))
    return arranged + left


def _without_owner(content: Readable, owner: str | None) -> Readable:
    return replace(content, policies=tuple(one for one in content.policies if one != (OWNER, owner)))


def _with_owner_line(block: bytes, owner: str | None) -> bytes:
    """Append the label of an owner to a raw block."""
    if owner is None or owner_of(block) is not None:
        return block
    return with_headers(block, [(policy_header(OWNER, dialect_of(block)), encoded(owner))])


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
