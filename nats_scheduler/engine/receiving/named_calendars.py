"""The calendars that the schedules of one stream name, and what an edit of one changes for these schedules.

The rules:

- As long as a calendar is not known (it does not exist, is invalid, or was not read yet), the schedules that name it
  wait: which of their fires fall on a holiday is not known, and a fire cannot be taken back. What came due meanwhile is
  made up like after any outage, as far as the calendar leaves it.
- A calendar counts at the send time. An edit changes no fire that was sent, or may have been: that is concluded first.
  A fire time that an edit leaves anew is not made up if it has passed; of fires that are overdue the new days decide.
- What is owed of a version that was replaced is decided by an edit too: if the new days leave none of it, that is done.
- An edit ends no schedule. One of which the calendars leave no fire is *excepted*: it waits for another edit, until its
  last possible fire time has passed. A stored fire that names `purge` as the next one ends its schedule, whatever the
  calendars say by then.
- While edits are not received (the bucket cannot be read, or the connection is lost), the days that were read last
  count. But no schedule ends by them, and the new days, once they are received, decide about what passed meanwhile.
- An edit that is received and not applied yet, as without contact, decides about what passes meanwhile.
- Fires are judged, and jitters computed, by the possible fire times (`schedule.bounds`). So nothing that was stored
  before an edit is taken for a forgery, and instances that see an edit at different times agree on identities.

Why an edit is applied in slices: each schedule has to search its next fire. One whose time comes before its turn is
brought up to date first. The schedules of one calendar after the other are visited; what is edited during that is
visited again, once, however often it is edited: the last edit counts.

Cost: an entry for each schedule that names a calendar, and some ten microseconds for each when one is edited; for an
edit a comparison of all calendars. Nothing for schedules that name none. Limit: an entry of a schedule that ended stays
until its calendar is edited, or there are twice as many entries as schedules.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import CalendarApplied, CalendarMissing, Ending
from nats_scheduler.engine.firing import fetching, purging, timing
from nats_scheduler.engine.holding.flight import DONE, Stage
from nats_scheduler.engine.holding.held import Held, NoFire
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import CalendarsRead
from nats_scheduler.engine.ownership.takeover import Takeover
from nats_scheduler.schedule.calendars import NOT_READ, KnownCalendars
from nats_scheduler.schedule.instants import SECOND

MAX_VISITED_PER_STEP = 32
"""The most schedules that are visited in one step after an edit, about a millisecond of work."""

MAX_UNNOTICED_NS = 3 * SECOND
"""The longest time (ns) until it is noticed that nothing is received: an edit made in this time may be missing too."""

UNFOLLOWED_CHECK_INTERVAL_NS = 1 * SECOND
"""The interval (ns) at which a schedule is looked at that is to end as soon as edits are received again."""

MIN_ENTRIES = 1_024
"""Entries of schedules that ended are not looked for among fewer."""


class Calendars:
    """The calendars of one stream's schedules."""

    def __init__(
        self,
        state: EngineState,
        takeover: Takeover,
        notify_named: Callable[[], object],
    ) -> None:
        """Know no calendar yet.

        `notify_named` is called when a schedule names a calendar that none has named since the beginning.
        """
        self._state = state
        self._takeover = takeover
        self._known = NOT_READ
        self._followed_until: int | None = None
        """Until when (ns) all edits were certainly received; None if they are."""
        self._passed_until: int | None = None
        """Up to when (ns) the days before the edits that are not applied yet decide which fire times have passed; None:
        now."""
        self._named: dict[str, dict[int, Held]] = {}
        """By name of the calendar and sequence, the schedules that name it; some may have ended."""
        self._pruned_at: dict[str, int] = {}
        """By name, how many entries there may be before those of ended schedules are discarded."""
        self._to_visit: dict[str, int | None] = {}
        """The calendars whose schedules are to be visited, because it was edited, or is to be reported: up to when (ns)
        the days before its edit decide, None if it was not edited."""
        self._visit: Iterator[Held] | None = None
        """The schedules that are still to be visited, in parts; None if none are."""
        self._found: set[str] = set()
        """The calendars that are known since an edit, which is not applied to all schedules yet."""
        self.has_work = False
        """True if `work` has something to do."""
        self._notify_named = notify_named

    @property
    def are_named(self) -> bool:
        """True if a schedule has named a calendar since the beginning."""
        return bool(self._named)

    @property
    def are_read(self) -> bool:
        """True if it is known which calendars exist."""
        return self._known.is_read

    # -- what changes --------------------------------------------------------------------------------------------

    def hold(self, held: Held) -> None:
        """Begin with a schedule that was read just now and names a calendar: apply what is known."""
        for name in held.calendars:
            if name not in self._named:
                self._named[name] = {}
                self._notify_named()
            entries = self._named[name]
            entries[held.sequence] = held
            if len(entries) > self._pruned_at.get(name, MIN_ENTRIES):
                self._prune(name)
            if self._known.fault(name):
                self._takeover.await_calendar(name, held.stored_at if self._state.progress.is_live else None)
                self._takeover.waits_for_calendar(held, name)
                self._report_soon(name)
        held.pattern = held.bounded.with_calendars(self._known)
        if held.bounded.unknown_calendar is not None:
            held.no_fire = NoFire.NO_CALENDAR
        elif not held.is_left(held.fire_time):
            following = held.next_fire(held.fire_time) if held.repeats else None
            if following is None:
                held.no_fire = NoFire.EXCEPTED
            else:
                held.fire_time = following

    def read(self, given: CalendarsRead, now: int) -> None:
        """Take the calendars as they are now."""
        passed = now  # without contact it is applied later
        if not given.is_followed:
            since = now - MAX_UNNOTICED_NS
            self._followed_until = since if self._followed_until is None else self._followed_until
        elif self._followed_until is not None:
            passed, self._followed_until = min(now, self._followed_until), None
        before, self._known = self._known, given.calendars
        for name in self._changed_since(before):
            self._report_soon(name)
            if before.calendar(name) == self._known.calendar(name):
                continue
            known = self._to_visit[name]
            self._to_visit[name] = passed if known is None else min(known, passed)
            self._passed_until = passed if self._passed_until is None else min(self._passed_until, passed)
            if not self._known.fault(name):
                self._found.add(name)
                continue
            self._found.discard(name)
            if not self._takeover.awaits(name):
                self._takeover.await_calendar(name, min(now, self._earliest_overdue(name, now) - 1))

    def _changed_since(self, before: KnownCalendars) -> list[str]:
        """Return the calendars that schedules name, and of which something else is known than before."""
        known = self._known
        names: Iterable[str] = self._named
        if (before.absent, before.is_read) == (known.absent, known.is_read):
            edited = (one for one in {**before.by_name, **known.by_name} if _is_other(before, known, one))
            names = (one for one in edited if one in self._named)
        return [one for one in names if before.fault(one) != known.fault(one) or _is_other(before, known, one)]

    def owner_changed(self) -> None:
        """Report again what is missing: other schedules are ours."""
        for name in self._named:
            if self._known.fault(name):
                self._report_soon(name)

    # -- time ----------------------------------------------------------------------------------------------------

    def work(self, now: int) -> bool:
        """Apply an edit to some schedules, and report what is new; returns whether there is more to do."""
        if self._visit is None:
            self._visit = self._visits()
        visited = 0

        def bring_up_to_date(held: Held) -> None:
            nonlocal visited
            visited += 1
            if self._is_outdated(held):
                self._apply(held, now)

        self._state.guard.each(islice(self._visit, MAX_VISITED_PER_STEP), bring_up_to_date)
        self.has_work = visited == MAX_VISITED_PER_STEP
        if not self.has_work:
            self._visit = None
        return self.has_work

    def _visits(self) -> Iterator[Held]:
        """Yield the schedules that are to be visited, one calendar after the other, and report each of these."""
        while self._to_visit:
            name = next(iter(self._to_visit))
            del self._to_visit[name]
            entries, ours = self._named[name], 0
            for sequence, held in list(entries.items()):
                if self._state.schedules.is_held(held):
                    ours += self._state.ownership.is_owner
                    yield held
                else:
                    entries.pop(sequence, None)
            if name in self._found:
                self._found.discard(name)
                self._takeover.calendar_found(name)
            self._passed_until = next((one for one in self._to_visit.values() if one is not None), None)
            self._report(name, ours)

    def woken(self, held: Held, now: int) -> bool:
        """Take the next step of a schedule whose time has come, if a calendar decides it; returns whether one does."""
        if not held.calendars:
            return False
        only_waits = held.flight is None
        if self._is_outdated(held) or (only_waits and held.no_fire is None and not held.is_left(held.fire_time)):
            return self._apply(held, now)
        if held.no_fire is None or not only_waits:
            return False
        if held.over_at <= now and self._followed_until is None:
            purging.purge(self._state, held, Ending.EXCEPTED)
        elif held.over_at <= now:
            self._state.schedules.wake(held, now + UNFOLLOWED_CHECK_INTERVAL_NS)
        else:
            fetching.fetch_if_waiting(self._state, held)  # it may be older than its stream allows
        return True

    # -- one schedule --------------------------------------------------------------------------------------------

    def _is_outdated(self, held: Held) -> bool:
        return any(self._known.calendar(one.name) != one for one in held.bounded.bounds.calendars)

    def _apply(self, held: Held, now: int) -> bool:
        """Give a schedule the days that are known now; returns whether it ended, or waits for another time."""
        flight, was = held.flight, held.no_fire
        is_overdue = was is not NoFire.EXCEPTED and held.send_time <= now
        held.pattern = held.bounded.with_calendars(self._known)
        if flight is not None and flight.stage in DONE:
            return False
        held.no_fire = None if held.bounded.unknown_calendar is None else NoFire.NO_CALENDAR
        if _may_be_stored(held):
            return False  # that is concluded first
        keeps_time = is_overdue or was is NoFire.NO_CALENDAR
        following = _from(held, held.fire_time) if keeps_time else _coming(held, self._passed(now))
        if held.is_settled_at(following):
            self._state.end(held, Ending.REPLACED)
            return True
        if following is None:
            held.no_fire = NoFire.EXCEPTED
        stage = Stage.WAITING if flight is None else flight.stage
        is_same = following == held.fire_time and held.no_fire is None
        held.fire_time = held.fire_time if following is None else following
        if flight is not None:
            self._state.contents.moved(held, flight)
        if stage is Stage.FETCHING or (stage is Stage.BACKING_OFF and is_same):
            return False  # it goes on with what is held now
        self._state.enter(held, Stage.WAITING)
        timing.await_due(self._state, held)
        return True

    def _passed(self, now: int) -> int:
        """Return up to when (ns) a fire time that an edit leaves anew has passed, and is not made up."""
        return now if self._passed_until is None else min(now, self._passed_until)

    def _earliest_overdue(self, name: str, now: int) -> int:
        """Return the send time (ns) of the first fire of a calendar's schedules that is due and cannot be stored."""
        due = (
            held.send_time
            for held in self._named[name].values()
            if held.no_fire is None and self._state.ownership.is_owner and not _may_be_stored(held)
        )
        return min((send_time for send_time in due if send_time <= now), default=now)

    # -- reports -------------------------------------------------------------------------------------------------

    def _report_soon(self, name: str) -> None:
        self._to_visit.setdefault(name, None)
        self.has_work = True

    def _report(self, name: str, count: int) -> None:
        if not self._known.is_read or not count:
            return
        fault = self._known.fault(name)
        self._state.emit(Report(CalendarMissing(name, fault, count) if fault else CalendarApplied(name, count)))

    def _prune(self, name: str) -> None:
        live = (held for held in self._named[name].values() if self._state.schedules.is_held(held))
        self._named[name] = {held.sequence: held for held in live}
        self._pruned_at[name] = max(MIN_ENTRIES, 2 * len(self._named[name]))


def _is_other(before: KnownCalendars, known: KnownCalendars, name: str) -> bool:
    """Return whether a calendar is another one than before."""
    one, other = before.by_name.get(name), known.by_name.get(name)
    return one is not other and one != other


def _may_be_stored(held: Held) -> bool:
    """Return whether a fire of a schedule was sent, and its outcome is not known."""
    flight = held.flight
    if flight is None:
        return False
    return flight.stage is Stage.IN_FLIGHT or (flight.fire is not None and flight.may_be_stored)


def _from(held: Held, fire_time: int) -> int | None:
    """Return the first fire time from one of the possible ones on; None if none is left."""
    if held.is_left(fire_time):
        return fire_time
    return held.next_fire(fire_time) if held.repeats else None


def _coming(held: Held, passed: int) -> int | None:
    """Return the first fire time that is sent after an instant (ns), and that is not settled; None if none is left."""
    if not held.repeats:
        return held.fire_time if held.is_left(held.fire_time) else None
    settled = held.stored_at if held.previous_fire is None else held.previous_fire
    following = held.next_to_send(max(passed, settled, held.stored_at))
    # A clock that was stepped back, or that of another instance, may be behind what is stored.
    return held.next_fire(settled) if following is not None and following <= settled else following
