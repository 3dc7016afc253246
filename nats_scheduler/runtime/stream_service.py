"""Serve one stream for as long as it is the same stream: its engine, its contacts, its checkpoint.

The engine outlives connections, so that a reconnect costs a look at what is new and not a read of everything.
It does not outlive the stream: one that was deleted and made again, rolled back, or given other rules gets a new
engine.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nats_scheduler.engine.assembly import ServerLimits
from nats_scheduler.engine.events import Event
from nats_scheduler.engine.inputs import CheckpointLoaded, RemovalRequested
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.contact import StreamContact, reads_all
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.modes import Mode, dialects_of
from nats_scheduler.schedule.instants import DAY, SECOND
from nats_scheduler.schedule.invalid import LONGEST_SHOWN
from nats_scheduler.settings.sidecar import SidecarSettings

CHECKPOINT_SECONDS = 1.0
"""How often progress is written down, where there is any. Well inside the shortest useful duplicate window."""


NOT_CREDIBLE = DAY
"""No other host's clock is so far (ns) ahead of ours that it settled what is due then."""


SILENCE = SECOND
"""Longest wait (ns) for an acknowledgement that does not come, where a fire is seen in the stream or not at all."""


class EngineBrokenError(JetStreamError):
    """The engine of a stream raised an error of our own making; the stream has to be read anew."""


class OutdatedContactError(JetStreamError):
    """What came through a contact may be old: another contact has to read what happened meanwhile."""


class StreamService:
    """One served stream."""

    def __init__(
        self,
        state: StreamState,
        mode: Mode,
        server: Capabilities,
        settings: SidecarSettings,
        clock: Clock,
        report: Callable[[str, Event], None],
    ) -> None:
        self.state = state
        self.mode = mode
        self._server = server
        self._settings = settings
        self._clock = clock
        self._written: tuple[int, int] | None = None
        silent = _is_silent(state)
        limits = ServerLimits(server.has_guard, server.max_payload, settings.look_ahead, silent)
        self._ack_timeout = min(settings.ack_timeout, SILENCE) if silent else settings.ack_timeout
        rules = replace(state.rules, restrictions=settings.restrictions_on(state.name))
        self._removes_expired = removes_expired(state, server)
        engine = StreamEngine(
            rules,
            dialects_of(mode),
            limits,
            removes_expired=self._removes_expired,
            reads_all=reads_all(state.config),
        )
        self.driver = StreamDriver(engine, clock, lambda event: report(state.name, event))

    def serves_the_same(self, state: StreamState, mode: Mode, server: Capabilities) -> bool:
        """Tell whether the engine may go on: nothing that it relies on has changed."""
        return (
            mode is self.mode
            and server == self._server
            and state.created == self.state.created
            # In contact, what was read last may be newer than `state`; else a stream that is behind was rolled back.
            and (self.driver.has_contact or state.last_sequence >= self.driver.engine.last_read)
            and state.config.get("retention") == self.state.config.get("retention")
            and _is_silent(state) == _is_silent(self.state)
            and state.rules == self.state.rules
        )

    async def serve(self, connection: Connection, api: JetStreamApi, registry: Registry) -> None:
        """Serve the stream through this connection, until cancelled or the connection is lost.

        Raises `EngineBrokenError` when this service cannot go on, another `JetStreamError` when another contact may
        help.
        """
        driver = self.driver
        if driver.engine.last_read == 0:
            checkpoint = await read_checkpoint(registry, self.state, self.mode, self._clock.now())
            if checkpoint is not None:
                driver.tell(checkpoint)
        try:
            async with asyncio.TaskGroup() as tasks:
                contact = self._contact(connection, api, tasks)
                driver.attach(contact)
                keeper = tasks.create_task(self._keep_checkpoint(registry))
                follower = tasks.create_task(_followed(contact, driver.engine.last_read))
                ends = (follower, driver.failed, driver.outdated)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                keeper.cancel()
                follower.cancel()
        finally:
            driver.detach("contact with the stream ended")
        if driver.failed.done():
            raise EngineBrokenError(self.state.name) from driver.failed.result()
        if driver.outdated.done():
            raise OutdatedContactError(driver.outdated.result())
        failure = follower.result()
        if failure is not None:
            raise failure

    def doubt(self, subject_filter: str | None, sequence: int | None) -> None:
        """Look again at what somebody asked to remove, before it fires."""
        self.driver.tell(RemovalRequested(subject_filter, sequence))

    async def drain(self, registry: Registry, within_seconds: float) -> bool:
        """Finish what is in flight and write down how far we are; False when it did not finish within the time."""
        finished = await self.driver.drain(within_seconds)
        await self._write_checkpoint(registry)
        return finished

    def _contact(self, connection: Connection, api: JetStreamApi, tasks: asyncio.TaskGroup) -> StreamContact:
        buried = self._removes_expired and not reads_all(self.state.config)
        return StreamContact(
            connection,
            api,
            self.state.config,
            self.driver.tell,
            tasks,
            holds=lambda subject: self.driver.engine.held.on(subject) is not None,
            window=self._settings.window,
            ack_timeout=self._ack_timeout / SECOND,
            history_after=self.driver.engine.history_through if buried else None,
        )

    # -- checkpoint ----------------------------------------------------------------------------------------------

    async def _keep_checkpoint(self, registry: Registry) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            await self._write_checkpoint(registry)

    async def _write_checkpoint(self, registry: Registry) -> None:
        engine = self.driver.engine
        progress = (engine.last_read, engine.fires_stored)
        if progress == self._written or not engine.is_live:
            return
        settled = engine.checkpoint(self._clock.now())
        value = {
            "created": self.state.created,
            "through": settled.through,
            "sequence": settled.sequence,
            "unsettled": sorted(settled.unsettled),
        }
        try:
            await registry.put(_checkpoint_key(self.state, self.mode), value)
            self._written = progress
        except JetStreamError:
            return  # the next one says the same and more


