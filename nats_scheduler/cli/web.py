"""`nats-scheduler web`: the status page, in a process of its own that asks the running sidecars.

Rule: it only sends requests, so it can neither delay nor break a fire; it runs beside any number of sidecars, on any
machine. Where none runs, it reads what a server of 2.12 or later fires by itself.
Cost: the extra `web`, some 60 MB of memory. Limit: one account, that of its user.
"""

import asyncio
from functools import partial

import click

from nats_scheduler.cli.options import web_options
from nats_scheduler.cli.output import EXIT_WRONG_USE, CommandError
from nats_scheduler.cli.process import log_as_set, stop_on_signals
from nats_scheduler.control.errors import NotConnectedError
from nats_scheduler.extras import installation, missing
from nats_scheduler.jetstream.credentials import check_credentials
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings


@click.command("web")
@web_options
def command(resolved: ResolvedSettings) -> None:
    """Serve a status page for browsers.

    It asks the running sidecars, and is no part of them: http://127.0.0.1:8225 unless other settings are given.
    SIGTERM, Ctrl-C or a closed terminal ends it.
    Exit codes: 0 ended so, 2 wrong use or settings, or the extra `web` is not installed.
    """
    if lacking := missing("web"):
        raise CommandError(f"the status page needs {', '.join(lacking)}: {installation('web')}", EXIT_WRONG_USE)
    log_as_set(resolved)
    asyncio.run(_run(resolved.settings))


async def _run(settings: SidecarSettings) -> None:
    from nats_scheduler.runtime.asked import ServerAlone
    from nats_scheduler.settings.problems import SettingsError
    from nats_scheduler.web.app import run

    stop = asyncio.Event()
    stop_on_signals(stop.set)
    try:
        check_credentials(settings.connection)
        await run(settings, SystemClock().now, stop, partial(ServerAlone, settings=settings))
    except (NotConnectedError, SettingsError) as error:
        raise CommandError(str(error), EXIT_WRONG_USE) from None
