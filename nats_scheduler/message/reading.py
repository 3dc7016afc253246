"""Read what a stored message means to the scheduler: a schedule, active or paused, a fire, a cancel or nothing.

The rules:

- One message, one reading, decided only by its headers, its subject and its stream's rules.
- `read_message` gets every message of a served stream, and most mean nothing. So its first line discards those that do
  not contain the letters `Nats-Schedule`.
- Whether a cancel names a schedule (check 15) only the engine knows.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nats_scheduler.message.definition import Definition, read_ttl
from nats_scheduler.message.dialect import DIALECTS, Dialect, schedule_fields
from nats_scheduler.message.headers import MSG_ID, MSG_TTL, decoded, encoded, header_value
from nats_scheduler.message.identity import IDENTITY_PREFIX, parse_beside, parse_identity
from nats_scheduler.message.paused import Paused, has_paused_header, read_paused
from nats_scheduler.message.published import Published, read_in_dialect, with_ttl_checked
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND

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
    return b"\n%b: %b\r\n" % (name, encoded(schedule)) in block


def expiry_of(message: StoredMessage, dialects: Sequence[Dialect]) -> int | None:
    """Return when a schedule or a generated message expires by its `Nats-TTL` (ns since the Unix epoch); None if never.

    A schedule counts in the dialects that are served, valid or not, active or paused; a generated message counts in
    both. Any other message has no lifetime here: on a server that does not support the header, it stays.
    """
    lifetime = lifetime_of(message.block)
    if lifetime is None:
        return None
    block = message.block
    is_schedule = any(header_value(block, d.schedule) for d in dialects) or has_paused_header(block, dialects)
    is_ours = is_schedule or read_generated(block) or read_beside(block)
    return message.stored_at + lifetime if is_ours else None


def lifetime_of(block: bytes) -> int | None:
    """Return the lifetime (ns) in a message's headers; None if there is none, or if it never ends.

    An invalid TTL counts as none: a server that checks it would not have stored the message.
    """
    if block.find(MSG_TTL) < 0:
        return None
    seconds = read_ttl(decoded(header_value(block, MSG_TTL) or b""))
    return None if seconds is None or seconds <= 0 else seconds * SECOND
