"""`nats-scheduler dev`: a real nats-server with JetStream and the sidecar, to try things out.

Rule: everything that this command started ends with it, in this order: the sidecar (drained), the demo, the server, the
temporary folder.
The sidecar is the same as in `nats-scheduler run`, with the same settings. Only the connection is fixed, so those of
the environment and the contexts are not read.
Cost: a child process, and a second reading of the served streams for the lines that are printed.
Limit: loopback, no passwords: it is for a laptop.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.dev_screen import Screen
from nats_scheduler.cli.options import sidecar_options
from nats_scheduler.cli.output import EXIT_WRONG_USE, CommandError
from nats_scheduler.cli.process import stop_on_signals
from nats_scheduler.cli.trial import Trial, TrialPlan
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.observe.address import ListenError
from nats_scheduler.observe.log import configure_logging, logger
from nats_scheduler.runtime.embedded import EmbeddedServer, EmbeddedServerError, find_server
from nats_scheduler.runtime.punctual import run_punctually
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from nats_scheduler.settings.stream_files import StreamFileError

STREAM_FILE_NAME = "orders.json"
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


def _duration(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """Parse an option as a Go duration above zero; return nanoseconds."""
    parsed = None if text is None else parse_duration(text)
    if text is not None and (not isinstance(parsed, int) or parsed <= 0):
        raise click.BadParameter(f"{text!r}: expected a duration above zero, such as '20s'")
    return parsed if isinstance(parsed, int) else None


@click.command("dev")
@click.option("--demo", is_flag=True, help="Create a stream and publish one schedule of each kind.")
@click.option("--for", "length", callback=_duration, metavar="DURATION", help="End after this time, such as 20s.")
@click.option("--server-version", metavar="VERSION", help="Fetch and start this nats-server, such as 2.10.26.")
@click.option("--server-path", metavar="FILE", help="Start this nats-server binary.")
@click.option(
    "--data", metavar="FOLDER", help="Keep the server's data here; else a temporary folder, removed at the end."
)
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Port of the server; else any free one.")
@sidecar_options
def command(
    resolved: ResolvedSettings,
    demo: bool,
    length: int | None,
    server_version: str | None,
    server_path: str | None,
    data: str | None,
    port: int | None,
) -> None:
    """Start a NATS server and the scheduler, to try things out.

    Prints `nats` commands to paste, then one line per fire with its lateness.
    Ctrl-C ends everything.
    """
    if server_version and server_path:
        raise click.UsageError("give either --server-version or --server-path")
    binary = _binary(server_version, server_path)
    # Info lines would appear between the fires, unless the user asks for a level.
    level = "warning" if resolved.sources["log_level"] == "default" else resolved.settings.log_level
    configure_logging(resolved.settings.log_format, level)
    for warning in resolved.warnings:
        logger().warning("settings_warning", reason=warning)
    with _data_folder(data) as folder:
        stream_file = _written_once(folder / STREAM_FILE_NAME)
        plan = TrialPlan(folder, stream_file, keeps_data=data is not None, demo=demo, length=length)
        try:
            clean = run_punctually(_run(EmbeddedServer(binary, folder, port=port or 0), resolved.settings, plan))
        except (StreamFileError, ListenError) as error:
            raise CommandError(str(error), EXIT_WRONG_USE) from None
        except (EmbeddedServerError, JetStreamError) as error:
            raise CommandError(str(error)) from None
    if not clean:
        raise CommandError("not everything that was in flight could be finished; the next start repeats it")


async def _run(server: EmbeddedServer, settings: SidecarSettings, plan: TrialPlan) -> bool:
    """Start the server, run the trial, and always stop the server; return whether the sidecar finished its work."""
    stopping = asyncio.Event()
    stop_on_signals(stopping.set)
    try:
        await server.start()
        ours = settings.model_copy(update={"connection": ConnectionSettings(servers=(server.url,))})
        return await Trial(server, ours, plan, Screen(gone=stopping.set), stopping).run()
    finally:
        await server.stop()


def _binary(version: str | None, path: str | None) -> Path:
    """Find the server binary; end the command with exit code 2 if there is none."""
    wanted = version if path is None else str(Path(path).expanduser().absolute())
    try:
        return find_server(wanted)
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
