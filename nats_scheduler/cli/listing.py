"""The data that `ls`, `info` and `next` show.

Rule: nothing is changed. A schedule fails if a sidecar that is alive says so of its sequence, unless the stream says
that it is done; a sidecar that answers says it itself, of the others it is read from the bucket.
Cost: a question, or all of each stream, headers only.
Limit: sidecars share as many failing schedules as fit (`runtime.shared`); of the others only the number is known.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from nats_scheduler.cli.output import CommandError
from nats_scheduler.cli.session import ServedStream, Session, Sidecars, with_sidecars
from nats_scheduler.cli.without_sidecar import Source
from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.engine.events import Ending, HeadersMisnamed
from nats_scheduler.engine.holding.inactive import Rejected
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import SHOWN_AS_FAILING, FiredBy, ListedSchedule, Query, soonest_first
from nats_scheduler.jetstream.calendar_bucket import read_calendars
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.message.schedule_findings import schedule_findings
from nats_scheduler.observe.texts import printable
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.server_zones import ZoneDifference, as_the_server_fires, read_zone_differences
from nats_scheduler.runtime.shared import FAILING, Failures, read_failures
from nats_scheduler.service.client import Listed
from nats_scheduler.settings.load import ResolvedSettings

Row = tuple[ServedStream, ListedSchedule]

SHOWN_BY_SERVER = ": what the server fires is shown as it does; update the older zone data"

DONE = frozenset({State.FIRED, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class FailingSchedules:
    """The schedules that fail, of the streams that are listed."""

    rows: Sequence[Row]
    """In the order of the list."""
    more: Mapping[str, int]
    """The number of failing schedules that the sidecars do not list, by the name of the stream."""
    elsewhere: int
    """The number of those on streams of which the sidecars list none; some of these streams may be listed here."""

    @property
    def unlisted(self) -> int:
        """Return how many are known by their number alone."""
        return sum(self.more.values()) + self.elsewhere

    @property
    def count(self) -> int:
        """Return how many fail."""
        return len(self.rows) + self.unlisted

    def count_on(self, stream: ServedStream) -> int:
        """Return how many fail on a stream, those that are not listed too."""
        name = stream.state.name
        return sum(row[0].state.name == name for row in self.rows) + self.more.get(name, 0)


def with_failing(
    streams: Sequence[ServedStream],
    schedules: Sequence[Row],
    failures: Failures,
    answered: Collection[str] = frozenset(),
) -> tuple[list[Row], FailingSchedules]:
    """Return the schedules with the state of those that fail, and those that fail.

    The owners of some of the streams have `answered`: they name all that fails.
    """
    shown: list[Row] = []
    failing = []
    for stream, listed in schedules:
        why = listed.failing  # a running sidecar was asked
        if why is None and listed.fired_by is FiredBy.SIDECAR and listed.state not in DONE:
            why = failures.schedules.get(_key(stream), {}).get(listed.sequence)
        if why is not None:
            is_shown = listed.state in SHOWN_AS_FAILING
            listed = replace(listed, failing=why, state=State.FAILING if is_shown else listed.state)
            failing.append((stream, listed))
        shown.append((stream, listed))
    more = {one.state.name: 0 if one.state.name in answered else failures.more.get(_key(one), 0) for one in streams}
    is_named = all(_key(one) in failures.schedules or one.state.name in answered for one in streams)
    return shown, FailingSchedules(failing, more, 0 if is_named else failures.elsewhere)


def _key(stream: ServedStream) -> str:
    return f"{stream.mode}.{stream.state.name}"


@dataclass(frozen=True, slots=True)
class Listing:
    """The data that is shown; the column `in` counts from the instant `at` (ns since the Unix epoch)."""

    at: int
    streams: Sequence[ServedStream]
    sidecars: Sidecars
    schedules: Sequence[tuple[ServedStream, ListedSchedule]]
    rejected: Sequence[tuple[ServedStream, Rejected]]
    misnamed: Sequence[tuple[ServedStream, HeadersMisnamed]]
    failing: FailingSchedules
    server: Capabilities
    """The server that stores the streams."""

    @property
    def schedule(self) -> ListedSchedule | None:
        """The only schedule that was wanted; if its message has both spellings of the headers, the sidecar's one."""
        found = [one for _, one in self.schedules]
        return next((one for one in found if one.fired_by is FiredBy.SIDECAR), found[0] if found else None)

    def findings(self, stream: ServedStream, but: Collection[Code] = ()) -> Sequence[tuple[Finding, int]]:
        """Return what is found about valid schedules of a stream: of each code the first one, and their number."""
        found: dict[Code, list[Finding]] = {}
        for one in (listed for served, listed in self.schedules if served is stream):
            for finding in schedule_findings(one.known(stream.state.rules, self.server, self.at)):
                if finding.code not in but:
                    found.setdefault(finding.code, []).append(finding.of(stream.name, one.subject))
        return [(several[0], len(several)) for several in found.values()]

    @property
    def early(self) -> Sequence[tuple[ServedStream, ListedSchedule]]:
        """The schedules that end before their next fire."""
        return [row for row in self.schedules if row[1].state is State.EXPIRING]


