"""Examine the account of a running sidecar from within, for requests to its micro service.

The rules:

- No stream is read again: of a stream counts what its engine holds (`engine.views.view`).
- Nothing is requested that the sidecar itself does not request, so no further permission is needed and none is missed.
- What takes long is done in a thread or in slices, so that no fire waits for it (`service.turns`).
- What cannot be examined in this way is named in the answer (`NOT_FROM_WITHIN`).

Cost: about two microseconds for each schedule that is held; the list of streams, one request for each node that leads
a stream, and two for each instance.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.doctor.clock_reading import read_clocks, zone_data_of, zones_in
from nats_scheduler.doctor.examination import examination, report_document
from nats_scheduler.doctor.facts import (
    AccountFacts,
    Need,
    SidecarFacts,
    StreamFacts,
    Unexamined,
    ZoneData,
    subjects_of,
    unexamined,
    without_leaders,
)
from nats_scheduler.doctor.gather import read_announced
from nats_scheduler.doctor.permissions import needs_of, place_of
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.survey import MAX_OF_A_KIND, MAX_TARGETS, NONE_FAILING, survey
from nats_scheduler.engine.views.view import ALL
from nats_scheduler.jetstream.denials import Denial
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.findings import Code
from nats_scheduler.message.foreign_json import inner, integer
from nats_scheduler.message.user_permissions import PUBLISH
from nats_scheduler.observe.documents import FailureDocument, UnexaminedDocument
from nats_scheduler.runtime.asked import Examinable
from nats_scheduler.runtime.consumption import copies_in
from nats_scheduler.runtime.fleet import read_fleet
from nats_scheduler.runtime.shared import FAILING, Failures, read_failures
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.zone_data import zone_data_versions
from nats_scheduler.service.last_examination import Examination
from nats_scheduler.service.turns import Turns

BY_COMMAND = "a running sidecar does not examine it; `nats-scheduler doctor` does"

NOT_FROM_WITHIN = (
    "whether each server is reached, and its version",
    "permissions that the sidecar has not missed yet",
    "what consumers and subscribers take",
    "schedules with equal target, pattern and body",
    "what single schedules show, but for one of each target and time zone, and those that do not fire",
    "what a graduation would refuse",
    "schedules that the server itself fires, and all but one of the schedules in each stream that is not served",
)
"""The checks that only the command makes."""

MAX_COPY_FILTERS = 16
"""Filters of mirrors and sources of one stream of which a schedule is searched that they take."""


async def examine_sidecar(examinable: Examinable, turns: Turns) -> Examination:
    """Return what is wrong in the account of a sidecar; raises `SchedulerError`."""
    gathering = _Gathering(examinable, turns)
    facts = await gathering.gather()
    report = await turns.run(examination(facts))
    unexamined: list[UnexaminedDocument] = [
        {"what": what, "why": BY_COMMAND, "stream": None} for what in NOT_FROM_WITHIN
    ]
    unexamined += [{"what": one.what, "why": one.why, "stream": one.stream} for one in gathering.unexamined]
    return Examination(facts.at, report_document(report), unexamined, is_whole=gathering.is_whole)


class _Gathering:
    """The gathering of one examination's facts."""

    def __init__(self, examinable: Examinable, turns: Turns) -> None:
        self._sidecar = examinable
        self._turns = turns
        self.unexamined: list[Unexamined] = []
        self.is_whole = True

    async def gather(self) -> AccountFacts:
        """Return the facts; raises `SchedulerError`."""
        sidecar = self._sidecar
        infos, unanswered = await sidecar.access.api.listed_streams()
        sidecars = await self._sidecars()
        value = await sidecar.access.registry.get(FAILING)
        failures = read_failures(value, {one.name for one in sidecars})
        by_name = {str(info["config"]["name"]): info for info in infos}
        outlines = await self._turns.run(self._outlines(by_name))
        copies = copies_in(one.state for one in outlines)
        streams = []
        for outline in outlines:
            filters = [one for _kind, _name, taken in copies.get(outline.name, ()) for one in taken]
            streams.append(await self._stream(outline, failures, filters))
        announced: Sequence[FailureDocument] = ()
        try:
            announced = await read_announced(sidecar.access, infos, sidecar.server_now())
        except SchedulerError as error:
            self.unexamined.append(unexamined("what sidecars announced", error))
        clocks = await read_clocks(sidecar.access.api, infos, (), sidecar.machine_now)
        return AccountFacts(
            at=sidecar.server_now(),
            server=sidecar.access.server,
            missing=await self._turns.run(self._missing(streams)),
            clocks=clocks,
            zone_versions=zone_data_versions(),
            zones=await self._turns.run(_zones(streams)),
            sidecars=sidecars,
            streams=streams,
            stored_subjects=None if unanswered else subjects_of(infos),
            announced=announced,
            unexamined=without_leaders(unanswered),
        )

    async def _sidecars(self) -> list[SidecarFacts]:
        """Return the sidecars that are alive; what this one serves is known better than by its last heartbeat."""
        sidecar = self._sidecar
        fleet = await read_fleet(sidecar.access.registry, sidecar.access.api, sidecar.server_now)
        mine = [one.key for one in sidecar.services.values()]
        others = [one for one in fleet.instances if one.name != sidecar.instance and one.state(fleet.at) == "alive"]
        unable = {
            key: why for one in fleet.instances if one.name == sidecar.instance for key, why in one.unable.items()
        }
        return [
            SidecarFacts(sidecar.instance, mine, unable),
            *(SidecarFacts(one.name, one.serves, one.unable) for one in others),
        ]

    def _outlines(self, infos: Mapping[str, Mapping[str, Any]]) -> Generator[None, None, list[StreamFacts]]:
        """Return the streams that are served, that copy others, or hold schedules that nothing fires."""
        services, left = self._sidecar.services, self._sidecar.left
        unserved, outlines = self._sidecar.unserved, list[StreamFacts]()
        for name, info in sorted(infos.items()):
            state, service = StreamState.from_info(info), services.get(name) or left.get(name)
            stored = inner(info.get("state"))
            if service is not None:
                state = replace(state, remembered=service.state.remembered)
            subjects = [unserved[name]] if service is None and name in unserved else []
            if service is not None or subjects or state.config.get("mirror") or state.config.get("sources"):
                mode = None if service is None else service.mode
                count, size = integer(stored.get("messages")), integer(stored.get("bytes"))
                outlines.append(StreamFacts(state, mode, name in services, count, size, unserved=subjects))
            if name in left:
                self.unexamined.append(Unexamined("its schedules", "only other instances read them", name))
            yield
        return outlines

    async def _stream(self, outline: StreamFacts, failures: Failures, filters: Sequence[str]) -> StreamFacts:
        """Return what the engine of a stream holds, as far as it is needed."""
        service = self._sidecar.services.get(outline.name)
        if not outline.is_read or service is None:
            return outline
        if not service.is_ready or (service.engine.calendars.are_named and not service.engine.calendars.are_read):
            self.is_whole = False
            what = "its schedules, or the calendars that they name, are not read to their end yet"
            self.unexamined.append(Unexamined("its schedules", what, outline.name))
            return outline
        return await self._held(outline, service, failures, filters)

    async def _held(
        self, outline: StreamFacts, service: StreamService, failures: Failures, filters: Sequence[str]
    ) -> StreamFacts:
        turns, view, now = self._turns, service.engine.view(), self._sidecar.server_now()
        failing = failures.schedules.get(service.key, NONE_FAILING)
        found = await turns.ask(survey(view, now, filters[:MAX_COPY_FILTERS], failing))
        rejected = (await turns.run(view.rejected_page(ALL, MAX_OF_A_KIND, ""))).messages
        misnamed = (await turns.run(view.misnamed_page(ALL, MAX_OF_A_KIND, ""))).messages
        if not found.names_all_targets:
            why = f"only {MAX_TARGETS} of its targets are examined"
            self.unexamined.append(Unexamined("permissions for targets", why, outline.name))
        # What the server refuses now may be listed as failing in the view and not in the bucket yet.
        known = {one.sequence: one.failing for one in found.schedules if one.failing is not None}
        expiring = sum(one.state is State.EXPIRING for one in found.schedules)
        listed = sum(one.state is State.FAILING for one in found.schedules)
        waiting = sum(one.state is State.NO_CALENDAR for one in found.schedules)
        return replace(
            outline,
            at=now,
            schedules=found.schedules,
            rejected=rejected,
            misnamed=misnamed,
            failing=known,
            failing_unlisted=failures.more.get(service.key, 0),
            more={
                Code.SCHEDULE_ENDS_EARLY: found.counts[State.EXPIRING] - expiring,
                Code.FIRE_REFUSED: found.counts[State.FAILING] - listed,
                Code.CALENDAR_MISSING: found.counts[State.NO_CALENDAR] - waiting,
                Code.SCHEDULE_REJECTED: view.rejected_count - len(rejected),
                Code.HEADER_MISNAMED: view.misnamed_count - len(misnamed),
            },
        )

    def _missing(self, streams: Sequence[StreamFacts]) -> Generator[None, None, list[Need]]:
        """Return the permissions that the sidecar has missed on this connection."""
        sidecar = self._sidecar
        missing: dict[tuple[str, str], Need] = {}
        place = place_of(sidecar.access)
        for served in ([], *([stream] for stream in streams)) if sidecar.denials else ():
            for need in needs_of(place, sidecar.access.server, served):
                key = need.act, need.subject
                is_known = key in missing and not missing[key].is_optional
                if not is_known and Denial(need.act == PUBLISH, need.subject).permission in sidecar.denials:
                    missing[key] = need
            yield
        return list(missing.values())


def _zones(streams: Sequence[StreamFacts]) -> Generator[None, None, dict[str, ZoneData]]:
    """Read the zones that schedules use, one in each unit of work."""
    zones = {}
    for name in zones_in(streams):
        zones[name] = zone_data_of(name)
        yield
    return zones
