"""When a cron schedule fires.

One rule: a cron schedule fires at exactly the instants whose local wall-clock fields match.
Hence a time in a gap of its zone does not exist that day, and a time in a fold happens twice; there is no
correction to get wrong (nats-server has some: `docs/reference/patterns.md`).
The calendar without zones (`cron_calendar`) is laid over the zone's segments of constant offset, in each of which
local time runs straight.
Cost: a few microseconds, whatever the pattern; one segment look-up more for each change of offset on the way.
Limit: the server's horizon, 31 December of the fifth year after that of the start.
"""

from __future__ import annotations

from nats_scheduler.schedule.cron import CronFields
from nats_scheduler.schedule.cron_calendar import first_match, last_match
from nats_scheduler.schedule.instants import SECOND, SECONDS_A_DAY, civil_from_days, days_from_civil
from nats_scheduler.schedule.zones import Zone

HORIZON_YEARS = 5
"""A schedule without a match up to the end of this many years later has ended (server behaviour 2.5)."""

_STRETCH = 4 * 365 * SECONDS_A_DAY * SECOND
"""Nanoseconds; two fires that are no further apart are surely on this side of the horizon."""


def next_fire(fields: CronFields, zone: Zone | None, after: int) -> int | None:
    """Give the first fire strictly after an instant, in UTC where no zone is given; None beyond the horizon."""
    start = after // SECOND + 1
    if zone is not None:
        return _next_fire_in(fields, zone, start)
    match = first_match(fields, start, _year(start) + HORIZON_YEARS)
    return None if match is None else match * SECOND


def _next_fire_in(fields: CronFields, zone: Zone, start: int) -> int | None:
    """Search segment by segment, in seconds.

    `match` is the first one at or after `searched`.
    It holds for a later segment too as long as local time there starts between the two; only otherwise (a gap over
    the match, a fold back to before the search) is another search due.
    """
    segment = zone.segment_at(start * SECOND)
    local = searched = start + segment.offset
    last_year = _year(local) + HORIZON_YEARS
    limit = days_from_civil(last_year + 1, 1, 1) * SECONDS_A_DAY
    match = first_match(fields, local, last_year)
    while True:
        if segment.end is None:
            return None if match is None else (match - segment.offset) * SECOND
        end = segment.end // SECOND
        if match is not None and match < end + segment.offset:
            return (match - segment.offset) * SECOND
        segment = zone.segment_at(segment.end)
        local = end + segment.offset
        if local >= limit:
            return None
        if local < searched or (match is not None and match < local):
            searched, match = local, first_match(fields, local, last_year)


def latest_fire(fields: CronFields, zone: Zone | None, after: int, until: int) -> int | None:
    """Give the last fire in (after, until] of a schedule that fires from `after` on.

    A schedule that meets its horizon on the way has ended there, so a long outage is looked at in stretches.
    """
    latest, start = None, after
    while start < until:
        reached = min(start + _STRETCH, until)
        found = _last_fire(fields, zone, start, reached)
        if found is None:
            found = next_fire(fields, zone, start) if reached < until else None
        if found is None or found > until:
            return latest
        latest = start = found
        if reached == until:
            return latest
    return latest


def _last_fire(fields: CronFields, zone: Zone | None, after: int, until: int) -> int | None:
    """Give the last match in (after, until], whatever the horizon."""
    end = until // SECOND
    first_year = _year(after // SECOND) - 1  # the offset may move the local year by one
    if zone is not None:
        fire = _last_fire_in(fields, zone, after, end, first_year)
    else:
        fire = last_match(fields, end, first_year)
    return fire * SECOND if fire is not None and fire * SECOND > after else None


def _last_fire_in(fields: CronFields, zone: Zone, after: int, end: int, first_year: int) -> int | None:
    """Search segment by segment back to the one around `after`: the mirror image of `_next_fire_in`."""
    segment = zone.segment_at(end * SECOND)
    local = searched = end + segment.offset
    match = last_match(fields, local, first_year)
    while True:
        if segment.start is None:
            return None if match is None else match - segment.offset
        start = segment.start // SECOND
        if match is not None and match >= start + segment.offset:
            return match - segment.offset
        if segment.start <= after:
            return None
        segment = zone.segment_at(segment.start - 1)
        local = start - 1 + segment.offset
        if local > searched or (match is not None and match > local):
            searched, match = local, last_match(fields, local, first_year)


def _year(local: int) -> int:
    return civil_from_days(local // SECONDS_A_DAY)[0]