def not_stored_error(stream: str, subject: str) -> CommandError:
    """Return the error that ends a command about a schedule that does not exist."""
    return CommandError(f"stream {stream} has no schedule on {printable(subject)!r}: `nats-scheduler ls` lists them")


def end_reason(one: ListedSchedule) -> str:
    """Return by what the stream removes a schedule at its end."""
    return "the max_age of the stream" if one.ended_by is Ending.MAX_AGE else "its Nats-TTL"


async def read_listing(session: Session, resolved: ResolvedSettings, stream: str | None, query: Query) -> Listing:
    """Read the schedules of one stream, or of all, that a query wants."""
    session, sidecars = await with_sidecars(session, resolved)
    served = await session.streams(stream)
    clock = SystemClock()
    schedules: list[tuple[ServedStream, ListedSchedule]] = []
    rejected: list[tuple[ServedStream, Rejected]] = []
    misnamed: list[tuple[ServedStream, HeadersMisnamed]] = []
    answered: set[str] = set()
    zones: dict[str, None] = {}
    for one in served:
        # With warnings, this command may have other settings than the sidecars.
        may_ask = sidecars.serving(one) > 0 and not sidecars.warnings
        read = await session.known(partial(_schedules, one.state, replace(query, states=None)), may_ask=may_ask)
        answered |= {one.name} if read.names_failing else set()
        if may_ask and not read.names_failing:
            held = await session.known(partial(_unfinished, one.name))
            read = replace(read, schedules=[_with_unfinished(schedule, held) for schedule in read.schedules])
        if one.mode is Mode.NATIVE:
            differences = await _zone_differences(session, one.name, read.schedules)
            zones.update({str(difference): None for difference in differences.values()})
            read = replace(read, schedules=as_the_server_fires(read.schedules, differences, clock.now()))
        schedules.extend((one, schedule) for schedule in read.schedules)
        rejected.extend((one, found) for found in read.rejected)
        misnamed.extend((one, noted) for noted in read.misnamed)
    schedules = await _with_calendars(session, schedules)
    if len(served) > 1:
        schedules.sort(key=lambda row: soonest_first(row[1])[0])
    # Read last, so that a schedule that was read as waiting may have failed since, and not the other way round.
    shared = await session.registry.get(FAILING)
    failures = read_failures(shared, {one.name for one in sidecars.alive})
    sidecars = replace(sidecars, warnings=[*sidecars.warnings, *(f"{one}{SHOWN_BY_SERVER}" for one in zones)])
    shown, failing = with_failing(served, schedules, failures, answered)
    if query.states is not None:  # only now: which schedules fail is not written in their streams
        shown = [row for row in shown if row[1].state in query.states]
        failing = replace(failing, rows=[row for row in failing.rows if row[1].state in query.states])
    return Listing(clock.now(), served, sidecars, shown, rejected, misnamed, failing, session.server)


async def _schedules(stream: StreamState, query: Query, source: Source) -> Listed:
    return await source.schedules(stream, query)


async def _zone_differences(
    session: Session, stream: str, schedules: Sequence[ListedSchedule]
) -> Mapping[str, ZoneDifference]:
    """Return the zones that differ; none if the user may not read the fires that show it."""
    try:
        return await read_zone_differences(session.api, stream, schedules)
    except ForbiddenError:
        return {}


async def _unfinished(stream: str, source: Source) -> frozenset[int]:
    return await source.unfinished(stream)


def _with_unfinished(listed: ListedSchedule, unfinished: Collection[int]) -> ListedSchedule:
    is_held = listed.state is State.WAITING and listed.sequence in unfinished
    return replace(listed, state=State.UNFINISHED) if is_held else listed


async def _with_calendars(
    session: Session, schedules: list[tuple[ServedStream, ListedSchedule]]
) -> list[tuple[ServedStream, ListedSchedule]]:
    """Give schedules that a sidecar described the days of their calendars, which its answer does not contain."""
    if all(one.pattern.unknown_calendar is None for _served, one in schedules):
        return schedules
    known = await read_calendars(session.calendars)
    return [(served, one.with_calendars(known)) for served, one in schedules]
