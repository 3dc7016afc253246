"""Watch streams that carry schedules, and report the fires that are stored in them, for `watch` and `dev`.

Rule: the watch changes nothing: it reads each stream as the sidecar's own follower does, headers only, on a connection
of its own.
The streams are those that the sidecar serves at the moment, checked every 0.25 s. A stream that was deleted and created
again is another one.
Cost: every message of a served stream is delivered to this process twice. Limit: on a stream with work queue or
interest retention, fires of a native server are not reported, since no consumer may be created on it.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import click

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.inputs import Input, MessagesRead
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.contact import follower_of
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.fires import FireReader, ScheduleKind, StoredFire
from nats_scheduler.observe.texts import printable
from nats_scheduler.runtime.modes import EXPLANATIONS, Mode
from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339

SERVED_STREAMS_CHECK_INTERVAL_SECONDS = 0.25
"""The interval of the check of the list of served streams."""

LAST_FIRES_DEADLINE_SECONDS = 1.0
"""Longest wait at the end for the fires that are stored already."""

LATE_FROM_NS = 10 * MILLISECOND
"""The p99 that *Timely* promises while fires are spread (ns); later fires are shown in another colour."""
KIND_COLOURS = {
    ScheduleKind.DELAYED: "cyan",
    ScheduleKind.INTERVAL: "green",
    ScheduleKind.CRON: "magenta",
    ScheduleKind.SAMPLING: "blue",
}

Key = tuple[str, str]
"""A stream's name, and when it was created."""


class WatchedStream(Protocol):
    """A stream that is served, and how."""

    @property
    def state(self) -> StreamState:
        """The stream as the server describes it."""

    @property
    def mode(self) -> Mode:
        """Which side fires."""


class FireWatch:
    """Watches for the fires of all served streams from the instant `since` (ns) on."""

    def __init__(
        self,
        services: Mapping[str, WatchedStream],
        since: int,
        notify_fires: Callable[[list[StoredFire]], None],
        notify_stream: Callable[[WatchedStream], None],
    ) -> None:
        self._services = services
        self._since = since
        self._notify_fires = notify_fires
        self._notify_stream = notify_stream
        self._progress = asyncio.Event()
        self._reported_modes: dict[str, str] = {}
        self._readers: dict[Key, FireReader] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    async def run(self, connection: Connection, api: JetStreamApi) -> None:
        """Watch until cancelled, or until the connection is lost; the next call continues after what was read."""
        try:
            while not connection.is_lost:
                self._check_streams(connection, api)
                await asyncio.wait((connection.lost,), timeout=SERVED_STREAMS_CHECK_INTERVAL_SECONDS)
        finally:
            await self._end_all()

    async def catch_up(self, api: JetStreamApi) -> None:
        """Wait, within `LAST_FIRES_DEADLINE_SECONDS`, until everything that is stored has been read."""
        try:
            async with asyncio.timeout(LAST_FIRES_DEADLINE_SECONDS):
                for (name, _created), reader in list(self._readers.items()):
                    await self._read_to_the_end(api, name, reader)
        except (TimeoutError, SchedulerError):
            return  # the summary lacks what could not be read in time

    async def _read_to_the_end(self, api: JetStreamApi, stream: str, reader: FireReader) -> None:
        info = await api.stream(stream)
        last = 0 if info is None else StreamState.from_info(info).last_sequence
        while reader.last_read < last:
            self._progress.clear()
            await self._progress.wait()

    def _check_streams(self, connection: Connection, api: JetStreamApi) -> None:
        served = {(name, service.state.created): service for name, service in self._services.items()}
        for key in set(self._tasks) - set(served):
            self._tasks.pop(key).cancel()
            self._readers.pop(key, None)
        for key, service in served.items():
            if self._reported_modes.get(service.state.name) != service.mode:
                self._reported_modes[service.state.name] = service.mode
                self._notify_stream(service)
            if key not in self._tasks or self._tasks[key].done():
                self._tasks[key] = asyncio.create_task(self._follow(service.state, key, connection, api))

    async def _follow(self, state: StreamState, key: Key, connection: Connection, api: JetStreamApi) -> None:
        reader = self._readers.setdefault(key, FireReader(state.config))
        follower = follower_of(
            connection, api, state.config, lambda given: self._read(reader, given), holds=reader.holds
        )
        try:
            await follower.follow(reader.last_read)
        except SchedulerError:
            return  # the next check begins again, if the stream is still served

    def _read(self, reader: FireReader, given: Input) -> None:
        if not isinstance(given, MessagesRead):
            return
        self._progress.set()
        fires = [fire for message in given.messages if (fire := reader.read(message)) is not None]
        fires = [fire for fire in fires if fire.stored_at >= self._since]
        if fires:
            self._notify_fires(fires)

    async def _end_all(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def stream_line(served: WatchedStream) -> str:
    """Return a line that says who fires on a stream."""
    return f"stream {printable(served.state.name)} is {served.mode}: {EXPLANATIONS[served.mode]}"


def fire_line(fire: StoredFire, *, overdue: bool) -> str:
    """Return the line of one fire: due time, lateness, kind, schedule and target."""
    late = click.style(f"{milliseconds(fire.lateness):>8}", fg="yellow" if fire.lateness > LATE_FROM_NS else None)
    kind = click.style(f"{fire.kind:<8}", fg=KIND_COLOURS.get(fire.kind))
    overdue_mark = "  (overdue)" if overdue else ""
    subjects = f"{printable(fire.schedule)} -> {printable(fire.target)}"
    return f"{format_rfc3339(fire.due):<20}  {late}  {kind}  {subjects}{overdue_mark}"


def milliseconds(nanoseconds: int) -> str:
    """Return a lateness as text for people."""
    return f"{nanoseconds / MILLISECOND:.1f} ms"
