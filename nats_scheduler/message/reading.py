"""Read what a stored message means to the scheduler: a schedule, active or paused, a fire, a cancel or nothing.

Rule: one message, one reading, decided only by its headers, its subject and its stream's rules.
`read_message` gets every message of a served stream, and most mean nothing. So its first line discards those that do
not contain the letters `Nats-Schedule`.
The others are checked in the server's order (`message.reading`).
Cost: 0.1 to 0.2 µs for an ordinary message, less than 10 µs for an `@at` schedule, 2 to 3 µs of it to parse the time.
Limit: only the engine can check whether a cancel names a schedule (check 15).
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from nats_scheduler.message import rejection
from nats_scheduler.message.definition import (
    NO_TTL,
    Definition,
    definition_of,
    read_ttl,
    schedules_disabled,
    subject_fault,
    ttls_disabled,
)
from nats_scheduler.message.dialect import DIALECTS, Dialect, schedule_fields
from nats_scheduler.message.headers import CRLF, MSG_ID, MSG_TTL, decoded, header_value
from nats_scheduler.message.identity import IDENTITY_PREFIX, parse_beside, parse_identity
from nats_scheduler.message.policies import PAUSED, extension_prefix
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND

# Read what a client published in one dialect: a schedule, a cancel, both, or a fault.
#
# Rule: the checks of `docs/reference/headers.md` ("Order of checks") in the server's order; the first fault decides.
# The schedule comes first (checks 1 to 11, `message.definition`), then the cancel (12 to 14 and 16). The checks of
# the message's own TTL surround these; a server of 2.10 does not make them. Limit: only the engine can check whether
# a cancel names a schedule (check 15).

Published: TypeAlias = tuple[Definition | None, str | None] | Rejection | None
"""The schedule and the subject of the schedule that it cancels, or the first fault; None if it is neither."""


def read_in_dialect(
    fields: Mapping[bytes, str],
    block: bytes,
    subject: str,
    stored_at: int,
    rules: StreamRules,
    dialect: Dialect,
) -> Published:
    """Read a message in one dialect: first the schedule, then the cancel.

    `fields` are the dialect's headers that were found in the block; `stored_at` is the stream timestamp in nanoseconds.
    """
    if not fields:
        return None
    definition = definition_of(fields, block, subject, rules, dialect, stored_at)
    if isinstance(definition, Rejection):
        return definition
    cancels = _read_cancel(fields, subject, rules, dialect)
    if isinstance(cancels, Rejection):
        return cancels
    return None if definition is None and cancels is None else (definition, cancels)


def with_ttl_checked(published: Published, block: bytes, rules: StreamRules) -> Published:
    """Check the TTL of a message that means something to the scheduler, as the first or the last of all checks.

    As the server does: a valid TTL on a stream without TTLs is the first of all faults, an invalid TTL is the last one,
    on any stream (`test_the_ttl_of_the_schedule_itself_is_judged_first_or_last`).
    """
    if published is None or not (ttl := decoded(header_value(block, MSG_TTL) or b"")):
        return published
    seconds = read_ttl(ttl)
    if seconds and not rules.allow_msg_ttl:
        return ttls_disabled(MSG_TTL, ttl, rules)
    if seconds is None and not isinstance(published, Rejection):
        return rejection.STORAGE_TTL_INVALID.rejection(MSG_TTL.decode(), ttl, NO_TTL)
    return published


def _read_cancel(
    fields: Mapping[bytes, str], subject: str, rules: StreamRules, dialect: Dialect
) -> str | Rejection | None:
    """Read the atomic cancel (checks 12 to 14 and 16): the subject of the schedule that ends."""
    following = fields.get(dialect.next)
    scheduler = fields.get(dialect.scheduler, "")
    header, value, fault = dialect.scheduler, scheduler, ""
    if not following:
        if not scheduler:
            return None
        fault = f"is without {dialect.next.decode()}: expected 'purge' there, or neither"
    elif following != "purge":
        header, value, fault = dialect.next, following, "is not 'purge', the only value that a client may set"
    else:
        itself = "the message itself: a schedule ends another one"
        fault = subject_fault(scheduler, subject, "the subject of the schedule that ends", itself)
    if fault:
        return rejection.SCHEDULER_INVALID.rejection(header.decode(), value, fault)
    return scheduler if rules.schedules_enabled else schedules_disabled(dialect.scheduler, scheduler, rules)


# Paused schedules: the header of the pattern has another name, and the rest of the message is the same.
#
# A paused schedule is a message with `Nats-Schedule-X-Paused` in place of `Nats-Schedule` (portable:
# `X-Nats-Schedule-X-Paused` in place of `X-Nats-Schedule`). To servers and older sidecars it is an ordinary message,
# so nothing fires it; as the last message on its subject it replaces the active schedule, and an active one replaces
# it.
#
# The rules:
#
# - Pausing and resuming rename the header and change no other byte, so resuming what was paused gives the same block.
# - A message with the schedule header of a served dialect is no paused schedule, whatever other headers it has: it is
# read as a schedule, and an `X-Paused` beside it is an unknown policy (`message.policies`), which rejects it.
# - A message is a paused schedule only if it would be a schedule, valid or rejected, with the right name. So an empty
# `X-Paused` is an ordinary message, as an empty `Nats-Schedule` is.
# - A message that also cancels another schedule (`Nats-Scheduler`) is no paused schedule. As the server does: such a
# message leaves the schedule alive on whose subject it lands. To pause one with these headers, leave them out.
#
# Cost: one `bytes.find` for a message that is not paused; twice the cost of reading a schedule for one that is.
# Limits: a message that is a schedule in both dialects has to be paused in both, or it is active in the other one. An
# active version that stays stored below a paused one is found by a native server that builds its index anew (after a
# crash, or when the flag is switched on): a pause is complete when older versions on the subject are removed.

_SUFFIX = PAUSED.encode()


class Paused(NamedTuple):
    """A paused schedule: its dialect, and what its message would be if it was resumed."""

    dialect: Dialect
    resumed: Definition | Rejection


def paused_name(dialect: Dialect) -> bytes:
    """Return the name of the header that has the pattern of a paused schedule."""
    return extension_prefix(dialect) + b"Paused"


def paused_block(block: bytes, dialect: Dialect) -> bytes:
    """Return the block of the paused schedule: every `Nats-Schedule` is renamed, nothing else is changed.

    Every one, because any that is left could make the message an active schedule. A block without one is returned as
    it is.
    """
    return _renamed(block, dialect.schedule, paused_name(dialect))


def resumed_block(block: bytes, dialect: Dialect) -> bytes:
    """Return the block of the active schedule: the reverse of `paused_block`."""
    return _renamed(block, paused_name(dialect), dialect.schedule)


def read_paused(
    block: bytes | None, subject: str, rules: StreamRules, dialects: Sequence[Dialect], stored_at: int
) -> Paused | None:
    """Read a paused schedule; None if the message is none.

    `stored_at` (ns) is when the message was stored, or is to be stored if it is resumed now: a pattern may have fire
    times after one and none after the other. `dialects` are those that are served; the first one in which the message
    is paused counts.
    """
    if not block or not has_paused_header(block, dialects):
        return None
    if any(header_value(block, name) for dialect in dialects for name in (dialect.schedule, dialect.scheduler)):
        return None
    for dialect in dialects:
        if header_value(block, paused_name(dialect)) and (
            resumed := _read_resumed(resumed_block(block, dialect), subject, stored_at, rules, dialect)
        ):
            return Paused(dialect, resumed)
    return None


def has_paused_header(block: bytes, dialects: Sequence[Dialect]) -> bool:
    """Return whether a message has the header of a paused schedule, whatever else it has."""
    return block.find(_SUFFIX) >= 0 and any(header_value(block, paused_name(dialect)) for dialect in dialects)


def paused_pattern(block: bytes, dialect: Dialect) -> str:
    """Return the pattern of a paused schedule, as it was written."""
    return decoded(header_value(block, paused_name(dialect)) or b"")


def _read_resumed(
    block: bytes, subject: str, stored_at: int, rules: StreamRules, dialect: Dialect
) -> Definition | Rejection | None:
    """Read a message that was resumed; None if it is no schedule."""
    fields = schedule_fields(block, dialect)
    if not fields.get(dialect.schedule):
        return None
    found = with_ttl_checked(read_in_dialect(fields, block, subject, stored_at, rules, dialect), block, rules)
    return found[0] if isinstance(found, tuple) else found


def _renamed(block: bytes, name: bytes, new_name: bytes) -> bytes:
    return block.replace(CRLF + name + b":", CRLF + new_name + b":")


SCHEDULE_SUBSTRING = b"Nats-Schedule"
"""Every message that means something to the scheduler contains this, in both dialects."""


_IDENTITY_PREFIX = IDENTITY_PREFIX.encode()


class Generated(NamedTuple):
    """The fire that a message is: its schedule's subject and sequence, and the fire time in nanoseconds."""

    schedule: str
    sequence: int
    fire_time: int
    schedule_stored_at: int = 0
    """The instant (ns) at which the schedule was stored, if the caller has set it; the fire does not contain it."""
    delay: int = 0
    """The delay (ns) after its fire time with which it was to be sent, if the caller has set it."""


