"""Compare the zone data of a server that fires by itself with this program's, by what its fires say.

The server writes the next fire time into each fire, in the time zone of the schedule, by its own zone data. If another
offset belongs to that instant here, it fires at other hours than this program would show.

Rule: of each time zone one fire is enough, and what the server fires is then shown at the server's offset.
Cost: one request for each zone that schedules of the server use, a few more where nothing is stored on a target.
Limit: nothing is known of a zone of which no fire is stored, and nothing beyond the next change of its offset. Others
cannot store such a fire: the server refuses it (10212).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nats_scheduler.engine.views.view import FiredBy, ListedSchedule
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.fires import following_fire, following_offset, scheduler_of
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import format_rfc3339, offset_text

MAX_ZONES_COMPARED = 64
"""Time zones of one stream that are compared."""

MAX_FIRES_READ = 4
"""Targets on which a fire is searched for one zone."""


class ZoneDifference(NamedTuple):
    """A time zone that has another offset on the server than here."""

    zone: str
    at: int
    """The instant (ns) at which the offsets differ: that of a fire that was to come."""
    servers: int
    """The offset from UTC (s) by the zone data of the server."""
    ours: int
    schedule: str
    """The schedule whose fire shows it."""

    def __str__(self) -> str:
        """Return what to say of it."""
        servers, ours = offset_text(self.servers), offset_text(self.ours)
        at = format_rfc3339(self.at)
        return f"time zone {self.zone} is {servers} at {at} by the server's zone data, and {ours} by this program's"


async def read_zone_differences(
    api: JetStreamApi, stream: str, schedules: Sequence[ListedSchedule]
) -> dict[str, ZoneDifference]:
    """Return the zones that differ, by name, of schedules that the server fires; raises `SchedulerError`."""
    by_subject: dict[str, ListedSchedule] = {}
    targets: dict[str, dict[str, None]] = {}
    for one in schedules:
        zone = one.pattern.time_zone
        if one.fired_by is not FiredBy.SERVER or zone is None or len(targets) > MAX_ZONES_COMPARED:
            continue
        by_subject[one.subject] = one
        of_zone = targets.setdefault(zone, {})
        if len(of_zone) < MAX_FIRES_READ:
            of_zone[one.terms.target] = None
    known: dict[str, ZoneDifference] = {}
    for zone, of_zone in targets.items():
        for target in of_zone:
            if zone in known:
                break
            message = await api.message(stream, last_by_subj=target)
            if message is not None and (shown := _shown_by(message, by_subject)) is not None:
                known[shown.zone] = shown
    return {zone: one for zone, one in known.items() if offset_text(one.servers) != offset_text(one.ours)}


def _shown_by(message: StoredMessage, schedules: Mapping[str, ListedSchedule]) -> ZoneDifference | None:
    """Return what a message shows of the zone of its schedule; None if it is no fire of one of these schedules."""
    one = schedules.get(scheduler_of(message.block))
    following, servers = following_fire(message.block, ADR51), following_offset(message.block, ADR51)
    if one is None or one.pattern.zone is None or following is None or servers is None:
        return None
    if message.subject != one.terms.target or message.sequence < one.sequence:
        return None  # of a schedule that was replaced, which may have had another zone
    ours = one.pattern.zone.offset_at(following)
    return ZoneDifference(one.pattern.zone.name, following, servers, ours, one.subject)


def as_the_server_fires(
    schedules: Sequence[ListedSchedule], differences: Mapping[str, ZoneDifference], now: int
) -> Sequence[ListedSchedule]:
    """Return schedules with the times at which the server fires them, `now` (ns) and until its offsets change."""
    if not differences:
        return schedules

    def moved(one: ListedSchedule) -> ListedSchedule:
        difference = differences.get(one.pattern.time_zone or "")
        is_moved = difference is not None and one.fired_by is FiredBy.SERVER
        return one.at_offset(difference.servers, now) if is_moved and difference is not None else one

    return [moved(one) for one in schedules]
