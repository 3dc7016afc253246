"""What commands share that run until they are ended: the signals that end them, and the pages that sidecars serve.

Rule: each signal with which an operator, a terminal or a service manager ends a program makes the sidecar drain.
Cost: none. Limit: SIGKILL ends everything at once; the next start repeats what was in flight.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from nats_scheduler.observe.log import logger
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.pages import Pages, listening
from nats_scheduler.runtime.sidecar import Sidecar
from nats_scheduler.settings.sidecar import SidecarSettings


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM, SIGINT and a closed terminal (SIGHUP); under `nohup` a closed terminal is ignored."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def run_until(ended: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do work until it is done, or until `ended` is set, which cancels it; raises its error."""
    working, ending = asyncio.create_task(work), asyncio.create_task(ended.wait())
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, ending):
            task.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


@contextmanager
def pages_of(sidecar: Sidecar, metrics: Metrics, settings: SidecarSettings) -> Iterator[None]:
    """Serve the pages of a sidecar while the block runs, if the settings name a port; raises `ListenError`."""
    if settings.metrics_port is None:
        yield
        return
    pages = Pages(metrics.registry, asyncio.get_running_loop(), sidecar.not_ready, sidecar.notes)
    with listening(settings.metrics_address, settings.metrics_port, pages) as url:
        logger().info("metrics_served", url=f"{url}/metrics")
        yield
