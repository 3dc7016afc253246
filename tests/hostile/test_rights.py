"""A fire makes a server do nothing that the publisher of its schedule may not do.

The publisher here may publish to `orders.schedules.>` and to nothing else. The schedules fire into their own stream
and, as the operator allows, into another one.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, flushed, in_seconds, sidecar_with
from tests.harness.permissions import PASSWORD, url_of
from tests.harness.servers import ALL_VERSIONS, NATIVE_VERSIONS, V2_12
from tests.service.controlling import Refused, request

CONFIG = f"""
accounts {{ A {{ jetstream: enabled, users: [
  {{ user: owner, password: {PASSWORD} }}, {{ user: sidecar, password: {PASSWORD} }},
  {{ user: tenant, password: {PASSWORD}, permissions: {{
    publish: ["orders.schedules.>", "nats_scheduler.control.>"], subscribe: "_INBOX.>" }} }}
] }} }}
"""
KEPT = 3
"""Messages on each stream that nobody here may delete."""
PURGE = "$JS.API.STREAM.PURGE.OTHER"

ATTACKS = {
    "a trace behind a line of a schedule": f"Nats-Schedule-Junk\r\nNats-Trace-Dest: {PURGE}",
    "a trace behind a line of a portable schedule": f"X-Nats-Schedule-Junk\r\nNats-Trace-Dest: {PURGE}",
    "a trace behind a line of a condition": f"Nats-Expected-Junk\r\nNats-Trace-Dest: {PURGE}",
    "a trace of a fire that is not stored": f"Nats-Expected-J\r\nNats-Trace-Dest: {PURGE}\r\nNats-Trace-Only: true",
    "a trace behind its own name": "A: Nats-Trace-DestNats-Trace-Dest\r\nNats-Expected-J\r\nNats-Trace-Dest: " + PURGE,
    "a roll-up that the server uncovers": "Nats-Schedule-B: Nats-Request-InfoNats-Request-Info\r\n"
    "Nats-Request-Info: Nats-RollupNats-Rollup\r\nNats-Rollup: all",
}
"""The attacks that were possible once."""


REQUESTED = [
    ("Nats-Trace-Dest", PURGE),
    ("nats-trace-dest", PURGE),
    ("Nats-Trace-Only", "true"),
    ("Nats-Rollup", "all"),
]
"""The headers that nobody can ask a sidecar to publish."""


@dataclass
class Scene:
    """A server with two streams, a sidecar that serves one of them, and a publisher with few permissions."""

    owner: Account
    tenant: Account
    running: Running
    version: str
    heard: list[tuple[str, bytes]] = field(default_factory=list)
    """The messages on the canary's subjects: subject and body."""

    def block(self, target: str, lines: str | bytes, at: str = "middle") -> bytes:
        """Return the block of a schedule that fires at once, with further lines."""
        more = lines.encode() if isinstance(lines, str) else lines
        where = "X-Target" if target.startswith("other.") else "Target"
        first = f"NATS/1.0\r\nX-Nats-Schedule: @at {in_seconds(0)}\r\n".encode()
        last = f"X-Nats-Schedule-{where}: {target}\r\n".encode()
        parts = {"middle": (first, more, b"\r\n", last), "end": (first, last, more, b"\r\n")}
        return b"".join(parts[at]) + b"\r\n"

    def send(self, subject: str, block: bytes, *, by_owner: bool = False) -> None:
        """Publish as the one with few permissions; nobody waits for an answer."""
        publisher = self.owner if by_owner else self.tenant
        publisher.connection.write(frame(f"orders.schedules.{subject}", "", block, b"body"))

    async def fired(self, *targets: str) -> None:
        """Wait until each target has a fire."""
        for target in targets:
            await self.owner.wait_for("OTHER" if target.startswith("other.") else "ORDERS", target)

    async def expect_nothing_else(self) -> None:
        """Require that nothing happened but fires, and what the publisher itself has caused."""
        await flushed(self.owner.connection)
        by_fires = [heard for heard in self.heard if b'"subj":"orders.schedules.' not in heard[1]]
        assert by_fires == []
        for stream in ("ORDERS", "OTHER"):
            assert len(await self.owner.messages(stream, f"{stream.lower()}.kept")) == KEPT, stream
        flag = await self.owner.api.message("KV_nats_scheduler", last_by_subj="$KV.nats_scheduler.stream.ORDERS")
        assert (flag is None) is (self.version in NATIVE_VERSIONS)


@asynccontextmanager
async def scene_on(start_server: StartServer, version: str) -> AsyncIterator[Scene]:
    """Start all of it."""
    server = await start_server(version, config=CONFIG)
    settings = SidecarSettings(
        connection=ConnectionSettings(servers=(url_of(server.url, "sidecar"),)),
        allowed_targets_elsewhere=("ORDERS=other.>",),
        portable_streams=("ORDERS",) if version in NATIVE_VERSIONS else (),
        allow_control=True,
    )
    async with (
        account_on(url_of(server.url, "owner")) as owner,
        account_on(url_of(server.url, "tenant")) as tenant,
        sidecar_with(settings) as running,
    ):
        plain: dict[str, Any] = {"allow_msg_schedules": False, "allow_rollup_hdrs": True}
        await owner.create("OTHER", subjects=["other.>"], **plain)
        flag = {} if version in NATIVE_VERSIONS else {"metadata": {METADATA_FLAG: "true"}}
        await owner.create("ORDERS", subjects=["orders.>"], **(plain | {"allow_rollup_hdrs": False}), **flag)
        for subject in ["orders.kept", "other.kept"] * KEPT:
            await owner.publish(subject)
        await running.ready("ORDERS")
        await running.healthy()
        scene = Scene(owner, tenant, running, version)

        def hear(subject: bytes, _reply: bytes, _block: bytes, body: bytes) -> None:
            scene.heard.append((subject.decode(), body))

        for subject in ("canary.>", PURGE, "$KV.nats_scheduler.stream.OTHER"):
            owner.connection.subscribe(subject, hear)
        await flushed(owner.connection)
        yield scene


async def attack(scene: Scene) -> None:
    """Try what was possible once."""
    targets = []
    for number, lines in enumerate(ATTACKS.values()):
        for name in ("orders", "other"):
            for at in ("middle", "end"):
                target = f"{name}.due.{number}.{at}"
                # A 2.12 denies it to the publisher if it finds the name, whether it would trace or not.
                by_owner = scene.version == V2_12 and "Nats-Trace" in lines and "A: " not in lines
                scene.send(f"{name}.{number}.{at}", scene.block(target, lines, at), by_owner=by_owner)
                targets.append(target)
    headers = [["X-Nats-Schedule", "@at 2020-01-01T00:00:00Z"], ["X-Nats-Schedule-Target", "orders.due"]]
    for name, value in REQUESTED:
        body = {"stream": "ORDERS", "subject": "orders.schedules.r", "headers": [*headers, [name, value]]}
        refused = await request(scene.tenant.connection, "add", body)
        assert isinstance(refused, Refused), name
        assert (refused.code, name in refused.sentence) == (422, True), refused
    await scene.fired(*targets)


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_whatever_is_stored_makes_the_server_do_nothing_more(start_server: StartServer, version: str) -> None:
    async with scene_on(start_server, version) as scene:
        await attack(scene)
        await scene.expect_nothing_else()
