"""Gather the facts of one account: each is read once, and nothing is written.

Rule: what a user may not read is noted and left out, so that a user with few permissions gets a report too.
Cost: the sum of the streams (`gather_stream`), one after the other, so that an account of many streams costs the server
no more than a sidecar that starts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nats_scheduler.doctor.account import Account
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
from nats_scheduler.doctor.gather_clocks import read_clocks
from nats_scheduler.doctor.gather_permissions import read_permissions
from nats_scheduler.doctor.gather_stream import Reading, outline_of, read_stream
from nats_scheduler.doctor.gather_zones import zone_data_of, zones_in
from nats_scheduler.doctor.permissions import needs_of, place_of
from nats_scheduler.doctor.subscriptions import read_subscriptions
from nats_scheduler.jetstream.errors import ConnectionLostError, JetStreamError
from nats_scheduler.jetstream.reading_progress import Progress
from nats_scheduler.runtime.canary import CANARY_STREAM
from nats_scheduler.runtime.failing import FAILING, Failures, read_failures
from nats_scheduler.schedule.zone_files import zone_data_versions


class Gathering:
    """The gathering of one account's facts."""

    def __init__(self, account: Account, now: Callable[[], int], progress: Progress) -> None:
        """Read an account; `now` returns the time of this machine in ns since the Unix epoch."""
        self._account = account
        self._now = now
        self._progress = progress
        self._unexamined: list[Unexamined] = []
        self._knows_all_streams = False
        self._place = place_of(account.settings, account.api, account.registry)

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
        return needs_of(self._place, self._account.server.api_level, streams)

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
