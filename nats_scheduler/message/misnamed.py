"""Headers that look like those of a schedule but are not: no program reads them, and no server reports them.

A server stores `nats-schedule` or `Nats-Schedul` like any header, and a schedule with a `Nats-Schedule-Timezone` fires
in UTC; the publisher gets no error. Misnamed headers do not change how a message is read; they are reported to the
operator. Names that begin with `Nats-Schedule-X-` or `X-Nats-Schedule-X-` are policies (`message.policies`), which are
checked.

Limit: a name is checked only if it begins with Nats (or X-Nats) and contains `hedul` in lower or upper case.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.headers import header_items, header_value, shown
from nats_scheduler.message.paused import paused_name
from nats_scheduler.message.policies import POLICY_NAMES, extension_prefix, policy_header
from nats_scheduler.message.rejection import HEADER_MISNAMED, Rejection
from nats_scheduler.message.schedule_form import BESIDE_PATTERN, names_of_form

MAX_NAME_BYTES = 80
"""A longer name is cut before it is reported."""

MAX_REPORTED_HEADERS = 8
"""The largest number of headers of one message that are reported."""

_KNOWN = frozenset(name for dialect in DIALECTS for name in dialect.names)
_EXTENSIONS = tuple(extension_prefix(dialect) for dialect in DIALECTS)
_right = b"|".join([*(re.escape(name) + b":" for name in sorted(_KNOWN)), *map(re.escape, _EXTENSIONS)])
_near = re.compile(rb"\n(?!" + _right + rb")((?:[Xx][-_]?)?[Nn][Aa][Tt][Ss][^:\r\n]*[Hh][Ee][Dd][Uu][Ll][^:\r\n]*):")


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


_POLICIES = [(policy_header(name, dialect).decode(), name) for dialect in DIALECTS for name in POLICY_NAMES]
_BY_LETTERS = {
    **{_letters(header.replace(name, name.removeprefix("X-"))): header for header, name in _POLICIES},
    **{_letters(header): header for header, _name in _POLICIES},
    **{_letters(name.decode()): name.decode() for name in sorted(_KNOWN)},
}
"""What a name may mean, by its letters: a policy without its `X-` too, unless it is one of `_KNOWN` then."""


class Misnamed(NamedTuple):
    """A header that looks like one of a schedule, as it was written, and the reason why it is not one."""

    header: str
    reason: str


def misnamed_headers(block: bytes, dialects: Sequence[Dialect], *, is_schedule: bool) -> tuple[Misnamed, ...]:
    """Return the headers of a message that look like those of a schedule but are not.

    If all names are correct and the message is no schedule, return a header that has no effect without `Nats-Schedule`.
    """
    if _near.search(block) is not None:
        found = _near.findall(block)[:MAX_REPORTED_HEADERS]
        return tuple(_misnamed(name[:MAX_NAME_BYTES]) for name in dict.fromkeys(found))
    return () if is_schedule else _alone(block, dialects)


@lru_cache(maxsize=256)
def _misnamed(name: bytes) -> Misnamed:
    """Explain a name that is similar to a known one; cached, because a program repeats its mistake in each message."""
    written = shown(name)
    letters = _letters(written)
    if (meant := _BY_LETTERS.get(letters)) is None:
        near = get_close_matches(letters, _BY_LETTERS, n=1, cutoff=0.8)
        meant = _BY_LETTERS[near[0]] if near else None
    if meant is None:
        return Misnamed(written, "is no header of a schedule, and has no effect")
    if written.lower() == meant.lower():
        return Misnamed(written, f"is not {meant}: header names are case-sensitive, and this one has no effect")
    return Misnamed(written, f"is no header of a schedule, and has no effect: {meant} may be meant")


def misnamed_fault(block: bytes, before: bytes = b"") -> Rejection | None:
    """Return which header of a schedule is to be written although no program reads it; None if each has an effect.

    It looks like one of a schedule and is none, or is one of the spelling that the schedule does not have. What the
    block `before` it has does not count.
    """
    items, known = header_items(block), {name for name, _value in header_items(before)}
    names = {name for name, _value in items}
    spellings = [one for one in DIALECTS if not names.isdisjoint((one.schedule, paused_name(one)))]
    for name, value in items:
        wrong = misnamed_headers(b"\n%b:" % name, DIALECTS, is_schedule=True) or _of_other(name, spellings)
        if wrong and name not in known:
            header, reason = wrong[0]
            return HEADER_MISNAMED.rejection(header, shown(value), reason)
    return None


def _of_other(name: bytes, spellings: Sequence[Dialect]) -> tuple[Misnamed, ...]:
    """Return a header that belongs to a spelling which a schedule does not have; none if it is no schedule."""
    for other in (one for one in DIALECTS if spellings and one not in spellings):
        if name in names_of_form(other) or name.startswith(extension_prefix(other)):
            beside, written = spellings[0].schedule.decode(), shown(name)
            meant = beside + written.removeprefix(other.schedule.decode())
            return (Misnamed(written, f"has no effect beside {beside}: {meant} may be meant"),)
    return ()


def _alone(block: bytes, dialects: Sequence[Dialect]) -> tuple[Misnamed, ...]:
    """Return the first header of a schedule in a message that has no `Nats-Schedule`."""
    if any(extension in block for extension in _EXTENSIONS):
        return ()
    for dialect in dialects:
        if header_value(block, dialect.schedule):
            return ()
        for name in (field.header(dialect) for field in BESIDE_PATTERN):
            if header_value(block, name):
                reason = f"is without {dialect.schedule.decode()}, so that the message is an ordinary one"
                return (Misnamed(name.decode(), reason),)
    return ()
