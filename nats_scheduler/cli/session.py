"""One command's connection to a server: what the server can do, the streams that are served, and the running sidecars.

Rule: nothing is written. The registry is read if it exists; a command that writes to it opens it first. Every failure
of the server or the network ends the command with 1 and one sentence. A command reports about schedules what the
running sidecars would report, so their settings are used unless the operator gives others; if there is no sidecar, or
the sidecars disagree, the command warns.
Cost: the client and pydantic are imported, some 200 ms; one connection, and some requests for each instance.
Limit: one pass over the servers; a command does not wait for a server to come back. A sidecar of a version that does
not publish its settings is taken to have those of this command.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from nats_scheduler.cli.output import CommandError, print_warning
from nats_scheduler.cli.without_sidecar import Source, StoredSource
from nats_scheduler.control.errors import NotConnectedError, SchedulerError
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.jetstream.dial import dial_for_a_command
from nats_scheduler.jetstream.streams import StreamState, absence_of
from nats_scheduler.jetstream.value_formats import known_entries
from nats_scheduler.message.capabilities import OLDEST, capabilities
from nats_scheduler.message.findings import Finding
from nats_scheduler.message.stream_findings import no_sidecar
from nats_scheduler.observe.texts import printable
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.fleet import is_instance, read_fleet
from nats_scheduler.runtime.modes import BY_SIDECAR, EXPLANATIONS, Mode, ServedStream
from nats_scheduler.runtime.schedule_store import connection_store
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.runtime.shared import SETTINGS, SHARED_SETTINGS, TOO_LARGE
from nats_scheduler.runtime.unserved import command_for
from nats_scheduler.service.client import ServiceClient
from nats_scheduler.service.schemas import OwnershipDocument
from nats_scheduler.service.sidecar_port import Fleet, Instance
from nats_scheduler.service.stream_endpoints import instance_documents
from nats_scheduler.service.stream_owners import ownership_of
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings

T = TypeVar("T")

__all__ = ["ServedStream", "Session", "in_session", "open_session"]

REFUSED = "Connect call failed"
"""What the error of a connection says that a machine refused: nothing listens there."""

NOTHING_LISTENS = (
    "\nNothing listens there: name your servers with --server or NATS_URL, or start one to try things out with "
    "`nats-scheduler dev`"
)


@dataclass(frozen=True, slots=True)
class Session(Access):
    """A connection, what is known of its server, and who answers for the sidecars."""

    service: ServiceClient
    """Asks the running sidecars."""

    @property
    def store(self) -> ScheduleStore:
        """The schedules of the account, to read and to change."""
        return connection_store(self, ServerClock(SystemClock()))

    async def known(self, question: Callable[[Source], Awaitable[T]], *, may_ask: bool = True) -> T:
        """Return what a running sidecar answers to a question; if it has no answer, or may not be asked, read that."""
        if may_ask:
            with suppress(SchedulerError, ValueError, LookupError):
                return await question(self.service)
        return await question(StoredSource(self))

    async def streams(self, only: str | None) -> list[ServedStream]:
        """Return every stream of the account that is served, by name, or only one, as `served_stream` does."""
        return await self.served_streams() if only is None else [await self.served_stream(only)]

    async def served_stream(self, name: str) -> ServedStream:
        """Return one stream; end the command with 1 if it does not exist or is not served."""
        info = await self.api.stream(name)
        if info is None:
            raise CommandError(await absence_of(self.api, name))
        state, mode = await self.with_mode(StreamState.from_info(info))
        if mode is None:
            raise CommandError(f"stream {name} does not carry schedules: {command_for(state)}")
        return ServedStream(state, mode)


def in_session(resolved: ResolvedSettings, work: Callable[[Session], Awaitable[T]]) -> T:
    """Connect, run a command's work and return its result; end the command with 1 if that fails."""
    for warning in resolved.warnings:
        print_warning(warning)
    # Not the task's result: asyncio.run builds the repr of a finished task twice, with all 100,000 schedules of a list.
    done: list[T] = []

    async def connect_and_work() -> None:
        async with open_session(resolved.settings) as session:
            done.append(await work(session))

    try:
        asyncio.run(connect_and_work())
    except SchedulerError as error:
        hint = NOTHING_LISTENS if isinstance(error, NotConnectedError) and REFUSED in str(error) else ""
        raise CommandError(f"{error_text(error)}{hint}") from None
    return done[0]


def error_text(error: SchedulerError) -> str:
    """Return why something was not done, with the server's code if there is one."""
    text = printable(str(error))
    return text if not error.code or f"code {error.code}" in text else f"{text} (server code {error.code})"


