"""The bucket of calendars: a key-value bucket with one key for each calendar, whose value is its text.

Sidecars follow it, commands read it, and `nats-scheduler calendar` edits it. Any client of key-value buckets may do
the same: an edit is an ordinary message.

The rules:

- A key that no calendar can have as its name counts as none; a value that is no calendar is an `InvalidCalendar`.
- A write names the revision that it replaces, so that no edit of another client is lost.
- The bucket is optional. Without it there are no calendars; the first write creates it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from nats_scheduler.control.errors import RefusedError, SchedulerError
from nats_scheduler.control.requests import STREAM_NOT_FOUND
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.message.headers import MARKER_REASON, header_value, with_headers
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.calendars import (
    MAX_CALENDAR_BYTES,
    Calendar,
    InvalidCalendar,
    KnownCalendars,
    is_calendar_name,
    read_calendar,
)

KEPT_REVISIONS = 5
"""The number of revisions of each calendar that the bucket keeps, for `nats kv history`."""

MAX_HEADER_BYTES = 1_024
"""Room for the headers of the message."""

_OPERATION = b"KV-Operation"


class CalendarText(NamedTuple):
    """A calendar as it is stored."""

    name: str
    text: bytes
    revision: int
    stored_at: int
    """The instant (ns since the Unix epoch) at which it was written."""

    def read(self) -> Calendar | InvalidCalendar:
        """Return its days."""
        return read_calendar(self.name, self.text)


class CalendarBucket(Registry):
    """The bucket; as the registry's, but its values are texts of users, and have no number of a format."""

    formats: Mapping[str, int] = {}

    async def names(self) -> list[str]:
        """Return the names in order, also those of calendars that were deleted; none if there is no bucket.

        Raises `SchedulerError`.
        """
        try:
            return sorted([key async for key in self.keys_within(">") if is_calendar_name(key)])
        except RefusedError as error:
            if error.code == STREAM_NOT_FOUND:
                return []
            raise

    async def texts(self) -> AsyncIterator[CalendarText]:
        """Yield the calendars by name; none if there is no bucket. Raises `SchedulerError`."""
        for name in await self.names():
            if (found := await self.text(name)) is not None:
                yield found

    async def text(self, name: str) -> CalendarText | None:
        """Return a calendar; None if there is none. Raises `SchedulerError`."""
        found, _revision = await self.revised_text(name)
        return found

    async def revised_text(self, name: str) -> tuple[CalendarText | None, int]:
        """Return a calendar, None if there is none, and the revision that a write replaces."""
        message = await self._last(name)
        if message is None:
            return None, 0
        text = None if is_deleted(message) else message.body or b""
        found = None if text is None else CalendarText(name, text, message.sequence, message.stored_at)
        return found, message.sequence

    async def write(self, name: str, text: bytes | None, revision: int) -> bool:
        """Write a calendar, or with None delete it; False if another client wrote since that revision."""
        block = with_headers(b"", [(_OPERATION, b"DEL")]) if text is None else b""
        return await self.swap_bytes(name, text or b"", revision, block) is not None

    async def follow_all(self, changed: Callable[[KnownCalendars], None]) -> None:
        """Call `changed` with all calendars once they are read, and after each edit; ends only with an error."""
        known: dict[str, Calendar | InvalidCalendar] = {}
        is_read = False

        def received(name: str, _value: object, message: StoredMessage) -> None:
            if not is_calendar_name(name):
                return
            if is_deleted(message):
                known.pop(name, None)
            else:
                known[name] = read_calendar(name, message.body or b"")
            if is_read:
                changed(KnownCalendars(dict(known)))

        def caught_up() -> None:
            nonlocal is_read
            if not is_read:
                is_read = True
                changed(KnownCalendars(dict(known)))

        await self.follow((">",), received, caught_up)

    def _config(self) -> dict[str, Any]:
        return {
            **super()._config(),
            "description": "nats-scheduler: calendars that schedules name in X-Except",
            "max_msgs_per_subject": KEPT_REVISIONS,
            "max_msg_size": MAX_CALENDAR_BYTES + MAX_HEADER_BYTES,
        }


async def read_calendars(bucket: CalendarBucket) -> KnownCalendars:
    """Return all calendars, as a command reads them; why they are not known, if they cannot be read."""
    try:
        return KnownCalendars({found.name: found.read() async for found in bucket.texts()})
    except SchedulerError as error:
        return unreadable(error)


def unreadable(error: SchedulerError) -> KnownCalendars:
    """Return what is known of calendars if they cannot be read."""
    return KnownCalendars({}, f"the calendars cannot be read: {error}")


def is_deleted(message: StoredMessage) -> bool:
    """Return whether a message says that its key has no value any more."""
    block = message.block
    return bool(block) and any(header_value(block, name) is not None for name in (_OPERATION, MARKER_REASON))
