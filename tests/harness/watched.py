"""A stream of an account that a sidecar watches, as its user's tools change it, and what the sidecar says of it."""

from dataclasses import dataclass
from typing import Any

from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.harness.account import Account, Running, in_seconds
from tests.harness.waiting import eventually

SOON_SECONDS = 30.0
MARKED = {METADATA_FLAG: "true"}
"""The metadata of a stream that its user flagged by hand."""


@dataclass
class Watched:
    """An account that a sidecar watches, one stream name, and the lines that the sidecar logged."""

    account: Account
    sidecar: Running
    name: str
    url: str
    said: list[dict[str, Any]]

    async def create(self, **config: Any) -> Any:
        """Create the stream, flagged unless the test says otherwise."""
        return await self.account.create(self.name, **config)

    async def update(self, **changes: Any) -> None:
        """Update the stream as a tool does that rewrites the answer to STREAM.INFO."""
        await self.account.api.call(f"STREAM.UPDATE.{self.name}", {**await self.config(), **changes})

    async def rewrite(self, **config: Any) -> None:
        """Update the stream as a tool does that knows only its own file."""
        wanted = {"name": self.name, "subjects": [f"{self.name}.>"], "storage": "memory", **config}
        await self.account.api.call(f"STREAM.UPDATE.{self.name}", wanted)

    async def delete(self) -> None:
        """Delete the stream."""
        await self.account.api.call(f"STREAM.DELETE.{self.name}")

    async def config(self) -> dict[str, Any]:
        """Return the stream's configuration without the server's own metadata."""
        config = (await self.account.api.stream(self.name))["config"]
        metadata = {k: v for k, v in (config.get("metadata") or {}).items() if not k.startswith("_nats.")}
        return {**config, "metadata": metadata}

    async def config_with(self, **wanted: Any) -> dict[str, Any]:
        """Wait until the configuration has these values and return it."""

        async def shown() -> dict[str, Any] | None:
            config = await self.config()
            return config if {key: config.get(key) for key in wanted} == wanted else None

        found: dict[str, Any] = await eventually(shown, within_seconds=SOON_SECONDS, describe=f"a stream with {wanted}")
        return found

    async def remembered(self, name: str | None = None) -> dict[str, Any]:
        """Wait until the registry says that the stream (or another one) carries the flag, and return what it says."""
        stream = name or self.name

        async def known() -> dict[str, Any] | None:
            return await self.entry(stream)

        return await eventually(known, within_seconds=SOON_SECONDS, describe=f"{stream} is remembered")

    async def entry(self, name: str) -> dict[str, Any] | None:
        """Return what the registry says of a stream."""
        bucket = SidecarSettings().registry_bucket
        return await Registry(self.account.connection, self.account.api, bucket).get(f"stream.{name}")

    async def fires(self, rest: str = "s", target: str | None = None) -> None:
        """Show that the stream is served: a schedule on it fires."""
        await self.schedule(rest, target or f"{self.name}.out")
        await self.account.wait_for(self.name, target or f"{self.name}.out")

    async def schedule(self, rest: str, target: str) -> None:
        """Store a schedule that is due now."""
        headers = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": target}
        await self.account.publish(f"{self.name}.{rest}", headers)

    async def does_not_fire(self) -> None:
        """Show that the stream is not served: a schedule on it has not fired when a later one elsewhere has."""
        await self.schedule("s", f"{self.name}.out")
        canary = f"{self.name}-canary"
        await self.account.create(canary)
        headers = {"Nats-Schedule": f"@at {in_seconds(0.2)}", "Nats-Schedule-Target": f"{canary}.out"}
        await self.account.publish(f"{canary}.s", headers)
        await self.account.wait_for(canary, f"{canary}.out")
        assert await self.account.messages(self.name, f"{self.name}.out") == []
        assert self.name not in self.sidecar.sidecar.served

    async def line(self, event: str, **fields: Any) -> dict[str, Any]:
        """Wait until the sidecar has logged an event about the stream."""
        wanted = {"event": event, "stream": self.name, **fields}

        def logged() -> dict[str, Any] | None:
            return next((line for line in self.said if wanted.items() <= line.items()), None)

        found: dict[str, Any] = await eventually(logged, within_seconds=SOON_SECONDS, describe=f"a line like {wanted}")
        return found
