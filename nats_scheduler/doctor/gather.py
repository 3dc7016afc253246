"""Gather the facts of one account: each is read once, and nothing is written.

Rule: what a user may not read is noted and left out, so that a user with few permissions gets a report too.
Cost: the sum of the streams, one after the other, so that an account of many streams costs the server
no more than a sidecar that starts.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from nats_scheduler.control.errors import ConnectionLostError, DeadlineError, SchedulerError
from nats_scheduler.doctor.clock_reading import leader_of, read_clocks, zone_data_of, zones_in
from nats_scheduler.doctor.facts import (
    AccountFacts,
    BucketFacts,
    Need,
    ServerReach,
    SidecarFacts,
    StreamFacts,
    Unexamined,
    subjects_of,
    unexamined,
    without_leaders,
)
from nats_scheduler.doctor.permission_probe import read_permissions
from nats_scheduler.doctor.permissions import needs_of, place_of
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import FiredBy, ListedSchedule
from nats_scheduler.jetstream.api import reads_all
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.own_streams import REPLICAS, REQUIRED_BYTES, room_of, storage_for
from nats_scheduler.jetstream.streams import Progress, StreamState, reading_progress
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.jetstream.system_requests import cluster_answers
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.foreign_json import inner, integer
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_findings import ANNOUNCED
from nats_scheduler.observe.documents import FailureDocument
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.canary import CANARY_STREAM
from nats_scheduler.runtime.consumption import filters_of, stalled
from nats_scheduler.runtime.graduation import Graduation
from nats_scheduler.runtime.modes import Mode, dialects_of
from nats_scheduler.runtime.server_zones import as_the_server_fires, read_zone_differences
from nats_scheduler.runtime.shared import FAILING, Failures, read_failures
from nats_scheduler.runtime.stored_listing import read_listing
from nats_scheduler.runtime.unserved import SearchedHeaders
from nats_scheduler.schedule.instants import DAY
from nats_scheduler.schedule.zone_data import zone_data_versions
from nats_scheduler.service.stored_advisories import find_announced

T = TypeVar("T")

TO_FIRE = frozenset({State.WAITING, State.OVERDUE, State.FAILING, State.UNFINISHED})
"""The states of schedules that fire, now or later."""

MAX_SEARCHED_MESSAGES = 100_000
"""Newest messages of a stream that is not served in which schedule headers are searched."""

MAX_BODIES_COMPARED = 1_000
"""Schedules of one stream whose bodies are read to find equal ones."""

MAX_REQUESTS_IN_FLIGHT = 256

ANNOUNCED_SINCE_NS = DAY
"""What sidecars announced longer ago (ns) is not reported."""

CONNECTIONS = "$SYS.REQ.ACCOUNT.PING.CONNZ"
"""Servers list the connections of an account with their subscriptions here, to every user who may publish there.

