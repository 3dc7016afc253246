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
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.schedule_form import BESIDE_PATTERN

MAX_NAME_BYTES = 80
"""A longer name is cut before it is reported."""

MAX_REPORTED_HEADERS = 8
"""The largest number of headers of one message that are reported."""

_KNOWN = frozenset(name for dialect in DIALECTS for name in dialect.names)
_EXTENSIONS = tuple(dialect.schedule + b"-X-" for dialect in DIALECTS)
_right = b"|".join([*(re.escape(name) + b":" for name in sorted(_KNOWN)), *map(re.escape, _EXTENSIONS)])
_near = re.compile(rb"\n(?!" + _right + rb")((?:[Xx][-_]?)?[Nn][Aa][Tt][Ss][^:\r\n]*[Hh][Ee][Dd][Uu][Ll][^:\r\n]*):")
_BY_LETTERS = {re.sub(r"[^a-z]", "", name.decode().lower()): name.decode() for name in sorted(_KNOWN)}


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
    written = name.decode("utf-8", "backslashreplace")
    letters = re.sub(r"[^a-z]", "", written.lower())
    if (meant := _BY_LETTERS.get(letters)) is None:
        near = get_close_matches(letters, _BY_LETTERS, n=1, cutoff=0.8)
        meant = _BY_LETTERS[near[0]] if near else None
    if meant is None:
        return Misnamed(written, "is no header of a schedule, and has no effect")
    if written.lower() == meant.lower():
        return Misnamed(written, f"is not {meant}: header names are case-sensitive, and this one has no effect")
    return Misnamed(written, f"is no header of a schedule, and has no effect: {meant} may be meant")


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
