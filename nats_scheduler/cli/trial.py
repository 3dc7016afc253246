"""One run of `nats-scheduler dev` on a running server: serve, show the fires, and end.

Rule: it ends for one of four reasons: a signal, its time is over, the server died, or the demo failed. Every task that
it began has ended when `run` returns.
Cost: the sidecar, and a second connection that reads the streams. Limit: while the server is not reachable, the demo's
sensor writes nothing and no fires are shown; they are shown when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nats_scheduler.cli.demo import DEMO_STREAM, publish_demo, write_sensor
from nats_scheduler.cli.dev_screen import Screen, Tally, paste_lines, who_fires
from nats_scheduler.cli.fire_watch import FireWatch
from nats_scheduler.cli.process import pages_of
from nats_scheduler.cli.session import Session, open_session
from nats_scheduler.doctor.sidecar import examine_sidecar
from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.errors import ConnectError, ConnectionLostError
from nats_scheduler.jetstream.schedule_messages import ScheduleMessages
from nats_scheduler.message.fires import StoredFire
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.embedded import LOG_TAIL_LINES, EmbeddedServer, EmbeddedServerError
from nats_scheduler.runtime.sidecar import Sidecar
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.sidecar import SidecarSettings

SERVER_CHECK_INTERVAL_SECONDS = 0.25
"""How often it is checked that the server still runs, and the wait before connecting again."""


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What was asked for."""

    folder: Path
    """Where the server keeps its data."""
    stream_file: Path
    keeps_data: bool
    demo: bool
    length: int | None
    """When to end, in ns after the start of the sidecar; None for never."""


class Trial:
    """A server, a sidecar, and the output about them."""

    def __init__(
        self,
        server: EmbeddedServer,
        settings: SidecarSettings,
        plan: TrialPlan,
        screen: Screen,
        stopping: asyncio.Event,
    ) -> None:
        """Build a sidecar with `settings` for the running server; `stopping` ends the trial."""
        self._server = server
        self._settings = settings
        self._plan = plan
        self._screen = screen
        self._stopping = stopping
        self._clock = SystemClock()
        self._tally = Tally(self._clock.now())
        self._metrics = Metrics()
        reporter = Reporter(self._metrics)
        reporter.listen(self._tally.event)
        self._sidecar = Sidecar(settings, self._clock, reporter, examine_sidecar)
        self._watch = FireWatch(self._sidecar.served, self._clock.now(), self._fired, screen.stream)
        self._demo_is_due = plan.demo
        self._session: Session | None = None

    async def run(self) -> bool:
        """Run until something ends it; return whether the sidecar finished what was in flight.

        Raises `EmbeddedServerError` if the server died, `JetStreamError` if the demo failed, `ListenError` if the
        metrics cannot be served.
        """
        with pages_of(self._sidecar, self._metrics, self._settings):
            return await self._run()

    async def _run(self) -> bool:
        begun = self._clock.monotonic()
        serving = asyncio.create_task(self._sidecar.run())
        showing = asyncio.create_task(self._show())
        try:
            await self._until_over(serving, showing)
        finally:
            self._sidecar.stop()
            await asyncio.wait((serving,))
            await self._end(showing)
        clean = serving.result()
        ran = (self._clock.monotonic() - begun) / SECOND
        self._screen.heading(f"ran for {ran:.1f} s on nats-server {self._server.version}")
        self._screen.lines(*self._tally.lines())
        return clean

    async def _until_over(self, *tasks: asyncio.Task[Any]) -> None:
        """Return when the trial is to stop, when a task ended, or when the time is over."""
        stopping = asyncio.create_task(self._stopping.wait())
        left = None if self._plan.length is None else self._plan.length / SECOND
        deadline = None if left is None else asyncio.get_running_loop().time() + left
        try:
            while left is None or left > 0:
                wait = SERVER_CHECK_INTERVAL_SECONDS if left is None else min(SERVER_CHECK_INTERVAL_SECONDS, left)
                done, _ = await asyncio.wait((stopping, *tasks), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    return
                if self._server.pid is None:
                    raise EmbeddedServerError(f"nats-server ended by itself:\n{_tail(self._server.log)}")
                left = None if deadline is None else deadline - asyncio.get_running_loop().time()
        finally:
            stopping.cancel()

    # -- what is shown -------------------------------------------------------------------------------------------

    async def _show(self) -> None:
        """Show the server, run the demo and show fires, until cancelled; connect again if the connection is lost."""
        await self._sidecar.serving.wait()
        while True:
            try:
                async with open_session(self._settings) as session:
                    await self._show_through(session)
            except (ConnectError, ConnectionLostError):
                await asyncio.sleep(SERVER_CHECK_INTERVAL_SECONDS)

    async def _show_through(self, session: Session) -> None:
        if self._session is None:
            self._print_introduction(session.server)
        self._session = session
        if self._demo_is_due:
            await session.registry.open()
            messages = ScheduleMessages(session.connection, session.api, DEMO_STREAM)
            published = await publish_demo(messages, session.flagged, self._clock.now())
            self._demo_is_due = False
            self._screen.demo(published, session.server.version)
        self._screen.lines("", "Ctrl-C ends this.")
        sensor = asyncio.create_task(write_sensor(session.connection)) if self._plan.demo else None
        try:
            await self._watch.run(session.connection, session.api)
        finally:
            if sensor is not None:
                sensor.cancel()
                await asyncio.gather(sensor, return_exceptions=True)

    def _print_introduction(self, server: Capabilities) -> None:
        end = "kept" if self._plan.keeps_data else "removed at the end"
        self._screen.lines(
            f"nats-server {server.version} at {self._server.url}, its data in {self._plan.folder} ({end})",
            *who_fires(server),
        )
        self._screen.heading("To paste into another terminal (nats CLI 0.4.0 or later)")
        self._screen.lines(*paste_lines(self._server.url, self._plan.stream_file, server, self._clock.now()))

    def _fired(self, fires: Sequence[StoredFire]) -> None:
        for fire in fires:
            self._tally.fire(fire)
        self._screen.fires(fires, self._tally.is_overdue)

    async def _end(self, showing: asyncio.Task[None]) -> None:
        """Show the fires that are stored already, then end; raise the task's error if it ended by itself."""
        if self._session is not None and not showing.done():
            await self._watch.catch_up(self._session.api)
        showing.cancel()
        await asyncio.wait((showing,))
        if not showing.cancelled():
            showing.result()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:])
