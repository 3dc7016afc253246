"""Notice that a stream went back to an earlier state while it was served: what was read of it is not stored any more.

A stream in memory whose only node restarts begins again under the same name, and so does one that is restored from an
older copy; a replicated one may lose what a killed server had not written.
Then the state of the engine is wrong: it holds schedules that are gone, and takes new messages for ones that it read.

The rule: a lower last sequence proves it. So does another message under the sequence of the last one read, or of the
last one before contact was lost, since new messages were read from the state that the stream is in now.
In a cluster the leader may be behind what was delivered. There the last sequence has to stay lower for
`LAG_LIMIT_SECONDS`.

Cost: two or three requests each time that a contact has caught up again.
Limit: if what was lost was written again, in the same nanosecond or below the last message read, this is not seen; nor
if that message was removed since.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from nats_scheduler.engine.holding.contents import ContentMemory
from nats_scheduler.engine.holding.table import Table
from nats_scheduler.engine.inputs import MIN_READ_GROUP_NS, ServerLimits
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.api import reads_all
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import DEFAULT_MAX_PAYLOAD, Capabilities
from nats_scheduler.message.foreign_json import integer
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.modes import Mode, dialects_of
from nats_scheduler.runtime.port import StreamContents, StreamInformation
from nats_scheduler.settings.sidecar import SidecarSettings
from nats_scheduler.settings.stream_values import DEFAULT_BUDGET_NS
from nats_scheduler.version import VERSION

LAG_LIMIT_SECONDS = 1.0
"""If a leader is behind for longer than this, it does not lag: its stream went back. *Live* leaves 3 s."""

LAG_CHECK_INTERVAL_SECONDS = 0.1
"""The interval at which a leader that may lag is checked."""


class StreamWentBackError(JetStreamError):
    """The stream is in an earlier state than the one that was read; it has to be read from the beginning."""


def is_replicated(state: StreamState) -> bool:
    """Return whether the leader of a stream may be behind another node with a copy."""
    return integer(state.config.get("num_replicas"), 1) > 1


async def reaches(api: StreamInformation, stream: str, sequence: int) -> StreamState | None:
    """Return the state of a stream, after a wait while its leader may lag behind `sequence`; None if it is gone."""
    checks = int(LAG_LIMIT_SECONDS / LAG_CHECK_INTERVAL_SECONDS)
    while (info := await api.stream(stream)) is not None:
        state = StreamState.from_info(info)
        if state.last_sequence >= sequence or not is_replicated(state) or checks == 0:
            return state
        checks -= 1
        await asyncio.sleep(LAG_CHECK_INTERVAL_SECONDS)
    return None


async def step_back(
    api: StreamContents, stream: str, engine: StreamEngine, witness: StoredMessage | None = None
) -> str:
    """Return how it shows that a stream is in an earlier state than the one that an engine read; "" if it is not.

    `witness` is the last message that was read before contact was lost.
    Raises `JetStreamError` if it cannot be found out. A stream that does not exist counts as unchanged here.
    """
    read, last = engine.last_read, engine.last_message
    state = await reaches(api, stream, read)
    if state is None:
        return ""
    if state.last_sequence < read:
        return f"its last sequence is {state.last_sequence}, and {read} was read before"
    for known in {last, witness} - {None}:
        assert known is not None, "None was left out"
        there = await api.message(stream, seq=known.sequence)
        if there is not None and there.stored_at != known.stored_at:
            return f"another message than the one that was read has sequence {known.sequence}"
    return ""


async def watch_for_a_step_back(api: StreamContents, stream: str, driver: StreamDriver) -> str:
    """Return how it shows that a stream went back; checked each time that it may be in another state."""
    caught_up = driver.caught_up
    if not driver.engine.last_read:
        await caught_up.wait()
        if driver.witness is None:  # else the engine continued from its rows
            caught_up.clear()
    while True:
        await caught_up.wait()
        caught_up.clear()
        try:
            witness = driver.witness
            if reason := await step_back(api, stream, driver.engine, witness):
                return reason
            if driver.witness is witness:
                driver.witness = None
        except JetStreamError:
            await asyncio.sleep(LAG_CHECK_INTERVAL_SECONDS)
            caught_up.set()


# The conditions that the engine of a stream is built for. If any of them changes, the stream needs a new engine.
#
# The rule: what an engine is given once, and cannot be notified of, is compared here and nowhere else.


DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class EngineBasis:
    """One stream, as far as its engine depends on it."""

    name: str
    created: str
    mode: Mode
    server: Capabilities
    rules: StreamRules
    retention: object
    reads_all: bool
    """True if every message can be read, so that fires are read back."""
    is_silent: bool
    """True if the stream acknowledges nothing, and what it stored may be gone before it is read."""
    is_replicated: bool
    removes_expired: bool
    """True if we have to remove what has expired."""

    @property
    def has_buried(self) -> bool:
        """True if expired messages may be stored that following does not deliver."""
        return self.removes_expired and not self.reads_all

    def budget(self, settings: SidecarSettings) -> int:
        """Return how late (ns) a fire may be sent; without a guard no later than by default after its re-check."""
        budget = settings.budget_on(self.name)
        return budget if self.server.has_guard else min(budget, DEFAULT_BUDGET_NS)

    def digest(self, settings: SidecarSettings) -> str:
        """Return the digest of all that the engine depends on, but for the data of time zones.

        Another version of the program may find other fire times. What a start continues from has the digests of the
        zones that its rows name.
        """
        limits = self.rules.max_age, self.rules.evicts, self.rules.duplicate_window
        told = VERSION, self, limits, settings.look_ahead, settings.restrictions_on(self.name)
        return hashlib.blake2b(repr(told).encode(), digest_size=DIGEST_BYTES).hexdigest()

    def new_engine(
        self,
        settings: SidecarSettings,
        memory: ContentMemory | None = None,
        notify_named: Callable[[], object] = lambda: None,
        table: Table | None = None,
    ) -> StreamEngine:
        """Return an engine that has read nothing; `memory` is that of the process, None if there is only one engine.

        `notify_named` is called when a schedule names another calendar. Its schedules are rows of `table`, which is in
        memory if none is given.
        """
        guard = self.server.has_guard
        blocks = guard and not self.server.schedules_natively and self.is_replicated
        read_group = max(MIN_READ_GROUP_NS, 2 * self.budget(settings))
        limits = ServerLimits(
            guard,
            look_ahead=settings.look_ahead,
            read_group=read_group,
            blocks_refused=blocks,
            replicated=self.is_replicated,
            silent=self.is_silent,
        )
        return StreamEngine(
            replace(self.rules, restrictions=settings.restrictions_on(self.name)),
            dialects_of(self.mode),
            limits,
            removes_expired=self.removes_expired,
            reads_all=self.reads_all,
            memory=memory or ContentMemory(settings.content_memory),
            notify_named=notify_named,
            is_native=self.mode is Mode.NATIVE,
            table=table,
        )


def basis_of(state: StreamState, mode: Mode, server: Capabilities) -> EngineBasis:
    """Return what an engine for this stream is built for; what the server takes of a message is none of it."""
    server = replace(server, max_payload=DEFAULT_MAX_PAYLOAD)
    all_read = reads_all(state.config)
    return EngineBasis(
        state.name,
        state.created,
        mode,
        server,
        state.rules,
        state.config.get("retention"),
        reads_all=all_read,
        is_silent=state.config.get("no_ack") is True and not all_read,
        is_replicated=is_replicated(state),
        removes_expired=removes_expired(state, server),
    )


def removes_expired(state: StreamState, server: Capabilities) -> bool:
    """Return whether we have to remove what has expired: the stream asks for it, and the server does not do it."""
    return state.rules.allow_msg_ttl and not server.has_message_ttl
