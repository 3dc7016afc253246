"""Fires, their times and their bytes, on real servers that have no schedules of their own."""

import pytest

from nats_scheduler.engine.events import ScheduleAccepted, ScheduleEnded, ScheduleRejected
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.e2e.conftest import Served
from tests.harness.account import CLOCK, in_seconds
from tests.harness.waiting import eventually


def lines_of(message: StoredMessage) -> list[str]:
    return message.block.decode().split("\r\n")[1:-2]


def without_ours(message: StoredMessage) -> list[str]:
    """Return the header lines but for our identity and guard, which come last."""
    ours = ("Nats-Msg-Id:", "Nats-Expected-")
    return [line for line in lines_of(message) if not line.startswith(ours)]


async def gone(served: Served, rest: str) -> None:
    async def nothing() -> bool:
        return not await served.messages(rest)

    await eventually(nothing, within_seconds=30, describe=f"{rest} is purged")


async def test_a_delayed_message_fires_once_at_its_time_and_its_schedule_is_purged(served: Served) -> None:
    due = CLOCK.now() + SECOND
    sequence = await served.schedule("s", f"@at {format_rfc3339(due)}", b"\x00\xffbody")
    [fired] = await served.wait_for("out")
    assert fired.body == b"\x00\xffbody"
    assert 0 <= fired.stored_at - due < SECOND
    assert without_ours(fired) == [f"Nats-Scheduler: {served.subject('s')}", "Nats-Schedule-Next: purge"]
    assert f"Nats-Msg-Id: nats-scheduler:{sequence}:{due}:{served.subject('s')}" in lines_of(fired)
    await gone(served, "s")


