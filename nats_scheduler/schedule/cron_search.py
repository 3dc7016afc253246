"""The fire times of a cron schedule.

One rule: a cron schedule fires at exactly the instants whose local wall-clock fields match.
Therefore a local time that the clock skips (a gap) has no fire that day, and one that occurs twice (a fold) has two.
There is no correction that could be wrong; nats-server has some (`docs/reference/patterns.md`, "Better than the
server").
The search applies the calendar without time zones (`cron_calendar`) to each segment of constant UTC offset, within
which local time has no gap and no fold.
Cost: a few microseconds for any pattern, and one segment look-up for each change of offset that the search passes.
Limit: the server's horizon, 31 December of the fifth year after that of the start.
"""

from __future__ import annotations

from nats_scheduler.schedule.cron_calendar import CronFields
from nats_scheduler.schedule.instants import SECOND, SECONDS_PER_DAY, civil_from_days, days_from_civil
from nats_scheduler.schedule.zones import Zone

HORIZON_YEARS = 5
"""As the server does: a schedule has ended if it has no match up to the end of the year that is this much later
(`test_the_last_day_of_the_fifth_year_is_within_the_horizon_and_the_next_is_not`)."""

_BACKWARD_SEARCH_NS = 4 * 365 * SECONDS_PER_DAY * SECOND
"""How far back one step of `latest_fire` searches; two fires that are this close are within the horizon."""


def next_fire(fields: CronFields, zone: Zone | None, after: int) -> int | None:
    """Return the first fire time strictly after an instant; None beyond the horizon. Without a zone it is UTC."""
    start = after // SECOND + 1
    if zone is not None:
        return _next_fire_in(fields, zone, start)
    match = fields.first_match(start, _year(start) + HORIZON_YEARS)
    return None if match is None else match * SECOND


def _next_fire_in(fields: CronFields, zone: Zone, start: int) -> int | None:
    """Search segment by segment, in seconds.

    `match` is the first match at or after `searched`.
    It is valid for a later segment too if local time there starts between the two.
    Otherwise the match lies in a gap, or a fold leads back to before `searched`, and a new search is needed.
    """
    segment = zone.segment_at(start * SECOND)
    local = searched = start + segment.offset
    last_year = _year(local) + HORIZON_YEARS
    limit = days_from_civil(last_year + 1, 1, 1) * SECONDS_PER_DAY
    match = fields.first_match(local, last_year)
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
            searched, match = local, fields.first_match(local, last_year)


def latest_fire(fields: CronFields, zone: Zone | None, after: int, until: int) -> int | None:
    """Return the last fire time in (after, until] of a schedule that fires from `after` on.

    A schedule that reaches its horizon within this period has ended there, so a long outage is searched in parts.
    """
    latest, start = None, after
    while start < until:
        reached = min(start + _BACKWARD_SEARCH_NS, until)
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
    """Return the last match in (after, until], without regard to the horizon."""
    end = until // SECOND
    first_year = _year(after // SECOND) - 1  # the offset may move the local year by one
    if zone is not None:
        fire = _last_fire_in(fields, zone, after, end, first_year)
    else:
        fire = fields.last_match(end, first_year)
    return fire * SECOND if fire is not None and fire * SECOND > after else None


def _last_fire_in(fields: CronFields, zone: Zone, after: int, end: int, first_year: int) -> int | None:
    """Search segment by segment, back to the segment that contains `after`: the mirror image of `_next_fire_in`."""
    segment = zone.segment_at(end * SECOND)
    local = searched = end + segment.offset
    match = fields.last_match(local, first_year)
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
            searched, match = local, fields.last_match(local, first_year)


def _year(local: int) -> int:
    return civil_from_days(local // SECONDS_PER_DAY)[0]
