"""A schedule as a row, and back.

The rule: what is read is equal to what was written, except for what is in progress: that begins anew.
What no row can have is an object for as long as it is held: a fire time before 1677 or after 2262, and a
definition that no headers can have.
"""

from collections.abc import Callable

from nats_scheduler.engine.holding.flight import DONE
from nats_scheduler.engine.holding.held import NEVER_EXPIRES, NO_EXPIRY, NO_WAKE, Held
from nats_scheduler.engine.holding.remembered import read_history, written_history
from nats_scheduler.engine.holding.table import DamagedTableError, Row
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.definition_block import definition_block
from nats_scheduler.message.policies import Kept
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.patterns import Pattern

MAX_INSTANT = (1 << 63) - 1
"""The last instant (ns) that a row can have, in 2262; the first one is as far before 1970."""

NEVER = -1
"""In the column `expires`: the TTL is `never`."""

MAX_KEPT_BLOCK_BYTES = 512
"""The headers of a message are kept as they are up to this length; of a longer one only those that count."""

DefinitionReader = Callable[[StoredMessage], Definition | None]
"""Reads what a message defines, None if it is no valid schedule."""


def row_of(held: Held) -> Row:
    """Return the row of a schedule, of which what is in progress begins anew. Raises `ValueError` if it can be none."""
    flight, pattern, wake, expires = held.flight, held.pattern, held.wake, held.expires
    fire_time = held.fire_time if flight is None else first_due(held)
    # One that is looked at later than its fire is due, as if it is left to the owner, would not bound checkpoints
    # (`engine.ownership.takeover`).
    due = held.send_time_of(fire_time)
    wake = due if wake == NO_WAKE else min(wake, due)
    if not -MAX_INSTANT <= fire_time <= MAX_INSTANT or wake > MAX_INSTANT or MAX_INSTANT < expires < NO_EXPIRY:
        raise ValueError("it fires, or its TTL ends, before 1677 or after 2262")
    ending = flight.ending.value if flight is not None and flight.stage in DONE else None
    return Row(
        held.subject,
        held.sequence,
        held.stored_at,
        held.kind.value,
        held.terms.target,
        pattern.time_zone,
        held.headers or written_headers(pattern, held.terms),
        fire_time,
        max(wake, 0),  # rows are read from 1970 on
        written_expiry(expires),
        held.mark,
        ending,
        written_history(held) if held.has_history else None,
        held.unfired_since,
    )


def written_headers(pattern: Pattern, terms: Terms) -> bytes:
    """Return the headers of a schedule with this definition. Raises `ValueError` if it can be none."""
    return definition_block(Definition(pattern, terms))


def written_expiry(expires: int) -> int | None:
    """Return the end (ns) of a TTL as it is written."""
    return None if expires == NO_EXPIRY else NEVER if expires == NEVER_EXPIRES else expires


def read_expiry(expires: int | None) -> int:
    """Return the end (ns) of a TTL that was written."""
    return NO_EXPIRY if expires is None else NEVER_EXPIRES if expires == NEVER else expires


def first_due(held: Held) -> int:
    """Return the fire time (ns) with which a schedule in progress begins anew.

    A make-up fire that is not stored stands for earlier ones: what happens to them is decided again, and reported.
    But a schedule that sends each of them begins with the first that it owes.
    """
    flight = held.flight
    if flight is None or flight.missed_since is None or held.terms.policies.missed.kept is Kept.ALL:
        return held.fire_time
    return flight.missed_since


def held_of(number: int, row: Row, read: DefinitionReader) -> Held:
    """Return the schedule of a row with an id. Raises `DamagedTableError`."""
    subject, sequence, stored_at, _kind, _target, _zone, headers, fire_time, wake, expires, mark, _, history, since = (
        row
    )
    definition = read(StoredMessage(subject, sequence, stored_at, headers, None))
    if definition is None:
        raise DamagedTableError(f"the headers of the schedule on {subject[:80]} are none of a schedule")
    held = Held(subject, sequence, definition, stored_at, fire_time)
    held.expires = read_expiry(expires)
    held.mark = mark
    held.headers = headers
    held.row = number
    held.wake = wake
    if since is not None:
        held.unfired_since = since
    if history is not None:
        read_history(held, history)
    return held
