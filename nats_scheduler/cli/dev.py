"""`nats-scheduler dev`: a real nats-server with JetStream and the sidecar, to try things out.

Rule: it ends for one of four reasons: a signal, its time is over, the server died, or the demo failed. Everything that
it started ends with it, in this order: the sidecar (drained), the demo, the server, the temporary folder.
The sidecar is the same as in `nats-scheduler run`, with the same settings. Only the connection is fixed, so those of
the environment and the contexts are not read.
Cost: a child process, and a second connection that reads the served streams for the lines that are printed.
Limit: loopback, no passwords: it is for a laptop. While the server is not reachable, the demo's sensor writes nothing
and no fires are shown; they are shown when it is back.
"""

import asyncio
import fcntl
import json
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.arguments import duration_of
from nats_scheduler.cli.demo import (
    Screen,
    Tally,
    paste_lines,
    publish_demo,
    who_fires,
    write_sensor,
)
from nats_scheduler.cli.fire_watch import FireWatch, WatchedStream, stream_line
from nats_scheduler.cli.options import sidecar_options
from nats_scheduler.cli.output import EXIT_WRONG_USE, CommandError
from nats_scheduler.cli.process import log_as_set, stop_on_signals
from nats_scheduler.cli.run import pages_of
from nats_scheduler.cli.session import Session, open_session
from nats_scheduler.control.errors import ConnectionLostError, NotConnectedError, SchedulerError
from nats_scheduler.doctor.sidecar_examination import examine_sidecar
from nats_scheduler.jetstream.schedule_wire import ScheduleWire
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.fires import StoredFire
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.embedded import LOG_TAIL_LINES, EmbeddedServer, EmbeddedServerError, find_server
from nats_scheduler.runtime.punctual import run_punctually
from nats_scheduler.runtime.sidecar import Sidecar
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.problems import SettingsError
from nats_scheduler.settings.sidecar_settings import SidecarSettings

SERVER_CHECK_INTERVAL_SECONDS = 0.25
"""The interval of the check that the server still runs, and the wait before connecting again."""


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """The trial that was asked for."""

    folder: Path
    """Where the server and the sidecar keep their data."""
    stream_file: Path
    keeps_data: bool
    demo: bool
    length: int | None
    """The time (ns) from the start of the sidecar to the end of the trial; None if it does not end by itself."""


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
        self._watch = FireWatch(self._sidecar.served, self._clock.now(), self._fired, self._introduced)
        self._demo_is_due = plan.demo
        self._session: Session | None = None

    async def run(self) -> bool:
        """Run until something ends it; return whether the sidecar finished what was in flight.

        Raises `EmbeddedServerError` if the server died, `SchedulerError` if the demo failed, `SettingsError` if the
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
        seconds = None if self._plan.length is None else self._plan.length / SECOND
        try:
            async with asyncio.timeout(seconds):
                while not await _any_done((stopping, *tasks)):
                    if self._server.pid is None:
                        last = self._server.log.read_text("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:]
                        raise EmbeddedServerError("\n".join(["nats-server ended by itself:", *last]))
        except TimeoutError:
            return
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
            except (NotConnectedError, ConnectionLostError):
                await asyncio.sleep(SERVER_CHECK_INTERVAL_SECONDS)

    async def _show_through(self, session: Session) -> None:
        if self._session is None:
            self._print_introduction(session.server)
        self._session = session
        if self._demo_is_due:
            await session.registry.open()
            wire = ScheduleWire(session.connection, session.api)
            published = await publish_demo(wire, session.flagged, self._clock.now())
            self._demo_is_due = False
            self._screen.demo(published, session.server.version, self._server.url)
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

    def _introduced(self, stream: WatchedStream) -> None:
        self._screen.lines(stream_line(stream))

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


async def _any_done(tasks: Collection[asyncio.Task[Any]]) -> bool:
    """Wait for `SERVER_CHECK_INTERVAL_SECONDS` at most; return whether one of the tasks has ended."""
    wait = SERVER_CHECK_INTERVAL_SECONDS
    done, _ = await asyncio.wait(tasks, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)


STREAM_FILE_NAME = "orders.json"
SIDECAR_FOLDER_NAME = "sidecar"
"""The folder of the sidecar's own file, beside the files of the server."""
ORDERS_STREAM: dict[str, Any] = {
    "name": "ORDERS",
    "description": "Orders, and the schedules that remind of them",
    "subjects": ["orders.>"],
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "num_replicas": 1,
    "allow_msg_ttl": True,
    "allow_msg_schedules": True,
}
"""The stream of the commands to paste."""


