"""The conditions that the engine of a stream is built for: if any of them changes, the stream needs a new engine.

The rule: what an engine is given once, and cannot be notified of, is compared here and nowhere else.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from nats_scheduler.engine.holding.contents import ContentMemory
from nats_scheduler.engine.holding.table import Table
from nats_scheduler.engine.inputs import MIN_READ_GROUP_NS, ServerLimits
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.api import reads_all
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import DEFAULT_MAX_PAYLOAD, Capabilities
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.runtime.continuity import is_replicated
from nats_scheduler.runtime.modes import Mode, dialects_of
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from nats_scheduler.settings.stream_values import DEFAULT_BUDGET_NS
from nats_scheduler.version import VERSION

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
            catch_up_rate=settings.catch_up_rate_on(self.name),
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
