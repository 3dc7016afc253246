"""Where we are better than the native scheduler on purpose: each case is run on both, and shows that it fails there."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from nats_scheduler.engine.events import ScheduleRejected
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import SharedServer
from tests.differential.sides import Side, fresh_name, sides_of
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.servers import V2_11, V2_15


@asynccontextmanager
async def restricted(server: EmbeddedServer, **settings: Sequence[str]) -> AsyncIterator[Side]:
    """Run a side whose operator set something."""
    async with account_on(server.url) as account, sidecar_on(server.url, **settings) as running:
        yield Side(server.version, server, account, running)


@pytest.mark.clause("restrictions")
async def test_the_operator_decides_what_schedules_may_write_read_and_how_many_there_are(
    shared_server: SharedServer,
) -> None:
    name = fresh_name()
    rules = {
        "allowed_targets": (f"{name}={name}.due.>",),
        "allowed_sources": (f"{name}={name}.open.*",),
        "max_schedules": (f"{name}=2",),
    }
    at = in_seconds(1)

    async def publish(side: Side) -> None:
        for rest, target, source in (
            ("writes", "private", ""),
            ("reads", "due.b", "secret"),
            ("good", "due.a", "open.a"),
            ("many", "due.c", ""),
            ("most", "due.d", ""),
        ):
            headers = {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": f"{name}.{target}"}
            if source:
                headers["Nats-Schedule-Source"] = f"{name}.{source}"
            assert "error" not in await side.say(f"{name}.{rest}", headers, b"body")

    async with restricted(await shared_server(V2_11), **rules) as ours:
        await ours.create(name)
        await publish(ours)
        await ours.account.wait_for(name, f"{name}.due.c")
        assert ours.sidecar is not None
        told = {(e.schedule, e.rejection.code) for e in ours.sidecar.of(name, ScheduleRejected)}
        assert told == {(f"{name}.writes", 10190), (f"{name}.reads", 10203), (f"{name}.most", 10023)}
        stored = await ours.account.messages(name, f"{name}.>")
        assert {m.subject for m in stored} >= {f"{name}.due.a", f"{name}.due.c"}
        assert not {m.subject for m in stored} & {f"{name}.private", f"{name}.due.b", f"{name}.due.d"}

    async with sides_of(shared_server, (V2_15,)) as [native]:
        await native.create(name)
        await publish(native)
        for rest in ("private", "due.b", "due.d"):
            await native.account.wait_for(name, f"{name}.{rest}")
