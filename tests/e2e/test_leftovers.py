"""The leftovers of instances in the bucket are removed, and only instances that live are counted."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.runtime import fleet as leftovers
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, sidecar_on
from tests.harness.fleet import BUCKET
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11, V2_14
from tests.harness.waiting import eventually

WITHIN_SECONDS = 30.0
LEASE = "$KV.nats_scheduler.lease."
INSTANCE = "$KV.nats_scheduler.instance."


async def keys(account: Account, under: str) -> list[str]:
    """Return the subjects that are stored in the bucket under a prefix."""
    info = await account.api.call(f"STREAM.INFO.{BUCKET}", {"subjects_filter": f"{under}>"})
    return sorted(info["state"].get("subjects") or {})


async def has_only(account: Account, under: str, wanted: Iterable[str]) -> None:
    expected = sorted(f"{under}{key}" for key in wanted)

    async def is_so() -> bool:
        return await keys(account, under) == expected

    await eventually(is_so, within_seconds=WITHIN_SECONDS, describe=f"{expected} and nothing else under {under}")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have leftovers looked for at once, and take for old what a test can wait for."""
    monkeypatch.setattr(leftovers, "LEFTOVERS_CHECK_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(leftovers, "ABANDONED_AFTER_NS", 3 * SECOND)


async def test_who_leaves_leaves_nothing_behind(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        async with sidecar_on(server.url) as stays:
            async with sidecar_on(server.url) as leaves:
                await account.create("S")
                await stays.ready("S")
                await leaves.ready("S")
            await has_only(account, INSTANCE, [stays.sidecar._leases.me])
            assert not stays.told("instance_lost"), "it said that it left"
        await has_only(account, INSTANCE, [])


@pytest.mark.usefixtures("often")
async def test_what_the_dead_and_the_departed_left_is_removed(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        marker = {"KV-Operation": "DEL"}
        await account.publish(f"{INSTANCE}departed", marker, b"")
        await account.publish(f"{INSTANCE}dead", body=b'{"serves": [], "since": "2026-01-01T00:00:00Z"}')
        await account.publish(f"{LEASE}emulated.GONE", body=json.dumps({"holders": {"dead": [0]}}).encode())
        await has_only(account, INSTANCE, [running.sidecar._leases.me])
        await has_only(account, LEASE, [])


@pytest.mark.usefixtures("often")
async def test_the_lease_of_a_mode_that_is_over_is_removed_and_that_of_others_stays(start_server: StartServer) -> None:
    """As `graduate` leaves it: the stream was dormant, and is native now."""
    server = await start_server(V2_14)
    everything = json.dumps({"holders": {"dead": list(range(SHARDS))}}).encode()
    async with account_on(server.url) as account:
        await account.create("S", metadata={METADATA_FLAG: "true"}, allow_msg_schedules=False)
        async with sidecar_on(server.url) as running:
            await has_only(account, LEASE, ["dormant.S"])
            await account.publish(f"{LEASE}emulated.S", body=everything)
            await has_only(account, LEASE, ["dormant.S"])
            config = (await account.api.stream("S"))["config"]
            await account.api.update_stream({**config, "allow_msg_schedules": True, "allow_rollup_hdrs": True})
            await has_only(account, LEASE, ["native.S"])
            assert len(running.sidecar.served["S"].shards) == SHARDS


async def test_one_sidecar_is_counted_once_whatever_lies_in_the_bucket(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Also when it listens anew after a restart of the server, which is when all that is stored is read again."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url):
        for number in range(3):  # as after three crashes, each while nobody else ran
            await account.publish(f"{INSTANCE}dead{number}", body=b'{"serves": null, "since": "soon"}')
        stored = await account.messages(BUCKET, f"{INSTANCE}dead2")
        stored_at = stored[0].stored_at
    await eventually(lambda: CLOCK.now() > stored_at + 5 * SECOND, within_seconds=WITHIN_SECONDS)
    with sidecar("run", "-s", server.url, "--log-format", "json", folder=tmp_path) as process:
        await process.wait_for_line('"instances_alive"')
        await server.kill()
        await process.wait_for_line('"connect_failed"')
        await server.restart()
        await process.wait_for_line('"connected"', count=2)
        async with account_on(server.url) as account:
            await account.create("S")
            await process.wait_for_line('"shards_changed"')
        said = [json.loads(line) for line in process.stderr.splitlines()]
    assert {line["count"] for line in said if line["event"] == "instances_alive"} == {1}
    assert not [line for line in said if line["event"] == "instance_lost"]
