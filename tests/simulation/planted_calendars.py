"""Bugs in calendars that are planted on purpose.

Its rule: a bug is one small change of the product, undone when the block of `tests.simulation.planted` ends.
"""

from dataclasses import replace

from nats_scheduler.engine.firing.calendars import Calendars
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import CalendarsRead
from nats_scheduler.engine.sharing.holdings import Holdings
from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.calendars import Calendar, InvalidCalendar, KnownCalendars
from tests.simulation.planted_division import Changes


def days_of_calendars_forgotten() -> Changes:
    """Know all calendars, and leave out none of their days."""
    original = Bounded._exception_around

    def around(self: Bounded, instant: int) -> tuple[int, int] | None:
        return original(Bounded(self.base, replace(self.bounds, calendars=())), instant)

    yield Bounded, "_exception_around", around


def edits_not_followed() -> Changes:
    """Take the calendars as they were when they were read first."""
    original = Calendars.read

    def read_once(self: Calendars, given: CalendarsRead, now: int) -> None:
        if not self.are_read:
            original(self, given, now)

    yield Calendars, "read", read_once


def missing_calendar_taken_for_an_empty_one() -> Changes:
    """Fire on each day as long as a calendar does not exist."""

    def calendar(self: KnownCalendars, name: str) -> Calendar:
        found: Calendar | InvalidCalendar | None = self.by_name.get(name)
        return found if isinstance(found, Calendar) else Calendar(name, ())

    yield KnownCalendars, "calendar", calendar


def edit_ends_schedules() -> Changes:
    """Purge an `@at` as soon as its calendar leaves no fire of it."""
    yield Held, "over_at", property(lambda _self: 0)


def outdated_days_taken_for_known() -> Changes:
    """Act by the days that were read last as if no edit of them could be missed."""
    original = Calendars.read

    def read(self: Calendars, given: CalendarsRead, now: int) -> None:
        original(self, replace(given, is_followed=True), now)

    yield Calendars, "read", read


def past_schedule_settled() -> Changes:
    """Let a checkpoint settle a schedule that was past when it was stored, and waits for its calendar."""
    yield Holdings, "waits_for_calendar", lambda _self, _held, _name: None
