"""The streams of the settings' folder: each file is applied once in the life of the process, however long that takes.

The rules: no file keeps a stream from being served, so all of this runs beside the serving; and no file waits for
another.
A failure is reported once for each reason and tried again: soon if it may heal by itself, after longer and longer waits
if a person has to act, and at once on the next connection.
A file is read at start: a corrected file counts from the next start on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from nats_scheduler.control.errors import (
    ConnectionLostError,
    ForbiddenError,
    NotPossibleError,
    RefusedError,
    RejectedError,
    SchedulerError,
)
from nats_scheduler.jetstream.api import Config
from nats_scheduler.jetstream.streams import FlaggedStreams
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.observe.reporter import Reporter

RETRY_WAITS_SECONDS = (0.25, 15.0)
"""The first and the longest wait before a retry of what may heal by itself; each wait is twice the one before."""

REFUSED_RETRY_WAITS_SECONDS = (15.0, 240.0)
"""The same for a refusal by the server, by its rules or by our permissions."""

FIRST_SERVER_FAULT_STATUS = 500
"""From this status on the server cannot do it at the moment, except with `INVALID_CONFIGURATION`."""

INVALID_CONFIGURATION = 10052
"""The status is 500, but waiting does not help."""

NO_PEERS = 10005
"""The status is 400, but it ends when enough nodes of the cluster are back."""


class FileStreams:
    """The files that are still to be applied."""

    def __init__(self, configs: Sequence[Config], reporter: Reporter) -> None:
        self._waiting = list(configs)
        self._reporter = reporter
        self._reported: dict[int, str] = {}

    async def apply(self, flagged: FlaggedStreams, applied: Callable[[str], Awaitable[None]]) -> None:
        """Apply every file that is not applied yet; `applied` is awaited with the name of each stream afterwards.

        Returns when all are applied, and may be cancelled at any time: the next connection continues.
        """
        async with TaskGroup() as tasks:
            for config in list(self._waiting):
                tasks.create_task(self._apply_one(config, flagged, applied))

    async def _apply_one(
        self, config: Config, flagged: FlaggedStreams, applied: Callable[[str], Awaitable[None]]
    ) -> None:
        """Report an error of the sidecar itself, so that it ends the work on this file only."""
        try:
            await self._keep_applying(config, flagged, applied)
        except Exception as error:
            self._reporter.defect("task_failed", error, stream=config["name"])

    async def _keep_applying(
        self, config: Config, flagged: FlaggedStreams, applied: Callable[[str], Awaitable[None]]
    ) -> None:
        wait = 0.0
        while True:
            try:
                state, created = await flagged.add(config)
            except ConnectionLostError:
                return
            except SchedulerError as error:
                self._report(config, error)
                shortest, longest = REFUSED_RETRY_WAITS_SECONDS if _is_refusal(error) else RETRY_WAITS_SECONDS
                wait = min(max(2 * wait, shortest), longest)
                await asyncio.sleep(wait)
                continue
            self._waiting = [one for one in self._waiting if one is not config]
            self._reporter.stream_configured(state.name, created=created)
            await applied(state.name)
            return

    def _report(self, config: Config, error: SchedulerError) -> None:
        if self._reported.get(id(config)) != str(error):
            self._reported[id(config)] = str(error)
            self._reporter.problem("stream_configure_failed", stream=config["name"], reason=str(error))


def _is_refusal(error: SchedulerError) -> bool:
    """Return whether a person has to act before this can succeed."""
    if isinstance(error, RefusedError):
        return (
            error.status < FIRST_SERVER_FAULT_STATUS and error.code != NO_PEERS
        ) or error.code == INVALID_CONFIGURATION
    return isinstance(error, RejectedError | NotPossibleError | ForbiddenError)