Each server of a cluster answers for itself. Clients behind leaf nodes and gateways are not listed.
"""

MAX_CONNECTIONS = 10_000
"""Connections that one answer lists; of an account with more on one server, subscribers are not judged."""

SIDECARS_MARK = "$JS.API.STREAM.CREATE.*"
"""A connection with this subscription is that of a sidecar; on work queues it receives what it fires itself."""

INBOXES = "_INBOX."
"""Subjects of answers, of which each client has one; no schedule has a target among them."""

REQUEST = json.dumps({"subscriptions": True, "limit": MAX_CONNECTIONS}).encode()


async def read_subscriptions(connection: Connection) -> Sequence[str]:
    """Return what clients other than sidecars subscribe to; raises `SchedulerError` if the servers do not list it.

    An incomplete list is no list, because a subscriber that is missing in it would be reported as absent.
    """
    subjects: set[str] = set()
    for data in await cluster_answers(connection, CONNECTIONS, REQUEST):
        listed = data.get("connections")
        if not isinstance(listed, list) or integer(data.get("total")) > len(listed):
            raise DeadlineError(f"{CONNECTIONS}: the list of connections is not complete")
        for one in listed:
            subscribed = inner(one).get("subscriptions_list")
            if isinstance(subscribed, list) and SIDECARS_MARK not in subscribed:
                subjects.update(str(one) for one in subscribed if not str(one).startswith(INBOXES))
    return sorted(subjects)


async def read_announced(account: Access, infos: Iterable[Mapping[str, Any]], now: int) -> Sequence[FailureDocument]:
    """Return what sidecars announced of the schedules during the last day before `now` (ns)."""
    name = account.settings.failures_stream
    kept_in = next((StreamState.from_info(info) for info in infos if info["config"]["name"] == name), None)
    if kept_in is None:
        return ()
    return await find_announced(account.connection, account.api, kept_in, ANNOUNCED, now - ANNOUNCED_SINCE_NS)


class Gathering:
    """The gathering of one account's facts."""

    def __init__(self, account: Access, now: Callable[[], int], progress: Progress) -> None:
        """Read an account; `now` returns the time of this machine in ns since the Unix epoch."""
        self._account = account
        self._now = now
        self._progress = progress
        self._unexamined: list[Unexamined] = []
        self._note = self._unexamined.append
        self._knows_all_streams = False
        self._place = place_of(account)

    async def gather(
        self, reaches: Sequence[ServerReach], sidecars: Sequence[SidecarFacts] | None, only: str | None = None
    ) -> AccountFacts:
        """Return the facts; with `only`, what the other streams hold is not read; no `sidecars` if they are unknown.

        Raises `ConnectionLostError` if the connection did not last, since then most of the facts are missing.
        """
        if sidecars is None:
            self._note(Unexamined("which sidecars run", "the user may not read their bucket"))
        infos = await self._infos()
        outlines = [await self._outline(info) for info in infos]
        outlines = [one if only in (None, one.name) else replace(one, mode=None, is_read=False) for one in outlines]
        has_canary = self._place.has_canary or any(one.name == CANARY_STREAM for one in outlines)
        self._place = self._place._replace(has_canary=has_canary)
        refused = await self._tried("which fires the server refuses", self._account.registry.get(FAILING), None)
        failures = read_failures(refused, {one.name for one in sidecars or ()})
        steps = len(outlines) + 1
        self._progress("permissions", 0, steps)
        missing, unclear = await self._permissions(self._needs(outlines))
        streams = []
        for number, outline in enumerate(outlines, 1):
            self._progress(f"reading {outline.name}", number, steps)
            streams.append(await self._stream(outline, failures, missing))
        # The targets of schedules are known only now.
        known = set(self._needs(outlines))
        denied, untried = await self._permissions([need for need in self._needs(streams) if need not in known])
        subscriptions = await self._subscriptions()
        announced = await self._tried("what sidecars announced", read_announced(self._account, infos, self._now()), ())
        clocks = await read_clocks(self._account.api, infos, streams, self._now)
        if self._account.connection.is_lost:
            raise ConnectionLostError(self._account.connection.lost.result())
        return AccountFacts(
            at=self._now(),
            reaches=reaches,
            server=self._account.server,
            bucket=await self._tried("the room of the account", self._bucket(infos), None),
            missing=[*missing, *denied],
            unclear=[*unclear, *untried],
            clocks=clocks,
            zone_versions=zone_data_versions(),
            zones={name: zone_data_of(name) for name in zones_in(streams)},
            sidecars=sidecars,
            streams=streams,
            stored_subjects=subjects_of(infos) if self._knows_all_streams else None,
            subscriptions=subscriptions,
            announced=announced,
            unexamined=self._unexamined,
        )

    async def _tried(self, what: str, reading: Awaitable[T], otherwise: T, stream: str | None = None) -> T:
        """Return what is read; if that fails, note what could not be read, and return what counts then."""
        try:
            return await reading
        except SchedulerError as error:
            self._note(unexamined(what, error, stream))
            return otherwise

    # -- the account ---------------------------------------------------------------------------------------------

    async def _infos(self) -> list[Mapping[str, Any]]:
        listed = await self._tried("the streams of the account", self._account.api.listed_streams(), None)
        if listed is None:
            return []
        infos, unanswered = listed
        self._knows_all_streams = not unanswered
        self._unexamined += without_leaders(unanswered)
        return sorted(infos, key=lambda info: str(info["config"]["name"]))

    async def _bucket(self, infos: Iterable[Mapping[str, Any]]) -> BucketFacts:
        """Return what is known of the sidecar's bucket, or of the room for it."""
        account, settings = self._account, self._account.settings
        info, replicas = await account.api.info(), REPLICAS if account.connection.server.cluster else 1
        name = account.registry.stream
        there = next((one for one in infos if one["config"]["name"] == name), None)
        storage = settings.bucket_storage or storage_for(info, replicas)
        room = room_of(info, storage, replicas)
        if there is not None:
            config, used = there["config"], integer(inner(there.get("state")).get("bytes"))
            return BucketFacts(name, storage, room, max(integer(config.get("max_bytes")), 0), used)
        size = settings.bucket_max_bytes or (REQUIRED_BYTES if room.needs_size else 0)
        return BucketFacts(name, storage, room, size, None)

    def _needs(self, streams: Sequence[StreamFacts]) -> list[Need]:
        return needs_of(self._place, self._account.server, streams)

    async def _permissions(self, needs: Sequence[Need]) -> tuple[list[Need], list[Need]]:
        read = read_permissions(self._account.connection, self._account.api, self._place, needs)
        return await self._tried("the permissions of the user", read, ([], []))

    async def _subscriptions(self) -> Sequence[str] | None:
        try:
            return await read_subscriptions(self._account.connection)
        except SchedulerError as error:
            self._note(Unexamined("which subjects are subscribed to", str(error)))
            return None

    # -- one stream: up to two passes over its headers, and a request for each body that is compared ---------------

    async def _outline(self, info: Mapping[str, Any]) -> StreamFacts:
        """Return what STREAM.LIST and the bucket say of a stream."""
        state = StreamState.from_info(info)
        what, found = f"whether {state.name} carries the flag", self._account.with_mode(state)
        state, mode = await self._tried(what, found, (state, None), state.name)
        stored = inner(info.get("state"))
        return StreamFacts(state, mode, messages=integer(stored.get("messages")), bytes=integer(stored.get("bytes")))

    async def _stream(self, outline: StreamFacts, failures: Failures, missing: Sequence[Need]) -> StreamFacts:
        """Read what a stream holds, as far as it can be read."""
        if not outline.is_read:
            return outline
        lacking = next((need for need in missing if _is_for_reading(need, outline)), None)
        if lacking is not None:
            why = f"the user may not {lacking.act}: {lacking.subject}"
            self._note(Unexamined(f"{outline.name}: what it holds", why, outline.name))
            return outline
        facts = replace(outline, at=self._now())
        for what, read in (
            ("its consumers", self._with_consumers),
            ("schedule headers that are not fired", self._with_unserved),
            ("its schedules", self._with_schedules),
            ("what a graduation would refuse", self._with_graduation),
        ):
            facts = await self._tried(f"{facts.name}: {what}", read(facts), facts, facts.name)
        key = f"{facts.mode}.{facts.name}"
        return replace(facts, failing=failures.schedules.get(key, {}), failing_unlisted=failures.more.get(key, 0))

    async def _with_consumers(self, facts: StreamFacts) -> StreamFacts:
        if facts.mode is None:
            return facts
        infos = [info async for info in self._account.api.consumers(facts.name)]
        leaders = {leader_of(info): str(info.get("name", "")) for info in infos}
        idle = stalled(infos, self._now())
        return replace(facts, consumers=filters_of(infos), idle_consumers=idle, consumer_leaders=leaders)

    async def _with_unserved(self, facts: StreamFacts) -> StreamFacts:
        """Search headers that no program fires: in a stream without the flag, or in the dialect that is not served."""
        account = self._account
        served = () if facts.mode is None else dialects_of(facts.mode)
        is_ours = facts.name in (account.registry.stream, CANARY_STREAM)
        by_nobody = facts.mode in (None, Mode.PORTABLE)
        if not by_nobody or is_ours or facts.state.excludes_schedules or not facts.messages:
            return facts
        after = max(facts.state.last_sequence - MAX_SEARCHED_MESSAGES, 0) if reads_all(facts.state.config) else 0
        if not reads_all(facts.state.config) and facts.messages > MAX_SEARCHED_MESSAGES:
            why = f"it has more than {MAX_SEARCHED_MESSAGES} messages, and no consumer may be attached"
            self._note(Unexamined(f"{facts.name}: schedule headers that are not fired", why, facts.name))
            return facts
        if after >= facts.state.first_sequence:
            why = f"only the newest {MAX_SEARCHED_MESSAGES} messages are searched"
            self._note(
                Unexamined(f"{facts.name}: schedule headers that are not fired, in older messages", why, facts.name)
            )
        searched = SearchedHeaders([dialect for dialect in DIALECTS if dialect not in served])
        show = reading_progress(self._progress, f"search in {facts.name}", facts.state, after)

        def take(messages: Sequence[StoredMessage]) -> None:
            show(messages)
            searched.take(messages)

        await StretchReader(account.connection, account.api, facts.state.config).read_all(take, after)
        return replace(facts, unserved=searched.subjects)

    async def _with_schedules(self, facts: StreamFacts) -> StreamFacts:
        if facts.mode is None:
            return facts
        account, name = self._account, facts.name
        show = reading_progress(self._progress, f"schedules of {name}", facts.state)
        read, at = await read_listing(account, facts.state, facts.mode, self._now, notify_read=show)
        equal = await self._equal(name, read.schedules)
        zones = await read_zone_differences(account.api, name, read.schedules) if facts.mode is Mode.NATIVE else {}
        schedules = as_the_server_fires(read.schedules, zones, at)
        found = replace(facts, schedules=schedules, rejected=read.rejected, misnamed=read.misnamed)
        found = replace(found, zone_differences=list(zones.values()))
        return replace(found, at=at, equal=equal, replaced=read.replaced)

    async def _equal(self, stream: str, schedules: Sequence[ListedSchedule]) -> list[list[ListedSchedule]]:
        """Return the groups of schedules that fire the same message at the same times."""
        alike: dict[tuple[object, ...], list[ListedSchedule]] = {}
        for one in schedules:
            if one.fired_by is not FiredBy.NONE and one.state in TO_FIRE:
                terms = one.terms
                pattern = one.pattern.text, one.pattern.time_zone, terms.policies.written
                key = terms.target, terms.source, terms.ttl, terms.rollup, pattern
                alike.setdefault(key, []).append(one)
        left = MAX_BODIES_COMPARED
        found: list[list[ListedSchedule]] = []
        for group in alike.values():
            if len(group) < 2:
                continue
            if len(group) > left:
                why = f"only {MAX_BODIES_COMPARED} bodies are compared"
                self._note(
                    Unexamined(f"{stream}: equal schedules among those with equal target and pattern", why, stream)
                )
            found += [same for same in await self._by_body(stream, group[:left]) if len(same) > 1]
            left -= len(group)
            if left <= 0:
                break
        return found

    async def _by_body(self, stream: str, group: Sequence[ListedSchedule]) -> list[list[ListedSchedule]]:
        same: dict[bytes, list[ListedSchedule]] = {}
        requests = [partial(self._account.api.message, stream, seq=one.sequence) for one in group]
        for one, message in zip(group, await in_turn(requests, MAX_REQUESTS_IN_FLIGHT), strict=True):
            if message is not None:
                same.setdefault(message.body or b"", []).append(one)
        return list(same.values())

    async def _with_graduation(self, facts: StreamFacts) -> StreamFacts:
        """Find what a graduation would find: to the server that is there, or to a 2.14 if it has no scheduler."""
        if facts.mode not in (Mode.EMULATED, Mode.DORMANT):
            return facts
        account = self._account
        graduation = Graduation(account.connection, account.api, account.server.upgraded, facts.state, self._now)
        show = reading_progress(self._progress, f"graduation of {facts.name}", facts.state)
        await graduation.look(account.registry, account.settings.restrictions_on(facts.name), show, account.calendars)
        return replace(facts, graduation=list(graduation.findings))


def _is_for_reading(need: Need, stream: StreamFacts) -> bool:
    """Return whether a stream cannot be read without a permission: the reading would wait for answers in vain."""
    acts = ("STREAM.INFO.{}", "STREAM.MSG.GET.{}", "CONSUMER.CREATE.{}.", "CONSUMER.MSG.NEXT.{}.")
    return any(f".{act.format(stream.name)}" in f"{need.subject}." for act in acts)
