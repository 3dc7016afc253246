"""What is wrong is reported once, and each advisory is published on its own subject, with the body of the schema.

`instance_not_firing` is published in `test_instances`, `expiry_failed` in `test_expiry`, and those of policies in
`test_policies`.
"""

from nats_scheduler.engine.events import FireRefused, FiresMissed, ScheduleRejected
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FlaggedStream, Served, at, fire_time_of, served_on
from tests.harness.leads import in_time
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

NEVER = "@at 2200-01-01T00:00:00Z"
LARGE = b"x" * 800


def told(served: Served) -> set[tuple[str, int]]:
    return {(event.schedule, event.rejection.code) for event in served.of(ScheduleRejected)}


async def test_an_invalid_schedule_stays_stored_never_fires_and_is_told_once(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
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


async def test_each_kind_of_mistake_has_the_code_of_the_server(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    sequence = await served.publish("s", {"Nats-Schedul": "@daily"})
    advisory = await heard.first("header_misnamed")
    assert (advisory["header"], advisory["seq"], advisory["subject"]) == ("Nats-Schedul", sequence, served.subject("s"))
    mistakes = {
        "pattern": ({"Nats-Schedule": "61 * * * * *"}, 10189),
        "zone": ({"Nats-Schedule": "@daily", "Nats-Schedule-Time-Zone": "Mars/Olympus"}, 10223),
        "ttl": ({"Nats-Schedule": NEVER, "Nats-Schedule-TTL": "soon"}, 10191),
        "rollup": ({"Nats-Schedule": NEVER, "Nats-Schedule-Rollup": "all"}, 10192),
        "source": ({"Nats-Schedule": NEVER, "Nats-Schedule-Source": served.subject("*")}, 10203),
        "cancel": ({"Nats-Schedule-Next": "purge"}, 10212),
        "target": ({"Nats-Schedule": NEVER, "Nats-Schedule-Target": "elsewhere"}, 10190),
    }
    for name, (headers, _code) in mistakes.items():
        await served.publish(name, {"Nats-Schedule-Target": served.subject("out"), **headers})
    expected = {(served.subject(name), code) for name, (_headers, code) in mistakes.items()}
    await eventually(lambda: told(served) == expected, describe=lambda: str(told(served)))


REFUSED_SECONDS = 13.0
"""Longer than a back-off that doubles would take to be longer than *Live* allows."""


async def test_fires_resume_within_three_seconds_after_the_stream_takes_them_again(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    config = (await served.account.api.stream(served.name))["config"]

    async def store_and_limit(due: int) -> int:
        await served.account.api.update_stream(config)
        await served.call("STREAM.PURGE")
        for number in range(20):
            await served.schedule(f"s.{number}", at(due), b"%d" % number + LARGE, f"out.{due}")
        await served.schedule("repeats", "@every 2s", LARGE, target="repeated")
        await served.schedule("beat", "@every 1s", target="beats")
        dropped = await served.schedule("dropped", at(due), LARGE, target="dropped.out")
        await served.account.api.update_stream({**config, "max_msg_size": 500})
        return dropped

    due, dropped = await in_time(store_and_limit, 2.0)
    out = f"out.{due}"

    def refusals() -> list[FireRefused]:
        return [event for event in served.of(FireRefused) if event.fire.sequence >= first]

    first = (await served.messages("s.*"))[0].sequence
    await eventually(lambda: len(refusals()) == 22, describe="all are refused")
    refused = refusals()
    assert {event.code for event in refused} == {10054}
    assert served.sidecar.gauge("schedules_failing", stream=served.name) == 22
    advisory = await heard.first("fire_refused")
    assert (advisory["stream"], advisory["code"]) == (served.name, 10054)
    await served.call("STREAM.PURGE", {"filter": served.subject("dropped")})
    await heard.first("fires_dropped")
    advisory = [body for kind, body in heard.bodies if kind == "fires_dropped"][-1]
    assert (advisory["seq"], advisory["schedule"], advisory["code"]) == (dropped, served.subject("dropped"), 10054)
    heals_at = CLOCK.now() + int(REFUSED_SECONDS * SECOND)
    await eventually(lambda: CLOCK.now() > heals_at)
    assert [event.schedule for event in served.of(FiresMissed) if event.schedule != served.subject("beat")] == []
    since = CLOCK.now()
    await served.account.api.update_stream(config)
    fired = await served.wait_for(out, 20)
    assert sorted(message.body or b"" for message in fired) == sorted(b"%d" % n + LARGE for n in range(20))
    await served.wait_for("repeated")
    await eventually(
        lambda: any(event.schedule == served.subject("repeats") for event in served.of(FiresMissed)),
        describe="missed fires are made up",
    )
    slowness = max(beat.stored_at - fire_time_of(beat) for beat in await served.messages("beats"))
    assert max(message.stored_at for message in fired) - since < 3 * SECOND + slowness
    assert len(refusals()) == 22, "each was told once"


async def test_a_fire_that_is_forged_or_dropped_by_a_policy_and_a_stream_that_is_refused_are_advised(
    served: Served,
) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
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


async def test_what_an_outage_a_limit_or_a_stream_of_others_does_is_advised_and_kept(
    start_server: StartServer,
) -> None:
    """Fires that were missed, and late; a schedule that ends before its fire; a purge that the server refuses."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        heard, stream = HeardAdvisories(account.connection), FlaggedStream(account, "S")
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
            await served.schedule("past", "@at 2020-01-01T00:00:00Z", target="past.out")
            await served.wait_for("past.out")
            await served.schedule("canary", "@every soon")
            await heard.first("schedule_rejected")
        assert {body["schedule"] for kind, body in heard.bodies if kind == "fire_late"} == {"S.at"}