class Reading(NamedTuple):
    """The meaning of a message: a tuple, because a million are created at start.

    `definition` and `cancels` (the subject of another schedule) may both be set: a new schedule can end an old one.
    A `rejection` is always the only value, and so are `generated`, `beside` and `paused`.
    """

    definition: Definition | None = None
    rejection: Rejection | None = None
    generated: Generated | None = None
    cancels: str | None = None
    paused: Paused | None = None
    beside: Generated | None = None
    """A fire that was requested: it changes nothing of its schedule."""

    @property
    def defined(self) -> Definition | None:
        """The definition of the schedule, active or paused."""
        resumed = self.definition if self.paused is None else self.paused.resumed
        return None if isinstance(resumed, Rejection) else resumed

    @property
    def fault(self) -> Rejection | None:
        """Why the message is rejected, or would be if it was resumed."""
        resumed = self.rejection if self.paused is None else self.paused.resumed
        return resumed if isinstance(resumed, Rejection) else None


def read_message(
    block: bytes | None, subject: str, stored_at: int, rules: StreamRules, dialects: Sequence[Dialect]
) -> Reading | None:
    """Read a stored message; None if it means nothing to the scheduler.

    `stored_at` is its stream timestamp in nanoseconds. `dialects` are those that are served; the first one in which the
    message is a schedule decides, and the others are then ignored.
    """
    # `find`, not `in`: the latter first tries to convert its operand to a number, and costs three times as much.
    if not block or block.find(SCHEDULE_SUBSTRING) < 0:
        return None
    if block.find(_IDENTITY_PREFIX) >= 0:
        if generated := read_generated(block):
            return Reading(generated=generated)
        if beside := read_beside(block):
            return Reading(beside=beside)
    return read_published(block, subject, stored_at, rules, dialects)


