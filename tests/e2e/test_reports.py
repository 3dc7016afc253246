"""A fault of a publisher is reported once, with the header, the value, what was expected and the server's code."""

import json

from nats_scheduler.engine.events import FireRefused, FiresMissed, ScheduleRejected
from nats_scheduler.schedule.instants import SECOND
from tests.e2e.conftest import Served
from tests.harness.account import CLOCK, WAIT_SECONDS, in_seconds
from tests.harness.waiting import eventually


def told(served: Served) -> list[tuple[str, int]]:
    events = served.sidecar.of(served.name, ScheduleRejected)
    return [(event.schedule, event.rejection.code) for event in events]


async def test_an_invalid_schedule_stays_stored_never_fires_and_is_told_once(served: Served) -> None:
    advisories: list[dict[str, object]] = []
    subject = f"nats_scheduler.advisory.schedule_rejected.{served.name}.{served.subject('s')}"
    served.account.connection.subscribe(subject, lambda _s, _r, _h, body: advisories.append(json.loads(body)))
    sequence = await served.schedule("s", "@every soon")
    await served.schedule("canary", f"@at {in_seconds(0.5)}", target="canary.out")
    await served.wait_for("canary.out")
    assert told(served) == [(served.subject("s"), 10189)]
    [advisory] = advisories
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
    assert served.sidecar.metrics.value("schedules_rejected", stream=served.name, code="10189") == 1
    assert [message.sequence for message in await served.messages("s")] == [sequence]
    assert await served.messages("out") == []


async def test_each_kind_of_mistake_has_the_code_of_the_server(served: Served) -> None:
    at = in_seconds(3600)
    mistakes = {
        "pattern": ({"Nats-Schedule": "61 * * * * *"}, 10189),
        "zone": ({"Nats-Schedule": "@daily", "Nats-Schedule-Time-Zone": "Mars/Olympus"}, 10223),
        "ttl": ({"Nats-Schedule": f"@at {at}", "Nats-Schedule-TTL": "soon"}, 10191),
        "rollup": ({"Nats-Schedule": f"@at {at}", "Nats-Schedule-Rollup": "all"}, 10192),
        "source": ({"Nats-Schedule": f"@at {at}", "Nats-Schedule-Source": served.subject("*")}, 10203),
        "cancel": ({"Nats-Schedule-Next": "purge"}, 10212),
    }
    for name, (headers, _code) in mistakes.items():
        await served.publish(name, {"Nats-Schedule-Target": served.subject("out"), **headers})
    await served.publish("target", {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "elsewhere"})
    expected = {(served.subject(name), code) for name, (_headers, code) in mistakes.items()}
    expected.add((served.subject("target"), 10190))
    await eventually(lambda: set(told(served)) == expected, within_seconds=30, describe=lambda: str(told(served)))


async def test_a_fire_that_the_server_refuses_is_told_and_goes_out_when_the_reason_is_gone(served: Served) -> None:
    info = await served.account.api.stream(served.name)
    await served.schedule("s", f"@at {in_seconds(1.0)}", b"x" * 800)
    await served.account.api.update_stream({**info["config"], "max_msg_size": 500})
    await served.schedule("canary", f"@at {in_seconds(1.2)}", target="canary.out")
    await served.wait_for("canary.out")
    [refused] = served.sidecar.of(served.name, FireRefused)
    assert (refused.fire.schedule, refused.code) == (served.subject("s"), 10054)
    await served.account.api.update_stream(info["config"])
    assert [message.body for message in await served.wait_for("out")] == [b"x" * 800]
    assert not served.sidecar.of(served.name, FiresMissed)


REFUSED_SECONDS = 13.0
"""Longer than a back-off that doubles would take to be longer than *Live* allows."""


async def test_fires_resume_within_three_seconds_after_the_stream_takes_them_again(served: Served) -> None:
    config = (await served.account.api.stream(served.name))["config"]
    for number in range(20):
        await served.schedule(f"s.{number}", f"@at {in_seconds(2)}", b"%d" % number + b" " * 800)
    await served.schedule("repeats", "@every 2s", b" " * 800, target="repeated")
    await served.account.api.update_stream({**config, "max_msg_size": 500})
    sidecar = served.sidecar
    await eventually(lambda: len(sidecar.of(served.name, FireRefused)) == 21, within_seconds=WAIT_SECONDS)
    failing = sidecar.metrics.registry.get_sample_value("nats_scheduler_schedules_failing", {"stream": served.name})
    assert failing == 21
    heals_at = CLOCK.now() + int(REFUSED_SECONDS * SECOND)
    await eventually(lambda: CLOCK.now() > heals_at, within_seconds=WAIT_SECONDS)
    assert not sidecar.of(served.name, FiresMissed), "nothing was made up"
    since = CLOCK.now()
    await served.account.api.update_stream(config)
    fired = await served.wait_for("out", 20)
    assert len(fired) == 20
    assert max(message.stored_at for message in fired) - since < 3 * SECOND
    await served.wait_for("repeated")
    await eventually(lambda: sidecar.of(served.name, FiresMissed), within_seconds=WAIT_SECONDS)