@asynccontextmanager
async def open_session(settings: SidecarSettings) -> AsyncIterator[Session]:
    """Connect, and close the connection at the end; raises `SchedulerError` if JetStream is not available."""
    connection = await dial_for_a_command(settings.connection)
    try:
        access = Access.through(connection, settings)
        greeting = connection.server
        server = capabilities(await access.api.info(), greeting.version, greeting.max_payload)
        if server.is_too_old:
            raise CommandError(f"the server is version {server.version}: message schedules need {OLDEST} or later")
        api, registry = access.api, access.registry
        registry.broken = lambda _key, reason: print_warning(f"a value in the registry is ignored: {reason}")
        service = ServiceClient(connection, partial(is_instance, registry))
        yield Session(connection, settings, server, api, registry, access.calendars, service)
    finally:
        await connection.close()


# -- the running sidecars ------------------------------------------------------------------------------------------


class StreamWithMode(Protocol):
    """A stream that carries schedules, and who fires them."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def mode(self) -> Mode:
        """Which side fires."""
        ...


@dataclass(frozen=True, slots=True)
class Sidecars:
    """The sidecars that are alive, and warnings about their settings."""

    fleet: Fleet
    """All of them, those that are lost too."""
    alive: Sequence[Instance]
    warnings: Sequence[str]

    def serving(self, stream: StreamWithMode) -> int:
        """Return how many of them serve a stream."""
        key = f"{stream.mode}.{stream.name}"
        return sum(one.serves is None or key in one.serves for one in self.alive)

    def ownership(self, stream: StreamWithMode) -> OwnershipDocument | None:
        """Return which of them owns a stream, since when and why, and which stand by; None if none has read it."""
        ownerships = ownership_of(instance_documents(self.fleet))
        return next((one for one in ownerships if (one["stream"], one["mode"]) == (stream.name, stream.mode)), None)

    def why_not_fired(self, stream: StreamWithMode, portable: int = 0) -> Finding | None:
        """Return that nothing fires a stream, or only its `portable` schedules; None if there are none, or one does."""
        return self.why_not_served(stream, portable) if portable or stream.mode in BY_SIDECAR else None

    def why_not_served(self, stream: StreamWithMode, portable: int = 0) -> Finding | None:
        """Return that no sidecar fires what only a sidecar fires, such as portable headers; None if one does.

        `portable` is how many there are, as far as that is known.
        """
        found = no_sidecar(stream.name, len(self.alive), None if stream.mode in BY_SIDECAR else portable)
        return None if self.serving(stream) else found

    def stream_document(self, stream: StreamWithMode) -> dict[str, object]:
        """Return a stream, and who serves it, as a JSON object."""
        problem = self.why_not_fired(stream)
        return {
            "stream": stream.name,
            "mode": stream.mode,
            "served": EXPLANATIONS[stream.mode],
            "sidecars": self.serving(stream),
            "problem": None if problem is None else problem.what,
        }

    def document(self) -> dict[str, object]:
        """Return them as fields of a JSON document."""
        return {"sidecars": [one.name for one in self.alive], "warnings": list(self.warnings)}

    def print_warnings(self) -> None:
        """Print the warnings on standard error."""
        for warning in self.warnings:
            print_warning(warning)


async def with_sidecars(session: Session, resolved: ResolvedSettings) -> tuple[Session, Sidecars]:
    """Return the session with the settings of the running sidecars, and the sidecars."""
    fleet = await read_fleet(session.registry, session.api, SystemClock().now)
    alive = [one for one in fleet.instances if one.state(fleet.at) == "alive"]
    known: dict[str, SidecarSettings] = {}
    warnings: list[str] = []
    written = await session.registry.get(SETTINGS) or {}
    readable, _unknown = known_entries(SETTINGS, written)
    for one in alive:
        value = written.get(one.name)
        read = _settings(readable.get(one.name))
        if read is not None:
            known[one.name] = read
        elif value is not None:
            warnings.append(f"sidecar {one.name} publishes its settings in a form that this version cannot read")
    chosen: dict[str, Any] = {}
    for name in SHARED_SETTINGS:
        values = {instance: getattr(settings, name) for instance, settings in known.items()}
        if len(set(values.values())) > 1:
            warnings.append(f"the sidecars disagree about {name}: {_listed(values)}")
        elif values and resolved.sources[name] != "default" and getattr(session.settings, name) not in values.values():
            warnings.append(f"{name} is set for this command, and the running sidecars have another value")
        if values and resolved.sources[name] == "default":
            chosen[name] = values[_latest(alive, values)]
    return replace(session, settings=session.settings.model_copy(update=chosen)), Sidecars(fleet, alive, warnings)


def _settings(value: object) -> SidecarSettings | None:
    """Read the settings that a sidecar published; None if they are invalid, or were too large to publish."""
    if not isinstance(value, dict) or TOO_LARGE in value:
        return None
    try:
        return SidecarSettings.model_validate({name: value[name] for name in SHARED_SETTINGS if name in value})
    except ValidationError:
        return None


def _latest(alive: Sequence[Instance], values: Mapping[str, Any]) -> str:
    """Return the instance among those with a value that was started last."""
    return max((one for one in alive if one.name in values), key=lambda one: one.since or 0).name


def _listed(values: Mapping[str, Sequence[object]]) -> str:
    return "; ".join(f"{name} has {', '.join(map(str, value)) or 'none'}" for name, value in sorted(values.items()))
