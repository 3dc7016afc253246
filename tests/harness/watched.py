"""A stream of an account that a sidecar watches, as its user's tools change it, and what the sidecar says of it."""

from dataclasses import dataclass, field
from typing import Any

from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.harness.flagged import Served
from tests.harness.waiting import eventually


@dataclass
class Watched(Served):
    """A stream that the test makes, and the lines that the sidecar logged."""

    said: list[dict[str, Any]] = field(default_factory=list)

    async def create(self, **config: Any) -> Any:
        """Create the stream, flagged unless the test says otherwise."""
        return await self.account.create(self.name, **config)

    async def served(self, **config: Any) -> Any:
        """Create the stream, and wait until it is served."""
        made = await self.create(**config)
        await self.sidecar.ready(self.name)
        return made

    async def update(self, **changes: Any) -> None:
        """Update the stream as a tool does that rewrites the answer to STREAM.INFO."""
        await self.call("STREAM.UPDATE", {**await self.config(), **changes})

    async def rewrite(self, **config: Any) -> None:
        """Update the stream as a tool does that knows only its own file."""
        wanted = {"name": self.name, "subjects": [f"{self.name}.>"], "storage": "memory", **config}
        await self.call("STREAM.UPDATE", wanted)

    async def config(self) -> dict[str, Any]:
        """Return the stream's configuration without the server's own metadata."""
        config = (await self.account.api.stream(self.name))["config"]
        metadata = {k: v for k, v in (config.get("metadata") or {}).items() if not k.startswith("_nats.")}
        return {**config, "metadata": metadata}

    async def config_with(self, **wanted: Any) -> None:
        """Wait until the configuration has these values."""

        async def is_shown() -> bool:
            config = await self.config()
            return {key: config.get(key) for key in wanted} == wanted

        await eventually(is_shown, describe=f"a stream with {wanted}")

    async def remembered(self) -> dict[str, Any]:
        """Wait until the registry says that the stream carries the flag, and return what it says."""

        registry = Registry(self.account.connection, self.account.api, SidecarSettings().registry_bucket)

        async def known() -> dict[str, Any] | None:
            return await registry.get(f"stream.{self.name}")

        return await eventually(known, describe=f"{self.name} is remembered")

    async def fires(self, rest: str = "s") -> None:
        """Show that the stream is served: a schedule on it fires."""
        await self.schedule_at(rest, self.subject(f"{rest}.out"))
        await self.wait_for(f"{rest}.out")

    async def schedule_at(self, rest: str, target: str) -> None:
        """Store a schedule that was due long ago, with a target that is named whole."""
        await self.publish(rest, {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": target})

    async def line(self, event: str, **fields: Any) -> dict[str, Any]:
        """Wait until the sidecar has logged an event about the stream."""
        wanted = {"event": event, "stream": self.name, **fields}

        def logged() -> dict[str, Any] | None:
            return next((line for line in self.said if wanted.items() <= line.items()), None)

        return await eventually(logged, describe=f"a line like {wanted}")