def read_published(
    block: bytes, subject: str, stored_at: int, rules: StreamRules, dialects: Sequence[Dialect]
) -> Reading | None:
    """Do what `read_message` does with a message that is no fire, even if it claims to be one."""
    found: Published = None
    for dialect in dialects:
        fields = schedule_fields(block, dialect)
        if fields.get(dialect.schedule):
            found = read_in_dialect(fields, block, subject, stored_at, rules, dialect)
            break
        found = found or read_in_dialect(fields, block, subject, stored_at, rules, dialect)
    found = with_ttl_checked(found, block, rules)
    if (paused := read_paused(block, subject, rules, dialects, stored_at)) is not None:
        return Reading(paused=paused)
    if found is None or isinstance(found, Rejection):
        return None if found is None else Reading(rejection=found)
    return Reading(found[0], cancels=found[1])


def has_schedule_header(block: bytes, dialects: Sequence[Dialect]) -> bool:
    """Return whether a message has a `Nats-Schedule`, valid or not, in one of the dialects."""
    return any(header_value(block, dialect.schedule) for dialect in dialects)


def read_generated(block: bytes) -> Generated | None:
    """Recognise a fire of a sidecar: it has an identity, and its `Nats-Scheduler` names the same schedule.

    Both dialects count, whichever are served now: a fire from before an upgrade is still a fire.
    """
    value = header_value(block, MSG_ID)
    return None if value is None else _of_schedule(block, parse_identity(decoded(value)))


