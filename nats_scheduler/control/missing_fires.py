"""Which past fire times of a schedule can be stored now without being stored a second time.

A fire time is *settled* if whatever fires the schedule will not store it any more:

- A later one is stored, by the sidecar or the server itself: both go on from there.
- The schedule is paused, or was stored later.
- A sidecar fires it, and its `X-Missed` leaves the fire out: with `once` (or without the header) all but the latest
  one that is due, with `skip` those that are later than `X-Grace`, with `all N` those before the last N.

All else is left out: it may still be made up.

The rule: what is stored, or cannot be known, is never stored again. A stream that removes what was consumed shows
nothing; one with limits shows what is younger than its limits. What a client deleted counts as not stored.
"""

from collections.abc import Callable
from itertools import takewhile

from nats_scheduler.control.current import Current
from nats_scheduler.control.errors import NotPossibleError
from nats_scheduler.control.requested_fire import definition_of
from nats_scheduler.control.store_port import EVER, StoredFires
from nats_scheduler.message.fire_faults import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.policies import Kept
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339

MAX_EXAMINED = 10_000
"""Most fire times in one range; a backfill of more is better done in parts."""

GRACE_MARGIN_NS = 10 * SECOND
"""The time beyond `X-Grace` after which a fire is settled: clocks differ, and a fire may be in flight."""


def missing_fires(
    found: Current, stored: StoredFires, since: int, until: int, now: int
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return which fire times (ns) of a range, both ends included, are missing and settled; and what is left out."""
    if stored.known_from is None:
        raise NotPossibleError(f"{found.subject}: nothing shows which fires were stored, because they may be removed")
    times = _times(found, since, min(until, now))
    missing = [time for time in times if time not in stored.fire_times]
    certain = stored.known_from + MAX_CLOCK_DIFFERENCE_NS if stored.known_from > EVER else EVER
    known = [time for time in missing if time >= certain]
    is_settled = _settled(found, stored.latest, now)
    settled = [time for time in known if is_settled(time)]
    notes = []
    stored_at = found.message.stored_at
    if _would_be_earlier(found, since) and not (times and times[0] <= stored_at):
        notes.append(f"fire times before {format_rfc3339(stored_at)}, when the schedule was stored, are not its own")
    if len(known) < len(missing):
        number, at = len(missing) - len(known), format_rfc3339(certain)
        notes.append(f"{_fire_times(number)} left out, before {at}: the stream does not show what was stored then")
    if len(settled) < len(known):
        first = format_rfc3339(next(time for time in known if not is_settled(time)))
        who = "server" if found.is_fired_by_server else "sidecar"
        notes.append(
            f"{_fire_times(len(known) - len(settled))} left out, from {first} on: the {who} may still store them"
        )
    return tuple(settled), tuple(notes)


def _times(found: Current, since: int, until: int) -> list[int]:
    """Return the fire times of a schedule in a range; those before it was stored count only if it has an anchor."""
    pattern, timetable = definition_of(found).pattern, found.timetable()
    if not timetable.repeats:
        raise NotPossibleError(f"{found.subject} has one fire time: fire it, or resume it if it is paused")
    if (calendar := pattern.unknown_calendar) is not None:
        raise NotPossibleError(f"{found.subject} names the calendar {calendar!r}, whose days are not known here")
    policies = definition_of(found).terms.policies
    times: list[int] = []
    if policies.bounds.anchor is not None and policies.bounds.limit is None and since <= timetable.stored_at:
        times += _between(Timetable(pattern, since - 1), since - 1, min(until, timetable.stored_at), found.subject)
    times += _between(timetable, max(since - 1, timetable.stored_at), until, found.subject)
    return times


def _would_be_earlier(found: Current, since: int) -> bool:
    """Return whether it would have more fire times from `since` (ns) on if it had been stored before that."""
    stored_at = found.message.stored_at
    return since <= stored_at and Timetable(definition_of(found).pattern, since - 1).count(since - 1, stored_at) > 0


def _between(timetable: Timetable, after: int, until: int, subject: str) -> list[int]:
    if after >= until:
        return []
    if (number := timetable.count(after, until)) > MAX_EXAMINED:
        raise NotPossibleError(
            f"{subject} has {number:,} fire times in this range: at most {MAX_EXAMINED:,} are examined"
        )
    return list(takewhile(lambda time: time <= until, timetable.each(after)))


def _settled(found: Current, latest: int | None, now: int) -> Callable[[int], bool]:
    """Return the function that says whether a fire time is settled."""
    timetable, policies = found.timetable(), definition_of(found).terms.policies
    stored_at, missed = timetable.stored_at, policies.missed
    passed = stored_at if latest is None else max(latest - 1, stored_at)
    if found.is_paused:
        return lambda _time: True
    if not found.is_fired_by_server and missed.kept is Kept.SKIP:
        limit = now - policies.grace - GRACE_MARGIN_NS
        return lambda time: time <= passed or timetable.send_time_of(time) < limit
    made_up: int | None = None
    if not found.is_fired_by_server:
        if missed.kept is Kept.ONCE:
            made_up = timetable.latest_due(stored_at, now)
        elif missed.most is not None:
            made_up = timetable.latest_but(missed.most, stored_at, now)
    before = passed if made_up is None else max(passed, made_up - 1)
    return lambda time: time <= before


def _fire_times(number: int) -> str:
    return "1 fire time is" if number == 1 else f"{number:,} fire times are"
