"""Gather the facts of one account: each is read once, and nothing is written.

Rule: what a user may not read is noted and left out, so that a user with few permissions gets a report too.
Cost: the sum of the streams (`gather_stream`), one after the other, so that an account of many streams costs the server
no more than a sidecar that starts.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nats_scheduler.doctor.clock import read_clocks, zone_data_of, zones_in
from nats_scheduler.doctor.facts import (
    AccountFacts,
    Need,
    ServerReach,
    Sidecar,
    StreamFacts,
    Unexamined,
    ZoneData,
    subjects_of,
    unexamined,
)
from nats_scheduler.doctor.permissions import needs_of, place_of, read_permissions
from nats_scheduler.doctor.streams import Reading, outline_of, read_stream
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.errors import ConnectionLostError, JetStreamError, NoAnswerError
from nats_scheduler.jetstream.foreign_json import Object, inner, integer, read_object
from nats_scheduler.jetstream.streams import Progress
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.canary import CANARY_STREAM
from nats_scheduler.runtime.shared import FAILING, Failures, read_failures
from nats_scheduler.schedule.zones import zone_data_versions

# Which subjects the clients of the account subscribe to.
#
# The servers list the connections of an account with their subscriptions on `$SYS.REQ.ACCOUNT.PING.CONNZ`, to every
# user who may publish there. Each server of a cluster answers for itself.
#
# Rule: an incomplete list is no list, because a subscriber that is missing in it would be reported as absent.
# Limit: clients behind leaf nodes and gateways are not listed.

CONNECTIONS = "$SYS.REQ.ACCOUNT.PING.CONNZ"
MAX_CONNECTIONS = 10_000
"""Connections that one answer lists; of an account with more on one server, subscribers are not judged."""

ANSWER_DEADLINE_SECONDS = 2.0
"""Longest wait for the answers of all servers."""

SIDECARS_MARK = "$JS.API.STREAM.CREATE.*"
"""A connection with this subscription is that of a sidecar; on work queues it receives what it fires itself."""

INBOXES = "_INBOX."
"""Subjects of answers, of which each client has one; no schedule has a target among them."""

REQUEST = json.dumps({"subscriptions": True, "limit": MAX_CONNECTIONS}).encode()


async def read_subscriptions(connection: Connection) -> Sequence[str]:
    """Return what clients other than sidecars subscribe to; raises `JetStreamError` if the servers do not list it."""
    first = read_object((await connection.request(CONNECTIONS, REQUEST, deadline=ANSWER_DEADLINE_SECONDS)).body)
    servers = max(len(connection.known_addresses), 1) if connection.server.cluster else 1
    answers = [first or {}] if servers == 1 else await _of_all(connection, servers)
    subjects: set[str] = set()
    for answer in answers:
        data = inner(answer.get("data"))
        listed = data.get("connections")
        if not isinstance(listed, list) or integer(data.get("total")) > len(listed):
            raise NoAnswerError(f"{CONNECTIONS}: the list of connections is not complete")
        for one in listed:
            subscribed = inner(one).get("subscriptions_list")
            if isinstance(subscribed, list) and SIDECARS_MARK not in subscribed:
                subjects.update(str(one) for one in subscribed if not str(one).startswith(INBOXES))
    return sorted(subjects)


async def _of_all(connection: Connection, servers: int) -> list[Object]:
    """Return the answers of so many servers."""
    answers: list[Object] = []
    complete = asyncio.Event()

    def take(_subject: bytes, _reply: bytes, _block: bytes, body: bytes) -> None:
        answers.append(read_object(body) or {})
        if len(answers) >= servers:
            complete.set()

    inbox = connection.inbox("doctor")
    number = connection.subscribe(inbox, take)
    try:
        connection.write(frame(CONNECTIONS, inbox, b"", REQUEST))
        async with asyncio.timeout(ANSWER_DEADLINE_SECONDS):
            await complete.wait()
    except TimeoutError:
        raise NoAnswerError(f"{CONNECTIONS}: {len(answers)} of {servers} servers answered") from None
    finally:
        connection.unsubscribe(number)
    return answers


class Gathering:
    """The gathering of one account's facts."""

    def __init__(self, account: Access, now: Callable[[], int], progress: Progress) -> None:
        """Read an account; `now` returns the time of this machine in ns since the Unix epoch."""
        self._account = account
        self._now = now
        self._progress = progress
        self._unexamined: list[Unexamined] = []
        self._knows_all_streams = False
        self._place = place_of(account)

    async def gather(
        self, reaches: Sequence[ServerReach], sidecars: Sequence[Sidecar] | None, only: str | None = None
    ) -> AccountFacts:
        """Return the facts; with `only`, what the other streams hold is not read; no `sidecars` if they are unknown.

        Raises `ConnectionLostError` if the connection did not last, since then most of the facts are missing.
        """
        note = self._unexamined.append
        if sidecars is None:
            note(Unexamined("which sidecars run", "the user may not read their bucket"))
        infos = await self._infos()
        outlines = [await outline_of(self._account, info, note) for info in infos]
        outlines = [one if only in (None, one.name) else replace(one, mode=None, is_read=False) for one in outlines]
        has_canary = self._place.has_canary or any(one.name == CANARY_STREAM for one in outlines)
        self._place = self._place._replace(has_canary=has_canary)
        failures = await self._failures({one.name for one in sidecars or ()})
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
        clocks = await read_clocks(self._account.api, infos, streams, self._now)
        if self._account.connection.is_lost:
            raise ConnectionLostError(self._account.connection.lost.result())
        return AccountFacts(
            at=self._now(),
            reaches=reaches,
            server=self._account.server,
            missing=[*missing, *denied],
            unclear=[*unclear, *untried],
            clocks=clocks,
            zone_versions=zone_data_versions(),
            zones=_zones(streams),
            sidecars=sidecars,
            streams=streams,
            stored_subjects=subjects_of(infos) if self._knows_all_streams else None,
            subscriptions=subscriptions,
            unexamined=self._unexamined,
        )

    async def _infos(self) -> list[Mapping[str, Any]]:
        try:
            infos, unanswered = await self._account.api.listed_streams()
            self._knows_all_streams = not unanswered
        except JetStreamError as error:
            self._unexamined.append(unexamined("the streams of the account", error))
            return []
        for name in unanswered:
            self._unexamined.append(Unexamined(f"stream {name}", "its leader does not answer", name, has_failed=True))
        return sorted(infos, key=lambda info: str(info["config"]["name"]))

    async def _failures(self, alive: set[str]) -> Failures:
        try:
            return read_failures(await self._account.registry.get(FAILING), alive)
        except JetStreamError as error:
            self._unexamined.append(unexamined("which fires the server refuses", error))
            return Failures()

    async def _stream(self, outline: StreamFacts, failures: Failures, missing: Sequence[Need]) -> StreamFacts:
        if not outline.is_read:
            return outline
        lacking = next((need for need in missing if _is_for_reading(need, outline)), None)
        if lacking is not None:
            why = f"the user may not {lacking.act}: {lacking.subject}"
            self._unexamined.append(Unexamined(f"{outline.name}: what it holds", why, outline.name))
            return outline
        reading = Reading(self._account, self._now, self._unexamined.append, self._progress)
        return await read_stream(reading, outline, failures)

    def _needs(self, streams: Sequence[StreamFacts]) -> list[Need]:
        return needs_of(self._place, self._account.server, streams)

    async def _permissions(self, needs: Sequence[Need]) -> tuple[list[Need], list[Need]]:
        account = self._account
        try:
            return await read_permissions(account.connection, account.api, self._place, needs)
        except JetStreamError as error:
            self._unexamined.append(unexamined("the permissions of the user", error))
            return [], []

    async def _subscriptions(self) -> Sequence[str] | None:
        try:
            return await read_subscriptions(self._account.connection)
        except JetStreamError as error:
            self._unexamined.append(Unexamined("which subjects are subscribed to", str(error)))
            return None


def _is_for_reading(need: Need, stream: StreamFacts) -> bool:
    """Return whether a stream cannot be read without a permission: the reading would wait for answers in vain."""
    acts = ("STREAM.INFO.{}", "STREAM.MSG.GET.{}", "CONSUMER.CREATE.{}.", "CONSUMER.MSG.NEXT.{}.")
    return any(f".{act.format(stream.name)}" in f"{need.subject}." for act in acts)


def _zones(streams: Sequence[StreamFacts]) -> dict[str, ZoneData]:
    return {name: zone_data_of(name) for name in zones_in(streams)}
