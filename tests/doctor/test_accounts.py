"""The findings about servers, permissions, clocks, zones and sidecars: where each is reported, and where it is not.

It tests `doctor/gather.py` too.
It tests `doctor/permission_probe.py` too.
It tests `doctor/server.py` too.
It tests `doctor/clock_reading.py` too.
"""

import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nats_scheduler.control.transport import request_json
from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.runtime.canary import CANARY_STREAM, CANARY_SUBJECTS
from nats_scheduler.runtime.embedded import EmbeddedServer, free_port
from nats_scheduler.schedule.instants import DAY, SECOND
from nats_scheduler.schedule.zone_data import package_folder, zone_data_versions
from tests.conftest import SharedServer, StartServer
from tests.doctor.examined import codes_on, findings_on, of
from tests.doctor.scenes import NEVER, emulated, schedule, stored
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.cluster import running_cluster
from tests.harness.flagged import FLAGGED, FlaggedStream
from tests.harness.permissions import OPTIONAL, Permission, accounts, limited_to, permissions_of, shared_account, url_of
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

# -- servers -----------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_not_reached_is_named_without_the_password(shared_server: SharedServer) -> None:
    (found,) = await findings_on(f"nats://bob:hunter2@127.0.0.1:{free_port()}")
    assert found.code is Code.NO_SERVER
    assert "bob:***@127.0.0.1" in found.what
    assert "hunter2" not in found.what + found.command
    server, lost = await shared_server(V2_11), f"nats://127.0.0.1:{free_port()}"
    (found,) = of(await findings_on(f"{server.url},{lost}"), Code.SERVER_UNREACHABLE)
    assert lost in found.what
    assert of(await findings_on(server), Code.SERVER_UNREACHABLE) == []


async def test_servers_of_two_versions_differ(shared_server: SharedServer, start_server: StartServer) -> None:
    old, new, same = await shared_server(V2_10), await shared_server(V2_11), await start_server(V2_11)
    (found,) = of(await findings_on(f"{old.url},{new.url}"), Code.VERSIONS_DIFFER)
    assert V2_10 in found.what
    assert V2_11 in found.what
    assert Code.VERSIONS_DIFFER not in await codes_on(f"{same.url},{new.url}")


async def test_an_account_without_jetstream_is_reported(start_server: StartServer) -> None:
    users = "a: { users: [{ user: a, password: a }] }, b: { jetstream: enabled, users: [{ user: b, password: b }] }"
    server = await start_server(V2_11, config=f"accounts {{ {users} }}\n")
    without, having = (server.url.replace("nats://", f"nats://{one}:{one}@") for one in "ab")
    assert Code.JETSTREAM_UNAVAILABLE in await codes_on(without)
    assert Code.JETSTREAM_UNAVAILABLE not in await codes_on(having)


# -- permissions -------------------------------------------------------------------------------------------------------


def needed(mode: str, *more: str, without: str = "") -> list[Permission]:
    """Return what the documents list, without a subject, and what may be published to besides."""
    listed = [each for each in permissions_of(mode) if each.subject != without]
    return [*listed, *(Permission("publish", subject, ()) for subject in more)]


async def with_streams(server: EmbeddedServer, number: int, mode: str) -> str:
    """Create a stream of each kind in the account of a user, and return the user's address."""
    async with account_on(url_of(server.url, f"admin-{number}")) as account:
        flagged = {"metadata": FLAGGED, "allow_msg_schedules": mode == "native"}
        await account.create("ORDERS", subjects=["orders.>"], **flagged)
        await account.create("JOBS", subjects=["jobs.>"], retention="workqueue", **flagged)
        await account.create(CANARY_STREAM, subjects=[CANARY_SUBJECTS], allow_msg_schedules=False)
        at = f"@at {in_seconds(9_000)}"
        for subject in ("orders", "jobs"):
            headers = {"Nats-Schedule": at, "Nats-Schedule-Target": f"{subject}.t"}
            await account.publish(f"{subject}.s", headers)
    return url_of(server.url, f"sidecar-{number}")