def _is_silent(state: StreamState) -> bool:
    """Tell whether a stream acknowledges nothing, and what it stored may be gone before it is read."""
    return state.config.get("no_ack") is True and not reads_all(state.config)


def removes_expired(state: StreamState, server: Capabilities) -> bool:
    """Tell whether it falls to us to remove what has expired: the stream asks for it, and the server does not do it."""
    return state.rules.allow_msg_ttl and not server.has_message_ttl


async def read_checkpoint(registry: Registry, state: StreamState, mode: Mode, now: int) -> CheckpointLoaded | None:
    """Return how far an earlier holder settled the fires of this very stream; None where nobody wrote it down.

    What was written while we emulated holds for every mode, since both spellings were served then.
    What is no checkpoint, or one of a far future, counts as none: to believe it would be to lose fires.
    """
    found = [await _checkpoint_in(registry, state, written_in, now) for written_in in {mode, Mode.EMULATED}]
    return max((one for one in found if one is not None), key=lambda one: one.through, default=None)


async def _checkpoint_in(registry: Registry, state: StreamState, mode: Mode, now: int) -> CheckpointLoaded | None:
    key = _checkpoint_key(state, mode)
    known = await registry.get(key)
    if known is None or known.get("created") != state.created:
        return None
    checkpoint = _checkpoint_of(known, now)
    if checkpoint is None:
        registry.broken(key, f"no checkpoint: {str(known)[:LONGEST_SHOWN]}")
        return None
    return checkpoint if checkpoint.sequence <= state.last_sequence else None


def _checkpoint_of(value: Mapping[str, Any], now: int) -> CheckpointLoaded | None:
    """Read a checkpoint, None where it is none that one of us can have written by `now`."""
    unsettled = value.get("unsettled", [])
    if not isinstance(unsettled, list):
        return None
    numbers: list[Any] = [value.get("through"), value.get("sequence"), *unsettled]
    if any(type(number) is not int for number in numbers):
        return None
    through, sequence = numbers[:2]
    if sequence < 0 or through > now + NOT_CREDIBLE:
        return None
    return CheckpointLoaded(through, sequence, frozenset(unsettled))


def _checkpoint_key(state: StreamState, mode: Mode) -> str:
    return f"checkpoint.{state.name}.{mode}"


async def _followed(contact: StreamContact, after: int) -> JetStreamError | None:
    """Follow until it ends, and return why: a failed contact is for the caller to judge."""
    try:
        await contact.follow(after)
    except JetStreamError as error:
        return error
    return None