def read_beside(block: bytes) -> Generated | None:
    """Recognise a fire that was requested, by an identity of its own form; a schedule is none."""
    value = header_value(block, MSG_ID)
    found = None if value is None else _of_schedule(block, parse_beside(decoded(value)))
    return None if found is None or has_schedule_header(block, DIALECTS) else found


def is_fire_since(block: bytes, schedule: str, sequence: int, first: int) -> bool:
    """Return whether a message claims to be a fire of this version of a schedule, from fire time `first` (ns) on."""
    generated = read_generated(block)
    return generated is not None and generated[:2] == (schedule, sequence) and generated.fire_time >= first


def _of_schedule(block: bytes, identity: tuple[str, int, int] | None) -> Generated | None:
    """Return the fire with an identity whose `Nats-Scheduler` names the same schedule."""
    if identity is None or not any(_names_scheduler(block, one.scheduler, identity[0]) for one in DIALECTS):
        return None
    return Generated(*identity)


def _names_scheduler(block: bytes, name: bytes, schedule: str) -> bool:
    """Return whether `Nats-Scheduler` names the schedule, in a line of its own, as the sidecar writes it.

    This is not the server's search: a header of the sample may hide the line, or the sample may end in a bare LF before
    it. Then it is no header to any other program, as in a message that the native scheduler stores
    (`test_a_fire_is_known_though_its_sample_ended_in_a_bare_line_feed`).
    """
    return b"\n%b: %b\r\n" % (name, schedule.encode("utf-8", "surrogateescape")) in block


# Headers that look like those of a schedule but are not: no program reads them, and no server reports them.
#
# A server stores `nats-schedule` or `Nats-Schedul` like any header, and a schedule with a `Nats-Schedule-Timezone`
# fires in UTC; the publisher gets no error. The rule: misnamed headers do not change how a message is read; they are
# reported to the operator. Names that begin with `Nats-Schedule-X-` or `X-Nats-Schedule-X-` are policies
# (`message.policies`), which are checked.
#
# Cost: two `bytes.find` for an ordinary message, one or two microseconds for a message that contains the letters.
# Limit: a name is checked only if it begins with Nats (or X-Nats) and contains `hedul` in lower or upper case.

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
        for name in (dialect.target, dialect.source, dialect.time_zone, dialect.ttl, dialect.rollup):
            if header_value(block, name):
                reason = f"is without {dialect.schedule.decode()}, so that the message is an ordinary one"
                return (Misnamed(name.decode(), reason),)
    return ()


# The time at which a message expires by its `Nats-TTL`, for the messages that the sidecar removes itself (on 2.10).
#
# The rule: only schedules and generated messages have a lifetime here; any other message has none. A message of an
# application with a `Nats-TTL`, on a server that does not support the header, stays, as it always did. The grammar is
# the server's (`schedule.durations`); `Nats-TTL` belongs to the server and has one spelling in both dialects.
#
# Cost: one `bytes.find` for a message without TTL, some microseconds for a message with one.
# Limit: an invalid TTL counts as none, since a server that checks it would not have stored the message.


def expiry_of(message: StoredMessage, dialects: Sequence[Dialect]) -> int | None:
    """Return when a schedule or a generated message expires (ns since the Unix epoch); None if it never does.

    A schedule counts in the dialects that are served, valid or not, active or paused; a generated message counts in
    both.
    """
    lifetime = lifetime_of(message.block)
    if lifetime is None:
        return None
    block = message.block
    is_schedule = any(header_value(block, d.schedule) for d in dialects) or has_paused_header(block, dialects)
    is_ours = is_schedule or read_generated(block) or read_beside(block)
    return message.stored_at + lifetime if is_ours else None


def lifetime_of(block: bytes) -> int | None:
    """Return the lifetime (ns) in a message's headers; None if there is none, or if it never ends."""
    if block.find(MSG_TTL) < 0:
        return None
    seconds = read_ttl(decoded(header_value(block, MSG_TTL) or b""))
    return None if seconds is None or seconds <= 0 else seconds * SECOND
