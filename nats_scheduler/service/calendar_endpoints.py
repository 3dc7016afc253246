"""The endpoint about calendars: the days that are to come, on which schedules that name them do not fire.

The rules: the bucket is read when it is asked for, also if no schedule names a calendar, and nothing of it is held.
What is no calendar is listed with the reason, since schedules that name it wait.

Cost: the list of the bucket's subjects, and a request to the server for each calendar of the page, `MAX_AT_ONCE` at the
same time. To read one with 2,000 days takes some 5 ms, another text of 64 KB up to 20 ms, in a moment without fires.
Limit: `MAX_READ` calendars on a page, and `MAX_COMING` days and ranges of each.
"""

import sys
from functools import partial

from typing_extensions import TypedDict  # not that of typing: pydantic refuses it before Python 3.12

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.jetstream.calendar_bucket import CalendarText
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.observe.documents import Number, Rows, Time
from nats_scheduler.schedule.calendars import Calendar
from nats_scheduler.schedule.days import NO_DAYS, days_text
from nats_scheduler.schedule.instants import DAY
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoded_items import with_items
from nats_scheduler.service.endpoint import Asked, Document, name_cursor, read_name_cursor
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError
from nats_scheduler.service.schemas import Answer, ListRequest

MAX_READ = 100
"""The most calendars of a page: each is up to 64 KB long, and is read for it."""

MAX_COMING = 50
"""The most days and ranges of one calendar in an answer."""

MAX_AT_ONCE = 4
"""Requests to the server at the same time."""


class CalendarDocument(TypedDict):
    """A calendar, and its days that are to come."""

    calendar: str
    revision: Number
    edited: Time
    error: str | None
    """Why it is invalid, so that schedules that name it wait; null if it is valid."""
    days: Number
    """How many days it has, those in the past too."""
    days_to_come: Number
    """How many of them are today, in UTC, or later."""
    coming: Rows[str]
    """The first 50 of these days and ranges of days, such as `2026-12-25` and `2026-12-27..2027-01-01`; a range in
    which today is begins in the past."""


class CalendarsAnswer(Answer):
    """A page of calendars, by name."""

    cursor: str | None
    calendars: Rows[CalendarDocument]


async def list_calendars(asked: Asked, request: ListRequest) -> Document:
    """Return a page of calendars, by name."""
    after, today = read_name_cursor(request.cursor), asked.now() // DAY

    async def described(name: str) -> CalendarDocument | None:
        found = await asked.calendars.text(name)
        if found is None:
            return None
        await asked.turns.moment_without_fires()
        return _document(found, today)

    try:
        names = [name for name in await asked.calendars.names() if name > after]
        page = names[: min(request.limit, MAX_READ)]
        found = await in_turn([partial(described, name) for name in page], MAX_AT_ONCE)
    except SchedulerError as error:
        raise ServiceError(UNAVAILABLE, f"the calendars cannot be read: {error}") from None
    rows = [one for one in found if one is not None]
    items = await asked.encoded(rows, dict)
    last = rows[len(items) - 1]["calendar"] if len(items) < len(rows) else page[-1] if page else ""
    cursor = name_cursor(last) if names and last < names[-1] else None
    return with_items({**asked.head(), "cursor": cursor}, "calendars", items)


def _document(found: CalendarText, today: int) -> CalendarDocument:
    read = found.read()
    days = (read.days if isinstance(read, Calendar) else None) or NO_DAYS
    coming = list(days.between(today, sys.maxsize))
    return {
        "calendar": found.name,
        "revision": found.revision,
        "edited": format_rfc3339(found.stored_at),
        "error": None if isinstance(read, Calendar) else read.reason,
        "days": sum(one.last - one.first + 1 for one in days),
        "days_to_come": sum(one.last - max(one.first, today) + 1 for one in coming),
        "coming": [days_text(one) for one in coming[:MAX_COMING]],
    }
