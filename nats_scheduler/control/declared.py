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
from collections.abc import Mapping
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
    block_of,
    block_of_lines,
    decoded,
    encoded,
    header_items,
    header_value,
    with_headers,
)
from nats_scheduler.message.policies import POLICY_NAMES, policy_header
from nats_scheduler.message.schedule_form import BESIDE_PATTERN, FIELDS, ScheduleForm

OWNER = "X-Owner"
AT, EVERY = "@at ", "@every "

_ADDED_ROLLUP = CRLF + MSG_ROLLUP + b": sub" + CRLF + CRLF
"""The end of the block of a schedule to which a server has added the roll-up."""

_ORDERS: tuple[Literal["usual", "sorted"], ...] = ("usual", "sorted")

Order: TypeAlias = Literal["usual", "sorted"] | tuple[bytes, ...]
"""The order of the headers: that of `ScheduleForm`, by name (as Go clients send them), or these names in turn."""

_unprintable = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]").search


@dataclass(frozen=True, slots=True)
class Readable:
    """The headers of a schedule in keys: the text of each field, and of each policy, is one line."""

    form: ScheduleForm
    """Without the body, which stands beside raw headers too."""
    dialect: Dialect = ADR51
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
    readable = Readable(ScheduleForm.from_block(block, dialect), dialect)
    if not _has_keys(readable.form):
        return block
    unlabelled = _without_owner(readable, owner)
    for one, added in ((unlabelled, owner), (readable, None)):
        for order in _ORDERS:
            ordered = replace(one, order=order)
            if written(ordered, added) == block:
                return ordered
    ordered = replace(readable, order=tuple(name for name, _value in header_items(block)))
    return ordered if written(ordered) == block else block


def written(content: Content, owner: str | None = None) -> bytes:
    """Return the header block of what is declared, with the label of an owner unless it has one."""
    if isinstance(content, bytes):
        return _with_owner_line(content, owner)
    form, dialect = content.form, content.dialect
    if owner is not None and owner_of(content) is None:
        form = replace(form, policies=tuple(sorted([*form.policies, (OWNER, owner)])))
    usual = form.to_block(dialect) if content.order == "usual" else None
    # What hides a header is written all the same: `control.plan` finds that.
    return usual if isinstance(usual, bytes) else block_of(_arranged(form.items(dialect), content.order))


def dialect_of(content: Content) -> Dialect:
    """Return the spelling of what is declared; that of ADR-51 for headers that are no schedule."""
    if isinstance(content, Readable):
        return content.dialect
    return next((one for one in DIALECTS if header_value(content, one.schedule)), ADR51)


def owner_of(content: Content) -> str | None:
    """Return the owner that the declared headers name themselves; None if they name none."""
    if isinstance(content, bytes):
        value = header_value(content, policy_header(OWNER, dialect_of(content)))
        return None if value is None else decoded(value)
    return next((value for name, value in content.form.policies if name == OWNER), None)


@cache
def reserved_names(dialect: Dialect) -> Mapping[bytes, str]:
    """Return the headers that have a key of their own, each with the key."""
    keys = {FIELDS[0].header(dialect): "at, every or cron"}
    keys |= {field.header(dialect): field.name for field in BESIDE_PATTERN}
    return keys | {policy_header(name, dialect): f"policies.{policy_key(name)}" for name in POLICY_NAMES}


def policy_key(name: str) -> str:
    """Return the key of a policy in a file: `done_within` for `X-Done-Within`."""
    return name.removeprefix("X-").lower().replace("-", "_")


def order_fault(content: Readable) -> str:
    """Return what is wrong with an order that was given; "" if it has each header once."""
    if isinstance(content.order, str):
        return ""
    names = [name for name, _value in content.form.items(content.dialect)]
    if sorted(names) == sorted(content.order):
        return ""
    return f"the names of all headers, each as often as it occurs: {', '.join(sorted(map(_shown, names)))}"


def as_text(value: bytes) -> str | None:
    """Return a value as text that a file can hold in one line; None if it has to be encoded."""
    text = decoded(value)
    return text if is_text(text) else None


def is_text(text: str) -> bool:
    """Return whether a file can hold a text in one line: it is UTF-8, and has no control characters."""
    return not _unprintable(text)


def _has_keys(form: ScheduleForm) -> bool:
    """Return whether keys can say a form: it has a pattern, and all but the publisher's values is text."""
    fields = {field.name: getattr(form, field.name) for field in FIELDS}
    switches = (fields[field.name] in (None, field.on) for field in FIELDS if field.on)
    names = [name for name, _value in form.headers]
    texts = [*filter(None, fields.values()), *(value for _name, value in form.policies), *names]
    return form.pattern is not None and all(switches) and all(names) and all(map(is_text, texts))


def lines_of(block: bytes) -> list[bytes] | None:
    """Return the lines of a block after its first one; None if `block_of_lines` would not give the same block."""
    lines = block[len(HEADER_LINE) :].split(CRLF)[:-2]
    return lines if block_of_lines(lines) == block else None


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
    policies = tuple(one for one in content.form.policies if one != (OWNER, owner))
    return replace(content, form=replace(content.form, policies=policies))


def _with_owner_line(block: bytes, owner: str | None) -> bytes:
    """Append the label of an owner to a raw block."""
    if owner is None or owner_of(block) is not None:
        return block
    return with_headers(block, [(policy_header(OWNER, dialect_of(block)), encoded(owner))])


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
