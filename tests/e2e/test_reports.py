"""What is wrong is reported once, and each advisory is published on its own subject, with the body of the schema.

`instance_not_firing` is published in `test_instances`, `expiry_failed` in `test_expiry`, and those of policies in
`test_policies`.
"""

from nats_scheduler.engine.events import FireRefused, ScheduleRejected
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FlaggedStream, Served, at, served_on
from tests.harness.leads import in_time
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

NEVER = "@at 2200-01-01T00:00:00Z"
LARGE = b"x" * 800


async def test_an_invalid_schedule_is_kept_and_reported_once(served: Served) -> None:
    heard = await HeardAdvisories.of(served.account.connection, served.name)
    sequence = await served.schedule("s", "@every soon")
    await served.canary(0.5)
    assert [event.schedule for event in served.of(ScheduleRejected)] == [served.subject("s")]
    advisory = await heard.first("schedule_rejected")
    assert advisory == {
        "type": "io.nats_scheduler.advisory.v1.schedule_rejected",
        "stream": served.name,
        "schedule": served.subject("s"),
        "seq": sequence,
        "code": 10189,
        "description": "message schedules pattern is invalid",
        "header": "Nats-Schedule",
        "value": "@every soon",
        "reason": advisory["reason"],
    }
    assert "@every 5m" in str(advisory["reason"])
    assert len(heard.bodies) == 1
    assert served.sidecar.metrics.value("schedules_rejected", stream=served.name, code="10189") == 1
    assert [message.sequence for message in await served.messages("s")] == [sequence]
    assert await served.messages("out") == []
    sequence = await served.publish("misnamed", {"Nats-Schedul": "@daily"})
    advisory = await heard.first("header_misnamed")
    assert (advisory["header"], advisory["seq"]) == ("Nats-Schedul", sequence)


async def test_refused_fires_are_stored_once_the_stream_takes_them(served: Served) -> None:
    heard = await HeardAdvisories.of(served.account.connection, served.name)
    config = (await served.account.api.stream(served.name))["config"]

    async def store_and_limit(due: int) -> int:
        await served.account.api.update_stream(config)
        await served.call("STREAM.PURGE")
        for number in range(20):
            await served.schedule(f"s.{number}", at(due), b"%d" % number + LARGE, f"out.{due}")
        dropped = await served.schedule("dropped", at(due), LARGE, target="dropped.out")
        await served.account.api.update_stream({**config, "max_msg_size": 500})
        return dropped

    due, dropped = await in_time(store_and_limit, 2.0)
    first = (await served.messages("s.*"))[0].sequence

    def refusals() -> list[FireRefused]:
        return [event for event in served.of(FireRefused) if event.fire.sequence >= first]

    await eventually(lambda: len(refusals()) == 21, describe="all are refused")
    assert {event.code for event in refusals()} == {10054}
    assert served.sidecar.gauge("schedules_failing", stream=served.name) == 21
    advisory = await heard.first("fire_refused")
    assert (advisory["stream"], advisory["code"]) == (served.name, 10054)
    await served.call("STREAM.PURGE", {"filter": served.subject("dropped")})
    await heard.first("fires_dropped")
    advisory = [body for kind, body in heard.bodies if kind == "fires_dropped"][-1]
    assert (advisory["seq"], advisory["schedule"], advisory["code"]) == (dropped, served.subject("dropped"), 10054)
    await served.account.api.update_stream(config)
    fired = await served.wait_for(f"out.{due}", 20)
    assert sorted(message.body or b"" for message in fired) == sorted(b"%d" % n + LARGE for n in range(20))
    assert len(refusals()) == 21, "each was told once"


async def test_forged_and_skipped_fires_and_refused_streams_are_advised(served: Served) -> None:
    heard = await HeardAdvisories.of(served.account.connection, served.name)
    sequence = await served.schedule("skip", "@at 2020-01-01T00:00:00Z", more={"X-Missed": "skip"})
    skipped = await heard.first("fires_skipped")
    assert {key: skipped[key] for key in ("schedule", "seq", "since", "dropped", "policy")} == {
        "schedule": served.subject("skip"),
        "seq": sequence,
        "since": "2020-01-01T00:00:00Z",
        "dropped": 1,
        "policy": "X-Missed: skip",
    }
    await served.gone("skip")
    assert await served.messages("out") == []
    schedule, sequence = served.subject("s"), await served.schedule("s", f"@at {in_seconds(3600)}")
    identity = fire_identity(schedule, sequence, CLOCK.now() + 7200 * SECOND)
    stamps = {"Nats-Msg-Id": identity, "Nats-Scheduler": schedule, "Nats-Schedule-Next": "9999-01-01T00:00:00Z"}
    stored_as = await served.publish("out", stamps)
    forged = await heard.first("fire_forged")
    assert (forged["schedule"], forged["stored_as"]) == (schedule, stored_as)
    config = (await served.account.api.stream(served.name))["config"]
    await served.account.api.update_stream({**config, "allow_msg_schedules": True, "discard": "new"})
    refused = await heard.first("stream_refused")
    assert (refused["stream"], refused["code"]) == (served.name, 10052)


async def test_what_an_outage_or_a_limit_does_is_advised_and_kept(start_server: StartServer) -> None:
    """Fires that were missed, and late; a schedule that ends before its fire; a purge that the server refuses."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        heard, stream = await HeardAdvisories.of(account.connection), FlaggedStream(account, "S")
        aged, denied = FlaggedStream(account, "AGED"), FlaggedStream(account, "DENIED")
        async with sidecar_on(server.url) as running:
            await account.create("S")
            await account.create("AGED", max_age=2 * SECOND)
            info = await account.create("DENIED")
            for name in ("S", "AGED", "DENIED"):
                await running.ready(name)
            sequence = await aged.schedule("s", NEVER)
            early, lost = await heard.first("schedule_ends_early"), await heard.first("schedule_lost")
            assert (early["schedule"], early["seq"]) == (lost["schedule"], lost["seq"]) == ("AGED.s", sequence)
            assert early["ends"] < early["due"] == lost["due"]
            await account.api.update_stream({**info["config"], "deny_purge": True})
            sequence = await denied.schedule("s", f"@at {in_seconds(0.2)}")
            failed = await heard.first("purge_failed")
            assert (failed["stream"], failed["schedule"], failed["seq"]) == ("DENIED", "DENIED.s", sequence)
            assert "not permitted" in failed["reason"]
            await account.wait_for("nats_scheduler_failures", "nats_scheduler.advisory.purge_failed.DENIED.DENIED.s")
        started = CLOCK.now()
        every = await stream.schedule("every", "@every 1s", target="ticks")
        await stream.schedule("at", f"@at {in_seconds(1.0)}")
        await account.publish("$KV.nats_scheduler.checkpoint.AGED.emulated", body=b"no JSON")
        await eventually(lambda: CLOCK.now() > started + 4 * SECOND)
        async with served_on(server.url, late_after=2 * SECOND) as served:
            missed, late = await heard.first("fires_missed"), await heard.first("fire_late")
            assert (missed["schedule"], missed["seq"]) == ("S.every", every)
            assert missed["since"] < missed["make_up_fire"]
            [stored] = await served.messages("out")
            assert (late["schedule"], late["stored_as"]) == ("S.at", stored.sequence)
            assert late["due"] < late["stored"]
            ignored = await heard.first("registry_value_ignored")
            assert (ignored["stream"], ignored["key"]) == ("KV_nats_scheduler", "checkpoint.AGED.emulated")
