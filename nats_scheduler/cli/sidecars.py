"""The running sidecars of the account, and the settings that they use.

Rule: a command reports about schedules what the running sidecars would report. So their settings are used unless the
operator gives others; if there is no sidecar, or the sidecars disagree, the command warns.
Cost: some requests for each instance. Limit: a sidecar of a version that does not publish its settings is taken to have
those of this command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pydantic import ValidationError

from nats_scheduler.cli.output import print_warning
from nats_scheduler.cli.session import Session
from nats_scheduler.jetstream.formats import known_entries
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.fleet import read_fleet
from nats_scheduler.runtime.modes import BY_SIDECAR, EXPLANATIONS, Mode
from nats_scheduler.runtime.shared_settings import SETTINGS, SHARED_SETTINGS, TOO_LARGE
from nats_scheduler.service.port import Instance
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.sidecar import SidecarSettings

NONE_RUNNING = "no sidecar is running: nothing fires these"
NOT_SERVED_YET = "no sidecar that is running serves this stream"


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

    alive: Sequence[Instance]
    warnings: Sequence[str]

    def serving(self, stream: StreamWithMode) -> int:
        """Return how many of them serve a stream."""
        key = f"{stream.mode}.{stream.name}"
        return sum(one.serves is None or key in one.serves for one in self.alive)

    def why_not_fired(self, stream: StreamWithMode) -> str:
        """Return why nothing fires on a stream in a mode that needs a sidecar, "" if one serves it."""
        return self.why_not_served(stream) if stream.mode in BY_SIDECAR else ""

    def why_not_served(self, stream: StreamWithMode) -> str:
        """Return why no sidecar fires what only a sidecar fires, such as portable headers, "" if one serves it."""
        if self.serving(stream):
            return ""
        return NOT_SERVED_YET if self.alive else NONE_RUNNING

    def stream_document(self, stream: StreamWithMode) -> dict[str, object]:
        """Return a stream, and who serves it, as a JSON object."""
        return {
            "stream": stream.name,
            "mode": stream.mode,
            "served": EXPLANATIONS[stream.mode],
            "sidecars": self.serving(stream),
            "problem": self.why_not_fired(stream) or None,
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
    return replace(session, settings=session.settings.model_copy(update=chosen)), Sidecars(alive, warnings)


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