VERSIONS = {"2.11": V2_11, "native": V2_15}
CASES = [("2.11", False), pytest.param("native", True, marks=pytest.mark.deep)]
"""Of each the mode, and whether the server lists the user's permissions, or each has to be tried."""


@pytest.mark.parametrize(("mode", "is_listed"), CASES)
async def test_each_missing_permission_is_named_and_no_other(
    start_server: StartServer, mode: str, is_listed: bool
) -> None:
    more = ["$SYS.REQ.USER.INFO"] if is_listed else []
    lacking = [each for each in permissions_of(mode) if is_listed or is_examined(each)]
    grants = [needed(mode, *more), *(needed(mode, *more, without=each.subject) for each in lacking)]
    # What may be published and subscribed to has one row for each: the one that is tested lacks its own only.
    for number, each in enumerate(lacking, 1):
        grants[number] += [one for one in permissions_of(mode) if one.subject == each.subject and one.act != each.act]
    server = await start_server(VERSIONS[mode], config=accounts(grants))
    whole = await findings_on(await with_streams(server, 0, mode))
    assert of(whole, Code.PERMISSION_MISSING) == of(whole, Code.PERMISSION_OPTIONAL) == []
    assert bool(of(whole, Code.PERMISSION_UNCLEAR)) is (not is_listed and mode != "native")
    for number, each in enumerate(lacking, 1):
        code = Code.PERMISSION_OPTIONAL if each.needed_in(mode) == OPTIONAL else Code.PERMISSION_MISSING
        found = [finding.what for finding in of(await findings_on(await with_streams(server, number, mode)), code)]
        assert any(names(what, each) for what in found), (each, found)


def is_examined(permission: Permission) -> bool:
    """Return whether a permission can be examined without a list: not that of a target or an advisory."""
    return permission.act == "subscribe" or permission.subject.startswith(("$JS.", "$KV.nats_scheduler."))


def names(what: str, permission: Permission) -> bool:
    """Return whether a finding is about a permission."""
    act, subject = re.fullmatch(r"this user may not (\w+) (?:to )?(\S+)", what).groups()  # type: ignore[union-attr]
    pattern = re.escape(permission.subject).replace(r"\*", "[^.]+").replace(">", ".+")
    return act == permission.act and re.fullmatch(pattern, subject) is not None


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_an_examination_changes_nothing(start_server: StartServer, version: str) -> None:
    mode = "native" if version == V2_15 else version.rpartition(".")[0]
    server = await start_server(version, config=accounts([needed(mode)]))
    url, admin = await with_streams(server, 0, mode), url_of(server.url, "admin-0")
    async with account_on(admin) as account, sidecar_on(url) as running:

        async def state() -> list[object]:
            """Return what the streams are and hold, without the bucket in which sidecars write all the time."""
            kept = ("messages", "bytes", "first_seq", "last_seq", "num_deleted")
            infos = [info async for info in account.api.streams() if info["config"]["name"] != "KV_nats_scheduler"]
            return [(info["config"], {key: info["state"].get(key) for key in kept}) for info in infos]

        await running.ready("ORDERS")
        received: list[bytes] = []
        account.connection.subscribe("orders.>", lambda subject, *_rest: received.append(subject))
        before = await state()
        for examined in (url, admin):
            await findings_on(examined)
            assert await state() == before, examined
        assert (received, running.problems) == ([], [])


async def test_what_a_user_may_not_read_is_named_and_the_rest_is_examined(start_server: StartServer) -> None:
    few = needed("2.11", without="$JS.API.CONSUMER.LIST.*")
    server = await start_server(V2_11, config=accounts([few, needed("2.11", "$SYS.REQ.ACCOUNT.PING.CONNZ")]))
    lacking, all_of_it = [await findings_on(await with_streams(server, number, "2.11")) for number in range(2)]
    missing = {"CONSUMER.LIST.ORDERS", "CONSUMER.LIST.JOBS", "$SYS.REQ.ACCOUNT.PING.CONNZ"}
    assert all(any(one in found.what for found in of(lacking, Code.NOT_EXAMINED)) for one in missing)
    assert of(all_of_it, Code.NOT_EXAMINED) == []
    assert {found.stream for found in of(lacking, Code.NO_SIDECAR)} == {"ORDERS", "JOBS"}


