"""What the engine of a stream is built for. If any of it changes, the stream needs a new engine.

The rule: what an engine is given once, and cannot be notified of, is compared here and nowhere else.
"""

from dataclasses import dataclass, replace

from nats_scheduler.engine.assembly import ServerLimits
from nats_scheduler.engine.contents import ContentMemory
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.consumers import reads_all
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.runtime.continuity import is_replicated
from nats_scheduler.runtime.modes import Mode, dialects_of
from nats_scheduler.settings.sidecar import SidecarSettings


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
    """Whether every message can be read, so that fires are read back."""
    is_silent: bool
    """Whether the stream acknowledges nothing, and what it stored may be gone before it is read."""
    is_replicated: bool
    removes_expired: bool
    """Whether we have to remove what has expired."""

    @property
    def has_buried(self) -> bool:
        """Whether expired messages may be stored that following does not deliver."""
        return self.removes_expired and not self.reads_all

    def new_engine(self, settings: SidecarSettings, memory: ContentMemory | None = None) -> StreamEngine:
        """Return an engine that has read nothing; `memory` is that of the process, None if there is only one engine."""
        guard = self.server.has_guard
        blocks = guard and not self.server.schedules_natively and self.is_replicated
        known = guard, self.server.max_payload, settings.look_ahead, blocks
        limits = ServerLimits(*known, replicated=self.is_replicated, silent=self.is_silent)
        return StreamEngine(
            replace(self.rules, restrictions=settings.restrictions_on(self.name)),
            dialects_of(self.mode),
            limits,
            removes_expired=self.removes_expired,
            reads_all=self.reads_all,
            memory=memory or ContentMemory(settings.content_memory),
        )


def basis_of(state: StreamState, mode: Mode, server: Capabilities) -> EngineBasis:
    """Return what an engine for this stream is built for."""
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
