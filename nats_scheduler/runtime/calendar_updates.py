"""Follow the bucket of calendars on one connection, and pass each edit to the engines of all streams.

The rules:

- Nothing is requested before a schedule of some stream names a calendar.
- What is known stays known while the bucket cannot be read, on the next connection too. So only at the start of the
  process schedules may have to wait because of that. A bucket that does not exist holds no calendars.
- The engines are notified when edits are not received any more: no schedule ends by days that may be others by then.

Cost: nothing until a schedule names a calendar, however many streams there are; then one consumer.
Limit: a bucket that is created later is found within `RETRY_SECONDS`.
"""

import asyncio

from nats_scheduler.control.errors import RefusedError, SchedulerError
from nats_scheduler.control.requests import STREAM_NOT_FOUND
from nats_scheduler.jetstream.calendar_bucket import unreadable
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.served_streams import StreamServices
from nats_scheduler.runtime.work import Setbacks
from nats_scheduler.schedule.calendars import KnownCalendars

RETRY_SECONDS = 1.0
"""Wait before the bucket is followed again."""


async def follow_calendars(access: Access, services: StreamServices, reporter: Reporter) -> None:
    """Follow the calendars until cancelled, or until the connection is lost."""

    def problem(reason: str) -> None:
        reporter.problem("calendars_not_followed", reason=reason)

    naming = asyncio.create_task(services.calendars_named.wait())
    try:
        await asyncio.wait((naming, access.connection.lost), return_when=asyncio.FIRST_COMPLETED)
    finally:
        naming.cancel()
    try:
        await _follow_repeatedly(access, services, Setbacks(RETRY_SECONDS, problem))
    finally:
        services.calendars_lost()


async def _follow_repeatedly(access: Access, services: StreamServices, setbacks: Setbacks) -> None:
    lost = access.connection.lost
    while not lost.done():
        wait_seconds = RETRY_SECONDS
        try:
            await access.calendars.follow_all(services.read_calendars)
        except RefusedError as error:
            if error.code == STREAM_NOT_FOUND:
                services.read_calendars(KnownCalendars({}))
            else:
                wait_seconds = _failed(error, services, setbacks)
        except SchedulerError as error:
            if lost.done():
                return
            wait_seconds = _failed(error, services, setbacks)
        await asyncio.wait((lost,), timeout=wait_seconds)


def _failed(error: SchedulerError, services: StreamServices, setbacks: Setbacks) -> float:
    """Report why the bucket cannot be followed, and return how long to wait (s)."""
    services.calendars_lost()
    if not services.calendars.is_read:
        services.read_calendars(unreadable(error))
    setbacks.failed(error)
    return setbacks.wait_seconds