@click.command("dev")
@click.option("--demo", is_flag=True, help="Create a stream and publish one schedule of each kind.")
@click.option("--for", "length", metavar="DURATION", help="End after this time, such as 20s.")
@click.option(
    "--version",
    metavar="VERSION",
    help="Start this nats-server: 2.15 (its newest known release), 2.15.1, or its binary; a version is fetched.",
)
@click.option("--data", metavar="FOLDER", help="Keep all data here; else in a temporary folder, removed at the end.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Port of the server; else any free one.")
@sidecar_options
def command(
    resolved: ResolvedSettings,
    demo: bool,
    length: str | None,
    version: str | None,
    data: str | None,
    port: int | None,
) -> None:
    """Start a NATS server and the scheduler, to try things out.

    Prints `nats` commands to paste, then one line per fire with its lateness.
    Ctrl-C ends everything.
    """
    ends_after = None if length is None else duration_of("--for", length)
    binary = _binary(version)
    # Info lines would appear between the fires, unless the user asks for a level.
    level = "warning" if resolved.sources["log_level"] == "default" else resolved.settings.log_level
    log_as_set(resolved, level)
    with _data_folder(data) as folder:
        stream_file = _written_once(folder / STREAM_FILE_NAME)
        plan = TrialPlan(folder, stream_file, keeps_data=data is not None, demo=demo, length=ends_after)
        try:
            clean = run_punctually(_run(EmbeddedServer(binary, folder, port=port or 0), resolved.settings, plan))
        except SettingsError as error:
            raise CommandError(str(error), EXIT_WRONG_USE) from None
        except (EmbeddedServerError, SchedulerError) as error:
            raise CommandError(str(error)) from None
    if not clean:
        raise CommandError("not everything that was in flight could be finished; the next start repeats it")


async def _run(server: EmbeddedServer, settings: SidecarSettings, plan: TrialPlan) -> bool:
    """Start the server, run the trial, and always stop the server; return whether the sidecar finished its work."""
    stopping = asyncio.Event()
    stop_on_signals(stopping.set)
    try:
        await server.start()
        connection = ConnectionSettings(servers=(server.url,))
        ours = settings.model_copy(update={"connection": connection, "data": plan.folder / SIDECAR_FOLDER_NAME})
        return await Trial(server, ours, plan, Screen(gone=stopping.set), stopping).run()
    finally:
        await server.stop()


def _binary(version: str | None) -> Path:
    """Find the server binary; end the command with exit code 2 if there is none."""
    try:
        return find_server(version)
    except EmbeddedServerError as error:
        raise CommandError(str(error), EXIT_WRONG_USE) from None


@contextmanager
def _data_folder(data: str | None) -> Iterator[Path]:
    """Provide the folder for the server's data: the named one, locked, or a temporary one that is removed again."""
    if data is None:
        # Files that cannot be removed are left behind: that is no reason to end with an error.
        with tempfile.TemporaryDirectory(prefix="nats-scheduler-dev-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    folder = Path(data).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "dev.lock").open("w")
    except OSError as error:
        raise CommandError(f"--data of {data!r}: expected a folder to write to ({error})", EXIT_WRONG_USE) from None
    with lock:  # two servers on one store would corrupt it
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandError(f"--data of {data!r} is in use by another process", EXIT_WRONG_USE) from None
        yield folder


def _written_once(path: Path) -> Path:
    """Write the stream file unless there is one: the user may have changed it."""
    if not path.exists():
        path.write_text(json.dumps(ORDERS_STREAM, indent=2) + "\n", encoding="utf-8")
    return path
