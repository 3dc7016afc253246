"""The fire times of a cron schedule: the next one, the latest one, and how many there are.

The rules:

- A cron schedule fires at exactly the instants whose local wall-clock fields match. Therefore a local time that the
  clock skips (a gap) has no fire that day, and one that occurs twice (a fold) has two. There is no correction that
  could be wrong; nats-server has some (`docs/reference/patterns.md`, "Better than the server"). What a schedule may
  have instead is in `schedule.clock_policy`.
- The search applies the calendar without time zones to each segment of constant UTC offset, within which local time has
  no gap and no fold.

Limit: the server's horizon, 31 December of the fifth year after that of the start.
"""

from nats_scheduler.schedule.clock_policy import ClockPolicy, local_span
from nats_scheduler.schedule.cron_fields import CronFields
from nats_scheduler.schedule.instants import SECOND, SECONDS_PER_DAY, civil_from_days, days_from_civil
from nats_scheduler.schedule.zones import UTC, Zone

HORIZON_YEARS = 5
"""As the server does: a schedule has ended if it has no match up to the end of the year that is this much later
(`test_the_last_day_of_the_fifth_year_is_within_the_horizon`)."""

_BACKWARD_SEARCH_NS = 4 * 365 * SECONDS_PER_DAY * SECOND
"""The time that one step of `latest_fire` searches back; two fires that are this close are within the horizon."""


def next_fire(fields: CronFields, zone: Zone | None, policy: ClockPolicy, after: int) -> int | None:
    """Return the first fire time strictly after an instant; None beyond the horizon. Without a zone it is UTC."""
    start = after // SECOND + 1
    if zone is not None:
        return _next_fire_in(fields, zone, policy, start)
    match = fields.first_match(start, _year(start) + HORIZON_YEARS)
    return None if match is None else match * SECOND


def _next_fire_in(fields: CronFields, zone: Zone, policy: ClockPolicy, start: int) -> int | None:
    """Search the local calendar, from a second of UTC on, and once again only where the clock was changed before that.

    A match beyond the span of a segment is that of the next one too, unless the clock skips it, or goes back to before
    the time at which the search began.
    """
    segment = zone.segment_at(start * SECOND)
    first, beyond = local_span(zone, segment, policy)
    begun = first if start * SECOND == segment.start else max(start + segment.offset, first)
    last_year = _year(begun) + HORIZON_YEARS
    match = fields.first_match(begun, last_year)
    while True:
        if match is not None and match < beyond:
            fire = (match - segment.offset) * SECOND
            return fire if segment.start is None else max(fire, segment.start)
        if segment.end is None:
            return None
        segment = zone.segment_at(segment.end)
        first, beyond = local_span(zone, segment, policy)
        if first < begun or (match is not None and match < first):
            begun, match = first, fields.first_match(first, last_year)
        elif match is None:
            return None


def latest_fire(fields: CronFields, zone: Zone | None, policy: ClockPolicy, after: int, until: int) -> int | None:
    """Return the last fire time in (after, until] of a schedule that fires from `after` on.

    A schedule that reaches its horizon within this period has ended there, so a long outage is searched in parts.
    """
    latest, start = None, after
    while start < until:
        reached = min(start + _BACKWARD_SEARCH_NS, until)
        found = _last_fire(fields, zone, policy, start, reached)
        if found is None:
            found = next_fire(fields, zone, policy, start) if reached < until else None
        if found is None or found > until:
            return latest
        latest = start = found
        if reached == until:
            return latest
    return latest


def _last_fire(fields: CronFields, zone: Zone | None, policy: ClockPolicy, after: int, until: int) -> int | None:
    """Return the last match in (after, until], without regard to the horizon."""
    end = until // SECOND
    first_year = _year(after // SECOND) - 1  # the offset may move the local year by one
    if zone is not None:
        fire = _last_fire_in(fields, zone, policy, after, end, first_year)
    else:
        fire = fields.last_match(end, first_year)
    return fire * SECOND if fire is not None and fire * SECOND > after else None


def _last_fire_in(
    fields: CronFields, zone: Zone, policy: ClockPolicy, after: int, end: int, first_year: int
) -> int | None:
    """Search the local calendar, from a second of UTC back to the segment that contains `after`, as `_next_fire_in`."""
    segment = zone.segment_at(end * SECOND)
    first, beyond = local_span(zone, segment, policy)
    begun = min(end + segment.offset, beyond - 1)
    match = fields.last_match(begun, first_year)
    while True:
        if match is not None and match >= first:
            fire = match - segment.offset
            return fire if segment.start is None else max(fire, segment.start // SECOND)
        if segment.start is None or segment.start <= after:
            return None
        segment = zone.segment_at(segment.start - 1)
        first, beyond = local_span(zone, segment, policy)
        if beyond - 1 > begun or (match is not None and match >= beyond):
            begun, match = beyond - 1, fields.last_match(beyond - 1, first_year)
        elif match is None:
            return None


def count_fires(fields: CronFields, zone: Zone | None, policy: ClockPolicy, after: int, until: int) -> int:
    """Return how many fire times there are in (after, until], without finding each of them.

    They are counted month by month, in each segment of constant UTC offset: all days that match have the same times of
    day. The horizon is not regarded, which ends a schedule without a fire in five years.
    """
    zone = zone or UTC
    count, start, end = 0, after // SECOND + 1, until // SECOND
    while start <= end:
        segment = zone.segment_at(start * SECOND)
        last = end if segment.end is None else min(end, segment.end // SECOND - 1)
        first, beyond = local_span(zone, segment, policy)
        begin = start + segment.offset
        if first < begin and start * SECOND == segment.start:
            count += min(1, _count_matches(fields, first, begin))
            begin += 1
        count += _count_matches(fields, max(begin, first), min(last + segment.offset, beyond - 1))
        start = last + 1
    return count


def _count_matches(fields: CronFields, first: int, last: int) -> int:
    """Count the local seconds from `first` to `last` that match."""
    if first > last:
        return 0
    first_day, begin = divmod(first, SECONDS_PER_DAY)
    last_day, end = divmod(last, SECONDS_PER_DAY)
    in_a_day = _up_to(fields, SECONDS_PER_DAY - 1)
    count = 0
    year, month, _day = civil_from_days(first_day)
    while (month_begins := days_from_civil(year, month, 1)) <= last_day:
        if fields.months >> month & 1:
            begins, ends = first_day - month_begins + 1, last_day - month_begins + 1
            days = fields.days_of(year, month, month_begins)
            days &= (2 << min(ends, 31)) - (1 << max(begins, 1))  # bit n is day n of the month
            count += days.bit_count() * in_a_day
            if begins >= 1 and days >> begins & 1:
                count -= _up_to(fields, begin - 1)
            if ends <= 31 and days >> ends & 1:
                count -= in_a_day - _up_to(fields, end)
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    return count


def _up_to(fields: CronFields, time_of_day: int) -> int:
    """Return how many times of day match up to this one (-1 to 86,399 s)."""
    minute_of_day, second = divmod(time_of_day, 60)
    hour, minute = divmod(minute_of_day, 60)
    if time_of_day < 0:
        return 0
    seconds = fields.seconds.bit_count()
    count = (fields.hours & (1 << hour) - 1).bit_count() * fields.minutes.bit_count() * seconds
    if fields.hours >> hour & 1:
        count += (fields.minutes & (1 << minute) - 1).bit_count() * seconds
        if fields.minutes >> minute & 1:
            count += (fields.seconds & (2 << second) - 1).bit_count()
    return count


def _year(local: int) -> int:
    return civil_from_days(local // SECONDS_PER_DAY)[0]
