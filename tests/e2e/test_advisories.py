"""Each advisory is published on its own subject, with the body that the schema describes.

`instance_not_firing` is published in `test_ability`, with the instance that it takes.
"""

from nats_scheduler.message.identity import fire_identity
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.e2e.conftest import Served
from tests.harness.account import CLOCK, WAIT_SECONDS, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.servers import V2_10, V2_11
from tests.harness.waiting import eventually

USERS = """
authorization { users: [
  { user: operator, password: operator },
  { user: sidecar, password: sidecar, permissions: { publish: { deny: "S.denied" } } }
] }
"""


async def test_a_rejected_schedule_is_advised(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    sequence = await served.schedule("s", "@every soon")
    advisory = await heard.first("schedule_rejected")
    assert (advisory["schedule"], advisory["seq"], advisory["code"]) == (served.subject("s"), sequence, 10189)


async def test_a_header_that_is_nearly_right_is_advised(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    sequence = await served.publish("s", {"Nats-Schedul": "@daily"})
    advisory = await heard.first("header_misnamed")
    assert (advisory["header"], advisory["seq"], advisory["subject"]) == ("Nats-Schedul", sequence, served.subject("s"))


async def test_a_schedule_that_ends_before_its_fire_is_advised_when_it_is_held_and_when_it_is_gone(
    start_server: StartServer,
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        heard = HeardAdvisories(account.connection)
        await account.create("S", max_age=2 * SECOND)
        await running.ready("S")
        headers = {"Nats-Schedule": f"@at {in_seconds(3600)}", "Nats-Schedule-Target": "S.out"}
        sequence = await account.publish("S.s", headers)
        early, lost = await heard.first("schedule_ends_early"), await heard.first("schedule_lost")
        assert (early["schedule"], early["seq"]) == (lost["schedule"], lost["seq"]) == ("S.s", sequence)
        assert early["ends"] < early["due"] == lost["due"]


async def test_a_refused_fire_is_advised(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    info = await served.account.api.stream(served.name)
    await served.schedule("s", f"@at {in_seconds(1.0)}", b"x" * 800)
    await served.account.api.update_stream({**info["config"], "max_msg_size": 500})
    advisory = await heard.first("fire_refused")
    assert (advisory["schedule"], advisory["target"], advisory["code"]) == (
        served.subject("s"),
        served.subject("out"),
        10054,
    )


async def test_a_fire_that_a_schedule_never_got_is_advised(served: Served) -> None:
    """Its fires are refused until it is purged."""
    heard = HeardAdvisories(served.account.connection, served.name)
    info = await served.account.api.stream(served.name)
    sequence = await served.schedule("s", f"@at {in_seconds(1.0)}", b"x" * 800)
    await served.account.api.update_stream({**info["config"], "max_msg_size": 500})
    refused = await heard.first("fire_refused")
    await served.account.api.call(f"STREAM.PURGE.{served.name}", {"filter": served.subject("s")})
    dropped = await heard.first("fires_dropped")
    assert (dropped["seq"], dropped["since"], dropped["code"]) == (sequence, refused["due"], 10054)


async def test_a_fire_that_a_policy_drops_is_advised(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    sequence = await served.schedule("s", "@at 2020-01-01T00:00:00Z", more={"X-Missed": "skip"})
    skipped = await heard.first("fires_skipped")
    assert (skipped["schedule"], skipped["seq"]) == (served.subject("s"), sequence)
    assert (skipped["since"], skipped["dropped"]) == ("2020-01-01T00:00:00Z", 1)
    assert skipped["policy"] == "X-Missed: skip"


async def test_fires_that_were_missed_and_late_are_advised(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        heard = HeardAdvisories(account.connection)
        async with sidecar_on(server.url) as running:
            await account.create("S")
            await running.ready("S")
        started = CLOCK.now()
        every = await account.publish("S.every", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.ticks"})
        headers = {"Nats-Schedule": f"@at {in_seconds(1.0)}", "Nats-Schedule-Target": "S.out"}
        await account.publish("S.at", headers)
        await eventually(lambda: CLOCK.now() > started + 4 * SECOND, within_seconds=WAIT_SECONDS)
        async with sidecar_on(server.url, late_after=2 * SECOND) as running:
            await running.ready("S")
            missed, late = await heard.first("fires_missed"), await heard.first("fire_late")
            assert (missed["schedule"], missed["seq"]) == ("S.every", every)
            assert missed["since"] < missed["make_up_fire"]
            [stored] = await account.messages("S", "S.out")
            assert (late["schedule"], late["stored_as"]) == ("S.at", stored.sequence)
            assert late["due"] < late["stored"]
            past = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "S.past.out"}
            await account.publish("S.past", past)
            await account.wait_for("S", "S.past.out")
            await account.publish("S.canary", {"Nats-Schedule": "@every soon", "Nats-Schedule-Target": "S.out"})
            await heard.first("schedule_rejected")
        assert {body["schedule"] for kind, body in heard.bodies if kind == "fire_late"} == {"S.at"}


async def test_a_purge_that_the_server_refuses_is_advised_and_kept(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        heard = HeardAdvisories(account.connection)
        info = await account.create("S")
        await running.ready("S")
        await account.api.update_stream({**info["config"], "deny_purge": True})
        headers = {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.out"}
        sequence = await account.publish("S.s", headers)
        advisory = await heard.first("purge_failed")
        assert (advisory["stream"], advisory["schedule"], advisory["seq"]) == ("S", "S.s", sequence)
        assert "not permitted" in advisory["reason"]
        await account.wait_for("nats_scheduler_failures", "nats_scheduler.advisory.purge_failed.S.S.s")


async def test_an_expiry_that_the_server_refuses_is_advised_and_kept(start_server: StartServer) -> None:
    server = await start_server(V2_10)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        heard = HeardAdvisories(account.connection)
        await account.create("S", deny_delete=True, allow_msg_ttl=True)
        await running.ready("S")
        headers = {"Nats-Schedule": f"@at {in_seconds(3600)}", "Nats-Schedule-Target": "S.out", "Nats-TTL": "1s"}
        sequence = await account.publish("S.s", headers)
        advisory = await heard.first("expiry_failed")
        assert (advisory["stream"], advisory["seq"]) == ("S", sequence)
        assert "not permitted" in advisory["reason"]
        await account.wait_for("nats_scheduler_failures", "nats_scheduler.advisory.expiry_failed.S")


async def test_a_forged_fire_is_advised(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    sequence = await served.schedule("s", f"@at {in_seconds(3600)}")
    schedule = served.subject("s")
    identity = fire_identity(schedule, sequence, CLOCK.now() + 7200 * SECOND)
    stamps = {"Nats-Msg-Id": identity, "Nats-Scheduler": schedule, "Nats-Schedule-Next": "9999-01-01T00:00:00Z"}
    forged = await served.publish("out", stamps)
    advisory = await heard.first("fire_forged")
    assert (advisory["schedule"], advisory["stored_as"]) == (schedule, forged)


async def test_a_refused_stream_is_advised(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    info = await served.account.api.stream(served.name)
    await served.account.api.update_stream({**info["config"], "allow_msg_schedules": True, "discard": "new"})
    advisory = await heard.first("stream_refused")
    assert (advisory["stream"], advisory["code"]) == (served.name, 10052)


async def test_a_value_that_is_not_believed_is_advised(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        heard = HeardAdvisories(account.connection)
        async with sidecar_on(server.url) as first:
            await account.create("S")
            await first.ready("S")
        key = "checkpoint.S.emulated"
        await account.publish(f"$KV.nats_scheduler.{key}", body=b"no JSON")
        async with sidecar_on(server.url):
            advisory = await heard.first("registry_value_ignored")
    assert (advisory["stream"], advisory["key"]) == ("KV_nats_scheduler", key)


async def test_an_instance_that_may_not_fire_is_advised(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=USERS)
    async with (
        account_on(server.url.replace("//", "//operator:operator@")) as account,
        sidecar_on(server.url.replace("//", "//sidecar:sidecar@")) as running,
    ):
        heard = HeardAdvisories(account.connection)
        await account.create("S")
        await running.ready("S")
        await account.publish("S.s", {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.denied"})
        assert (await heard.first("fire_refused"))["code"] == 403
        assert "S.denied" in (await heard.first("cannot_serve"))["reason"]
