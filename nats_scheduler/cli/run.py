"""`nats-scheduler run`: serve message schedules beside a NATS server until a signal ends it."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from nats_scheduler.cli.options import settings_options
from nats_scheduler.cli.output import EXIT_WRONG_USE, CommandError
from nats_scheduler.cli.process import ProgressBar, log_as_set, progress_bar, stop_on_signals
from nats_scheduler.control.errors import NotConnectedError
from nats_scheduler.doctor.sidecar_examination import examine_sidecar
from nats_scheduler.jetstream.credentials import check_credentials
from nats_scheduler.observe.log import logger
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.monitoring_pages import MonitoringPages, listening
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import Clock, SystemClock
from nats_scheduler.runtime.garbage_collector import collect_only_what_is_new
from nats_scheduler.runtime.punctual import run_punctually
from nats_scheduler.runtime.sidecar import Sidecar
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.problems import SettingsError
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from nats_scheduler.version import VERSION

START_CHECK_INTERVAL_SECONDS = 0.2
"""The interval at which the progress of a sidecar's start is checked."""


@click.command("run")
@settings_options
def command(resolved: ResolvedSettings) -> None:
    """Serve message schedules beside a NATS server.

    SIGTERM, Ctrl-C or a closed terminal ends it, after what is in flight is finished.
    Exit codes: 0 ended so, 1 something in flight was not finished, 2 wrong use, settings or files.
    """
    serve(resolved, SystemClock())


def serve(resolved: ResolvedSettings, clock: Clock) -> None:
    """Serve by a clock of the machine until a signal ends it; raises `CommandError` unless all was finished."""
    settings = resolved.settings
    log_as_set(resolved)
    collect_only_what_is_new()
    try:
        check_credentials(settings.connection)
        clean = run_punctually(_run(settings, clock))
    except (NotConnectedError, SettingsError) as error:
        raise CommandError(str(error), EXIT_WRONG_USE) from None
    if not clean:
        raise CommandError("not everything that was in flight could be finished; the next start repeats it")


async def _run(settings: SidecarSettings, clock: Clock) -> bool:
    metrics = Metrics()
    sidecar = Sidecar(settings, clock, Reporter(metrics), examine_sidecar)
    stop_on_signals(sidecar.stop)
    log = logger()
    log.info("starting", version=VERSION, servers=",".join(settings.connection.masked_servers))
    with pages_of(sidecar, metrics, settings), progress_bar() as bar:
        showing = asyncio.create_task(show_start(bar, sidecar.served))
        try:
            clean = await sidecar.run()
        finally:
            showing.cancel()
    log.info("stopped", clean=clean)
    return clean


@contextmanager
def pages_of(sidecar: Sidecar, metrics: Metrics, settings: SidecarSettings) -> Iterator[None]:
    """Serve the pages of a sidecar while the block runs, if the settings name a port; raises `SettingsError`."""
    if settings.metrics_port is None:
        yield
        return
    pages = MonitoringPages(metrics.registry, asyncio.get_running_loop(), sidecar.not_ready, sidecar.notes)
    with listening(settings.metrics_address, settings.metrics_port, pages) as url:
        logger().info("metrics_served", url=f"{url}/metrics")
        yield


async def show_start(bar: ProgressBar, services: Mapping[str, StreamService]) -> None:
    """Show how far the streams of a sidecar are read, until all of them are."""
    seen = False
    while bar.is_on_terminal:
        waiting = [one for one in list(services.values()) if not one.engine.is_live]
        if seen and not waiting:
            bar.clear()
            return
        seen = seen or bool(services)
        if waiting:
            firsts = {one.state.name: max(one.state.first_sequence, 1) for one in waiting}
            done = sum(max(one.engine.last_read - firsts[one.state.name] + 1, 0) for one in waiting)
            total = sum(one.state.last_sequence - firsts[one.state.name] + 1 for one in waiting)
            name = waiting[0].state.name if len(waiting) == 1 else f"{len(waiting)} streams"
            bar.show(name, done, total)
        await asyncio.sleep(START_CHECK_INTERVAL_SECONDS)
