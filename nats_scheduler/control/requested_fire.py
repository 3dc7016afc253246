"""Build a fire that was requested: what a fire stores, with an identity of its own, and who asked for what.

The rules:

- It is what a fire of the schedule is (`message.generated`): its target, its content or the last message of its source,
  its TTL and roll-up, and its report if the schedule has an `X-Report`.
- `X-Nats-Schedule-X-By` says that it was requested. Its identity is that of no fire of the timetable, unless it is one
  that was missed.
- It never says `purge`: a program that does not know this identity would take it for the cancel of the schedule.
- Servers of 2.14 and later refuse a client's `Nats-Scheduler` (10212). So where the server itself fires, the fire has
  the portable names, as the make-up fires of a graduation.
"""

from typing import Literal

from nats_scheduler.control.current import Current
from nats_scheduler.control.errors import NotPossibleError, RejectedError
from nats_scheduler.control.store_port import Served
from nats_scheduler.control.storing import check_no_request
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.generated import (
    BY,
    PURGE,
    REPORT_NAMES,
    as_stored_natively,
    fire_block,
    guard_headers,
    identity_header,
    report_headers,
)
from nats_scheduler.message.headers import Header, without_headers
from nats_scheduler.message.identity import beside_identity, fire_identity
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stored import StoredMessage


def requested_fire(
    found: Current,
    served: Served,
    source: StoredMessage | None,
    fire_time: int,
    by: Literal["fire", "backfill"],
    *,
    is_missed: bool = False,
) -> tuple[bytes, bytes]:
    """Return the header block and the body of the fire of a schedule for a fire time (ns).

    `is_missed` if that is a fire time of its timetable.
    `source` is the last message of the schedule's source. Raises `RejectedError` if the schedule never fires, and
    `NotPossibleError` if the server would not store the fire.
    """
    definition = definition_of(found)
    pattern, terms = definition
    check_no_request(served, found)
    stamped = terms._replace(dialect=PORTABLE) if found.is_fired_by_server else terms
    if served.rules.rolls_up_by_purge and terms.policies.target_stream is None:
        stamped = stamped._replace(rollup=False)  # the sidecar rolls up when it reads the fire
    identity = fire_identity if is_missed else beside_identity
    ours: list[Header] = [(BY, by.encode()), identity_header(identity(found.subject, found.sequence, fire_time))]
    if terms.policies.report:
        ours = [*report_headers(pattern, fire_time, None, 0), *ours]
    if served.server.has_guard and terms.policies.target_stream is None:
        ours += guard_headers(found.subject, found.sequence)
    following = _following(found, fire_time)
    content = found.message if source is None else source
    block = fire_block(_base(found, source, stamped), pattern, stamped, found.subject, following, ours)
    if block is not None and following is None and not is_missed:
        block = without_headers(block, (stamped.dialect.next,))
        if b"\n%b: %b\r\n" % (stamped.dialect.next, PURGE) in block:
            block = None
    if block is None:
        raise NotPossibleError(f"{found.subject}: header names in the values of the message hide those of the fire")
    return block, content.body or b""


def definition_of(found: Current) -> Definition:
    """Return what a schedule says; raises `RejectedError` if it is rejected."""
    if found.rejection is not None:
        raise RejectedError(found.rejection)
    assert found.definition is not None, "what is not rejected has a definition"
    return found.definition


def _base(found: Current, source: StoredMessage | None, terms: Terms) -> bytes:
    """Return the headers that the fire copies, without those that say something of another fire."""
    base = as_stored_natively(found.message.block) if source is None else source.block
    if PORTABLE.schedule not in base:
        return base
    others = (PORTABLE.schedule,) if terms.dialect is ADR51 else ()
    return without_headers(base, (*REPORT_NAMES, BY), others)


def _following(found: Current, fire_time: int) -> int | None:
    """Return when the schedule fires next by itself after a fire time (ns); None if it does not."""
    if found.is_paused:
        return None
    return next(found.timetable().each(fire_time), None)
