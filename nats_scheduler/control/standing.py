"""What is on a subject, where a schedule that has ended counts as absent.

A server that fires by itself removes a schedule in the step in which it stores its last fire. Where a sidecar fires,
the purge follows a moment later, and the fire is stored already when another client reads the schedule.

The rules:

- A schedule has ended if its last fire is stored: a message on its target that names this version of it, and says that
  none follows. That its time has passed is no sign: what has not fired is never taken for ended, because its fire would
  be lost.
- On a stream that removes what was consumed, the fire may be gone, and with replicas the leader may have it a moment
  later than a consumer. If none is seen there, the subject is read again for `SETTLING_WAITS_SECONDS`, because the
  purge follows. After that it counts as what it says.

Limits: a fire that is in flight at that moment is not seen. If a consumer has removed the fire, and the purge does not
follow in time, the schedule counts as unfired. The fires of calendars and limits are counted without the days of
calendars, so that one with both may not be looked for.
"""

from typing import NamedTuple

from nats_scheduler.control.current import Current, is_marker, none_here, read_current
from nats_scheduler.control.errors import ConflictError, NotFoundError
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND

SETTLING_WAITS_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6)
"""Waits before a subject is read again on which a schedule may have fired, and its fire may be gone."""

SETTLING_LIMIT_NS = 30 * SECOND
"""A schedule that is overdue by more than this (ns) is not waited for: many of those may be changed at once."""

CLOCK_MARGIN_NS = SECOND
"""A fire is looked for so long before its time (ns): the time that is known here may be behind."""


class Standing(NamedTuple):
    """What is on a subject."""

    message: StoredMessage | None
    """The last message."""
    current: Current | None
    """The schedule that it is."""
    has_ended: bool
    """True if its last fire is stored: a sidecar is about to purge it."""


async def standing(store: ScheduleStore, served: Served, subject: str, *, limit_ns: int | None = None) -> Standing:
    """Return what is on a subject, when it is known whether it has ended, or after some time in which it is not.

    One that is overdue by more than `limit_ns` is not waited for.
    """
    for wait in (*SETTLING_WAITS_SECONDS, None):
        message = await store.last(served.name, subject)
        found = None if message is None else read_current(message, served)
        if found is None or not has_passed_all(found, store.now() + CLOCK_MARGIN_NS):
            return Standing(message, found, False)
        has_ended, now = await store.has_ended(served, found), store.now()
        is_over = wait is None or not has_passed_all(found, now)
        if has_ended is not None or is_over or (limit_ns is not None and now > _last_due(found, now) + limit_ns):
            return Standing(message, found, has_ended is True)
        assert wait is not None, "the last time is not waited for"
        await store.wait(wait)
    raise AssertionError("the last attempt returns")


def has_passed_all(found: Current, now: int) -> bool:
    """Return whether a sidecar fires a schedule, and the last of its fire times has come."""
    if found.definition is None or found.is_paused or found.is_fired_by_server:
        return False
    timetable = found.timetable()
    first = timetable.first_fire()
    if not timetable.ends_by_itself or (first is not None and first > now):
        return False
    return not timetable.repeats or timetable.next_fire(max(now, timetable.stored_at)) is None


def _last_due(found: Current, now: int) -> int:
    """Return when the last fire of a schedule came due (ns), which has passed all."""
    stored_at = found.message.stored_at
    return found.timetable().latest_passed(stored_at, max(now, stored_at)) or stored_at


async def current(store: ScheduleStore, served: Served, subject: str) -> Current:
    """Return the schedule on a subject; raises `NotFoundError`, or `NotPossibleError` if something lies on it."""
    message, found, has_ended = await standing(store, served, subject, limit_ns=SETTLING_LIMIT_NS)
    if message is None or is_marker(message.block):
        raise NotFoundError(f"no schedule is stored on {subject} in stream {served.name}")
    if found is None:
        raise none_here(message, served)
    if has_ended:
        raise fired_already(found)
    return found


def fired_already(found: Current) -> NotFoundError:
    """Return why a schedule that has ended is not found."""
    return NotFoundError(f"{found.subject}: the schedule with sequence {found.sequence} has fired, and is no more")


async def opened(
    store: ScheduleStore, stream: str, subject: str, expected: int | None = None
) -> tuple[Served, Current]:
    """Return how a stream is served, and the schedule on a subject; raises as `ScheduleStore.served` and `current` do.

    Raises `ConflictError` if its sequence is another one than `expected`.
    """
    served = await store.served(stream)
    found = await current(store, served, subject)
    if expected is not None and found.sequence != expected:
        sentence = (
            f"{subject}: the schedule has sequence {found.sequence}, and not {expected}: another client changed it"
        )
        raise ConflictError(sentence, found.sequence)
    return served, found