async def test_without_the_bucket_no_sidecar_is_declared_missing(start_server: StartServer) -> None:
    grant = needed("2.11", without="$JS.API.STREAM.MSG.GET.*")
    server = await start_server(V2_11, config=accounts([grant]))
    url = await with_streams(server, 0, "2.11")
    async with sidecar_on(url_of(server.url, "admin-0")) as running:
        await running.ready("ORDERS")
        found = await findings_on(url)
    assert of(found, Code.NO_SIDECAR) == []
    assert any(one.what.startswith("which sidecars run") for one in of(found, Code.NOT_EXAMINED))


# -- clock and zones ---------------------------------------------------------------------------------------------------


async def test_a_clock_that_is_off_and_old_zone_data_are_reported(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        await account.create(stream_name)
    behind, ahead = (lambda: CLOCK.now() - 10 * SECOND), (lambda: CLOCK.now() + 10 * SECOND)
    for now, side in ((behind, "behind"), (ahead, "ahead of")):
        (found,) = of(await findings_on(server, stream_name, now), Code.CLOCK_OFF)
        assert re.search(rf"of this machine is \d+\.\d s {side} that of the server", found.what), found
    assert of(await findings_on(server, stream_name), Code.CLOCK_OFF) == []
    packaged = zone_data_versions()["the tzdata package"]
    new_year = int(datetime(int(packaged[:4]), 1, 1, tzinfo=UTC).timestamp()) * SECOND
    assert of(await findings_on(server, None, lambda: new_year + 300 * DAY), Code.ZONE_DATA_OLD) == []
    old = of(await findings_on(server, None, lambda: new_year + 800 * DAY), Code.ZONE_DATA_OLD)
    assert f"the zone data in the tzdata package is version {packaged}" in {one.what for one in old}


async def test_a_zone_in_use_that_differs_on_the_host_is_reported(
    shared_server: SharedServer, stream_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await shared_server(V2_11)
    source = Path(package_folder())
    shutil.copytree(source, tmp_path / "zones")
    monkeypatch.setenv("ZONEINFO", str(tmp_path / "zones"))
    async with account_on(server.url) as account:
        await stored("0 0 5 * * *", **{"Nats-Schedule-Time-Zone": "Europe/Berlin"})(account, stream_name)
        assert of(await findings_on(server, stream_name), Code.ZONES_DISAGREE) == []
        shutil.copy(source / "Asia" / "Tokyo", tmp_path / "zones" / "Europe" / "Berlin")
        (found,) = of(await findings_on(server, stream_name), Code.ZONES_DISAGREE)
    assert found.what.startswith("time zone Europe/Berlin has another offset in the sidecar's zone data")


# -- sidecars ----------------------------------------------------------------------------------------------------------


async def test_a_stream_without_a_sidecar_is_reported(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await emulated(account, "ORDERS")
        (found,) = of(await findings_on(server), Code.NO_SIDECAR)
        assert (found.stream, found.command) == ("ORDERS", "nats-scheduler run")
        async with sidecar_on(server.url) as running:
            await running.ready("ORDERS")

            async def is_served() -> bool:
                return Code.NO_SIDECAR not in await codes_on(server)

            await eventually(is_served, describe="its heartbeat names the stream")


async def test_refused_fires_and_a_sidecar_that_cannot_serve_show(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=shared_account([limited_to(V2_11, "nothing")]))
    admin = url_of(server.url, "admin-0")
    async with account_on(admin) as account, sidecar_on(url_of(server.url, "sidecar-0")) as running:
        await account.create("ORDERS", metadata=FLAGGED)
        await running.ready("ORDERS")
        assert not {Code.FIRE_REFUSED, Code.CANNOT_SERVE} & await codes_on(admin)
        await account.publish("ORDERS.s", schedule("ORDERS", f"@at {in_seconds(0.5)}"))
        (refused,) = await reported(admin, Code.FIRE_REFUSED)
        assert "ORDERS.s: its fires to ORDERS.out are refused" in refused.what
        assert refused.command == "allow the sidecar's user to publish to ORDERS.out"
        (unable,) = await reported(admin, Code.CANNOT_SERVE)
        assert "may not publish to the target: ORDERS.out" in unable.what


async def reported(url: str, code: Code) -> Sequence[Finding]:
    """Wait until something is reported, and return it."""

    async def found() -> Sequence[Finding]:
        return of(await findings_on(url), code)

    return await eventually(found, describe=f"{code} is reported")


async def test_a_purge_with_an_unreadable_body_is_why_none_is_sent(shared_server: SharedServer) -> None:
    """A server from 2.11 on takes such a body for none, and purges everything."""
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("PURGED")
        await account.publish("PURGED.a")
        answer = await request_json(account.connection, "$JS.API.STREAM.PURGE.PURGED", "?")
        assert answer["purged"] == 1


@pytest.mark.server
async def test_subscribers_on_every_node_of_a_cluster_count(tmp_path: Path) -> None:
    async with (
        running_cluster(V2_11, tmp_path) as cluster,
        account_on(cluster.urls[0]) as account,
        account_on(cluster.urls[2]) as other,
    ):
        await account.create("ORDERS", metadata=FLAGGED, num_replicas=3)
        await FlaggedStream(account, "ORDERS").schedule_soon("s", "@every 1h")
        (found,) = await reported(cluster.urls[1], Code.TARGET_UNREAD)
        assert found.subject == "ORDERS.out"
        other.connection.subscribe("ORDERS.*", lambda *_message: None)

        async def is_read() -> bool:
            return not {Code.TARGET_UNREAD, Code.NOT_EXAMINED} & await codes_on(cluster.urls[1])

        await eventually(is_read, describe="the subscriber on another node counts")


@pytest.mark.server
async def test_a_stream_without_a_leader_is_reported(tmp_path: Path) -> None:
    async with running_cluster(V2_11, tmp_path) as cluster:
        async with account_on(cluster.urls[0]) as account:
            info = await account.create("ORDERS", metadata=FLAGGED)
        lost = next(node for node in cluster.nodes if node.name == info["cluster"]["leader"])
        asked = next(node for node in cluster.nodes if node is not lost)
        assert Code.NO_ANSWER not in await codes_on(asked)
        await lost.kill()
        await cluster.meta_leader()
        (found,) = await reported(asked.url, Code.NO_ANSWER)
        assert (found.stream, found.what) == ("ORDERS", "stream ORDERS: its leader does not answer")


async def test_a_target_that_no_stream_has_is_reported(start_server: StartServer) -> None:
    """The operator's settings say which are allowed: the command takes them from the running sidecar."""
    server = await start_server(V2_11)
    headers = {"X-Nats-Schedule": NEVER, "X-Nats-Schedule-X-Target": "jobs.run"}
    async with (
        account_on(server.url) as account,
        sidecar_on(server.url, allowed_targets_elsewhere=("CRON=jobs.>",)) as running,
    ):
        await account.create("CRON", metadata=FLAGGED)
        await account.publish("CRON.s", headers)
        await account.publish("CRON.more", headers)
        await running.ready("CRON")

        async def findings() -> list[Finding]:
            return of(await findings_on(server), Code.TARGET_WITHOUT_STREAM)

        await eventually(findings, describe="the target without a stream is reported")
        (found,) = await findings()
        assert found.what == "no stream has the target jobs.run of CRON.more as one of its subjects"
        await account.create("JOBS", subjects=["jobs.>"])
        assert await findings() == []
        codes = {one.code for one in await findings_on(server)}
    assert Code.TARGET_UNREAD not in codes, "who reads the other stream is not the business of this one"
