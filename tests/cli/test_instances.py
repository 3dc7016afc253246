"""`nats-scheduler instances`: the instances of the account, and what each of them holds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from click.testing import Result

from nats_scheduler.engine.sharing.leases import LEASE_DURATION_NS
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Running, account_on, sidecar_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually


async def listed(cli: Cli, server: EmbeddedServer, *arguments: str) -> Result:
    """Run the command in a thread, in which it has an event loop of its own."""
    said = await asyncio.to_thread(cli, "instances", *arguments, "--server", server.url)
    assert (said.exit_code, said.stderr) == (0, ""), said.output
    return said


async def document(cli: Cli, server: EmbeddedServer) -> dict[str, Any]:
    """Return the printed JSON by the ids of the instances."""
    value = json.loads((await listed(cli, server, "--json")).stdout)
    assert isinstance(parse_rfc3339(value["at"]), int)
    return {one["id"]: one for one in value["instances"]}


def shards_of(running: Running, stream: str) -> list[int]:
    """Return the shards that a sidecar holds."""
    return sorted(running.sidecar.served[stream].shards)


async def test_each_is_listed_with_what_it_holds(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    began = CLOCK.now()
    async with account_on(server.url) as account, sidecar_on(server.url) as one, sidecar_on(server.url) as other:
        await account.create("ORDERS")
        await one.ready("ORDERS")
        await other.ready("ORDERS")
        await eventually(
            lambda: (
                {*shards_of(one, "ORDERS"), *shards_of(other, "ORDERS")} == set(range(SHARDS))
                and 0 < len(shards_of(one, "ORDERS")) < SHARDS
                and len(shards_of(one, "ORDERS")) + len(shards_of(other, "ORDERS")) == SHARDS
            ),
            within_seconds=15,
            describe="the shards are divided",
        )
        found = await document(cli, server)
        held = [
            [{"stream": "ORDERS", "mode": "emulated", "shards": shards_of(each, "ORDERS")}] for each in (one, other)
        ]
        assert sorted((each["holds"] for each in found.values()), key=str) == sorted(held, key=str)
        for each in found.values():
            assert (each["state"], each["serves"]) == ("alive", ["emulated.ORDERS"])
            assert 0 <= each["age_nanoseconds"] < LEASE_DURATION_NS
            since, heartbeat_at = parse_rfc3339(each["since"]), parse_rfc3339(each["last_heartbeat"])
            assert isinstance(since, int)
            assert isinstance(heartbeat_at, int)
            assert began - MINUTE < since <= heartbeat_at
        table = (await listed(cli, server)).stdout.splitlines()
        assert table[0].split() == ["instance", "state", "heartbeat", "stream", "mode", "shards"]
        assert sorted(line.split()[0] for line in table[1:-1]) == sorted(found)
        assert all("alive" in line and "ORDERS" in line and f"of {SHARDS}" in line for line in table[1:-1])
        assert table[-1] == "2 in all: 2 alive"
        wide = (await listed(cli, server, "--wide")).stdout.splitlines()
        assert "since (UTC)" in wide[0]
        assert "." not in wide[1].split()[2], "seconds"


async def test_one_that_is_silent_or_gone_is_told_from_one_that_lives(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    assert "no sidecar lives on this account" in (await listed(cli, server)).stdout
    async with account_on(server.url) as account:
        async with sidecar_on(server.url):
            pass
        assert "no sidecar lives on this account" in (await listed(cli, server)).stdout, "it left"
        await account.publish("$KV.nats_scheduler.instance.abc", body=b'{"serves": null, "since": "soon"}')
        await account.publish("$KV.nats_scheduler.lease.native.JOBS", body=b'{"holders": {"xyz": [0, 7]}}')

        async def is_silent() -> dict[str, Any] | None:
            found = await document(cli, server)
            return found if found["abc"]["state"] == "silent" else None

        found = await eventually(is_silent, within_seconds=15, describe="who says nothing more is silent")
    assert (found["abc"]["since"], found["abc"]["serves"], found["abc"]["holds"]) == (None, None, [])
    gone = {
        "id": "xyz",
        "state": "gone",
        "since": None,
        "last_heartbeat": None,
        "age_nanoseconds": None,
        "serves": None,
    }
    assert found["xyz"] == {**gone, "unable": [], "holds": [{"stream": "JOBS", "mode": "native", "shards": [0, 7]}]}


async def test_what_an_instance_cannot_serve_is_shown_with_the_reason(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url):
        value = {"serves": ["emulated.JOBS"], "unable": {"emulated.JOBS": "may not\x1b[2J publish"}}
        await account.publish("$KV.nats_scheduler.instance.abc", body=json.dumps(value).encode())
        found = await document(cli, server)
        assert found["abc"]["unable"] == [{"stream": "JOBS", "reason": "may not\x1b[2J publish"}]
        said = (await listed(cli, server)).stdout
    assert "abc cannot serve JOBS: may not\\x1b[2J publish" in said
