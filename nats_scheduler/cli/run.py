"""`nats-scheduler run`: serve message schedules beside a NATS server until told to stop."""

from __future__ import annotations

import asyncio
import signal

import click

from nats_scheduler.cli.options import settings_options
from nats_scheduler.cli.output import CommandError
from nats_scheduler.jetstream.errors import ConnectError
from nats_scheduler.observe.log import configure_logging, logger
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.garbage import collect_only_what_is_new
from nats_scheduler.runtime.punctual import run_punctually
from nats_scheduler.runtime.sidecar import Sidecar
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from nats_scheduler.settings.stream_files import StreamFileError
from nats_scheduler.version import VERSION


@click.command("run")
@settings_options
def command(resolved: ResolvedSettings) -> None:
    """Serve message schedules beside a NATS server.

    Ends with SIGTERM or Ctrl-C, after what is in flight is finished.
    """
    settings = resolved.settings
    configure_logging(settings.log_format, settings.log_level)
    collect_only_what_is_new()
    for warning in resolved.warnings:
        logger().warning("settings_warning", reason=warning)
    try:
        clean = run_punctually(_run(settings))
    except (ConnectError, StreamFileError) as error:
        raise CommandError(str(error), 2) from None
    if not clean:
        raise CommandError("not everything that was in flight could be finished; the next start repeats it")


async def _run(settings: SidecarSettings) -> bool:
    metrics = Metrics()
    if settings.metrics_port is not None:
        metrics.serve(settings.metrics_port)
    sidecar = Sidecar(settings, SystemClock(), Reporter(metrics))
    stop_on_signals(sidecar)
    log = logger()
    log.info("starting", version=VERSION, servers=",".join(settings.connection.masked_servers))
    clean = await sidecar.run()
    log.info("stopped", clean=clean)
    return clean


def stop_on_signals(sidecar: Sidecar) -> None:
    """Have SIGTERM and SIGINT end the sidecar in an orderly way."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, sidecar.stop)