async def test_an_interval_fires_on_its_grid_and_says_when_next(served: Served) -> None:
    await served.schedule("s", "@every 1s")
    fired = await served.wait_for("out", 3)
    for message in fired[:3]:
        next_line = without_ours(message)[-1]
        due = message.stored_at // SECOND * SECOND
        assert next_line == f"Nats-Schedule-Next: {format_rfc3339(due + SECOND)}"
    assert len({message.stored_at // SECOND for message in fired}) == len(fired)


async def test_a_cron_schedule_in_a_zone_fires_and_names_its_next_time_in_that_zone(served: Served) -> None:
    await served.schedule("s", "* * * * * *", more={"Time-Zone": "Asia/Kolkata"})
    fired = await served.wait_for("out", 2)
    assert all(without_ours(message)[-1].endswith("+05:30") for message in fired)


async def test_every_alias_is_taken_and_waits_for_its_time(served: Served) -> None:
    for alias in ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"):
        await served.schedule(f"s.{alias[1:]}", alias)
    await served.schedule("canary", f"@at {in_seconds(0.3)}", target="canary.out")
    await served.wait_for("canary.out")
    assert not served.sidecar.of(served.name, ScheduleRejected)

    def held() -> int:
        accepted, ended = (served.sidecar.of(served.name, kind) for kind in (ScheduleAccepted, ScheduleEnded))
        return len(accepted) - len(ended)

    await eventually(lambda: held() == 7, within_seconds=30, describe="the aliases alone are held")


async def test_a_sample_is_the_last_message_of_the_source_and_falls_back_to_the_schedule_itself(served: Served) -> None:
    await served.publish("sensor", {"Unit": "C"}, b"19")
    await served.publish("sensor", {"Unit": "C"}, b"20")
    at = in_seconds(0.4)
    await served.schedule("s.full", f"@at {at}", b"unused", "out.full", more={"Source": served.subject("sensor")})
    await served.schedule("s.empty", f"@at {at}", b"own", "out.empty", more={"Source": served.subject("nothing")})
    [full] = await served.wait_for("out.full")
    [empty] = await served.wait_for("out.empty")
    assert (full.body, without_ours(full)[0]) == (b"20", "Unit: C")
    assert (empty.body, without_ours(empty)[0]) == (b"own", f"Nats-Scheduler: {served.subject('s.empty')}")


async def test_a_sample_is_the_value_before_one_that_was_deleted(served: Served) -> None:
    await served.publish("sensor", body=b"19")
    wrong = await served.publish("sensor", body=b"wrong")
    await served.call("STREAM.MSG.DELETE", {"seq": wrong, "no_erase": True})
    await served.schedule("s", f"@at {in_seconds(0.4)}", b"own", more={"Source": served.subject("sensor")})
    [fired] = await served.wait_for("out")
    assert fired.body == b"19"


async def test_further_headers_reach_the_target_byte_for_byte(served: Served) -> None:
    lines = [
        "X:  two spaces",
        "x: lower",
        "X: again",
        "Über: ñ",
        "Trailing: blank ",
        "No-Space:value",
        "nats-schedule: no",
    ]
    kept = "".join(f"{line}\r\n" for line in lines)
    schedule = f"Nats-Schedule: @at {in_seconds(0.2)}\r\nNats-Schedule-Target: {served.subject('out')}\r\n"
    stripped = "Nats-Schedule-Custom: gone\r\n"
    await served.publish("s", kept + schedule + stripped)
    [fired] = await served.wait_for("out")
    expected = kept + f"Nats-Scheduler: {served.subject('s')}\r\nNats-Schedule-Next: purge\r\n"
    assert fired.block.startswith(f"NATS/1.0\r\n{expected}".encode())


async def test_a_rollup_leaves_only_the_last_generated_message(served: Served) -> None:
    await served.publish("out", body=b"old")
    await served.schedule("s", f"@at {in_seconds(0.2)}", b"new", more={"Rollup": "sub"})

    async def rolled_up() -> bool:
        return [message.body for message in await served.messages("out")] == [b"new"]

    await eventually(rolled_up, within_seconds=30)


async def test_a_time_to_live_is_stamped_on_the_generated_message(served: Served) -> None:
    await served.schedule("s", f"@at {in_seconds(0.2)}", more={"TTL": "1h30m"})
    [fired] = await served.wait_for("out")
    assert without_ours(fired)[-1] == "Nats-TTL: 1h30m"


async def test_a_schedule_in_the_past_fires_at_once(served: Served) -> None:
    await served.schedule("s", "@at 2009-11-10T23:00:00Z")
    [fired] = await served.wait_for("out")
    assert "Nats-Schedule-Next: purge" in lines_of(fired)


async def test_a_schedule_due_a_few_milliseconds_after_it_was_published_fires(served: Served) -> None:
    for number in range(50):
        await served.schedule(f"s.{number}", f"@at {in_seconds(0.003)}")
    fired = await served.wait_for("out", 50)
    assert len(fired) == 50


async def test_a_body_of_a_megabyte_less_the_headers_fires_unchanged(served: Served) -> None:
    body = bytes(range(256)) * 4000
    await served.schedule("s", f"@at {in_seconds(0.3)}", body)
    [fired] = await served.wait_for("out")
    assert fired.body == body


async def test_portable_headers_fire_beside_those_of_the_adr(served: Served) -> None:
    at = in_seconds(0.3)
    headers = {"X-Nats-Schedule": f"@at {at}", "X-Nats-Schedule-Target": served.subject("out"), "Mine": "1"}
    await served.publish("s", headers, b"portable")
    [fired] = await served.wait_for("out")
    assert fired.body == b"portable"
    assert without_ours(fired) == ["Mine: 1", f"X-Nats-Scheduler: {served.subject('s')}", "X-Nats-Schedule-Next: purge"]


@pytest.mark.parametrize("count", [2_000])
async def test_a_herd_due_at_one_instant_fires_completely_and_once(served: Served, count: int) -> None:
    at = in_seconds(3)
    for number in range(count):
        await served.schedule(f"s.{number}", f"@at {at}", str(number).encode())
    fired = await served.wait_for("out", count)
    assert sorted(int(message.body or b"-1") for message in fired) == list(range(count))
