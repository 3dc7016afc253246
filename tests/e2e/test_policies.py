"""Policies on real servers: what a sidecar does with them, and what a server that fires itself does."""

from nats_scheduler.engine.events import ScheduleRejected
from nats_scheduler.message.timetable import delay_of
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.e2e.conftest import Served
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FlaggedStream
from tests.harness.waiting import eventually


def due_of(block: bytes) -> int:
    """The fire time in the identity of a fire."""
    identity = block.split(b"nats-scheduler:")[1]
    return int(identity.split(b":")[1])


async def gone(stream: FlaggedStream, rest: str) -> None:
    async def nothing() -> bool:
        return not await stream.messages(rest)

    await eventually(nothing, within_seconds=30, describe=f"{rest} is purged")


async def test_a_limited_schedule_ends_with_its_last_fire_time_and_is_removed(served: Served) -> None:
    """A machine that is paused may miss fires; the limit counts their times all the same."""
    sequence = await served.schedule("s", "@every 1s", b"body", more={"X-Limit": "3", "X-Note": "from a test"})
    found = await served.messages("s")
    await gone(served, "s")
    fires = await served.wait_for("out")
    dues = [due_of(one.block) for one in fires]
    for stored in found:  # none if the machine was paused
        assert dues[-1] == (stored.stored_at + SECOND // 2) // SECOND * SECOND + 3 * SECOND
    assert set(dues) <= {dues[-1] - step * SECOND for step in range(3)}
    assert len(dues) == len(set(dues))
    assert b"Nats-Schedule-Next: purge\r\n" in fires[-1].block
    assert all(b"nats-scheduler:%d:" % sequence in one.block for one in fires)
    assert not any(b"X-Limit" in one.block or b"X-Note" in one.block for one in fires)


async def test_an_interval_with_an_anchor_and_an_end_fires_on_its_own_grid_until_then(served: Served) -> None:
    now = CLOCK.now() // SECOND * SECOND
    anchor, end = now + 2 * SECOND, now + 8 * SECOND + SECOND // 2
    more = {"X-Anchor": format_rfc3339(anchor), "X-End": format_rfc3339(end)}
    await served.schedule("s", "@every 3s", more=more)
    await gone(served, "s")
    fires = await served.wait_for("out", 3)
    late = {due_of(one.block) for one in fires}
    assert late <= {anchor, anchor + 3 * SECOND, anchor + 6 * SECOND}
    assert max(late) == anchor + 6 * SECOND


async def test_a_jittered_fire_is_stored_after_its_send_time(served: Served) -> None:
    sequence = await served.schedule("s", "@every 2s", more={"X-Jitter": "1500ms", "X-Limit": "3"})
    await gone(served, "s")
    fires = await served.wait_for("out")
    for fire in fires:
        due = due_of(fire.block)
        assert fire.stored_at >= due + delay_of(f"{served.name}.s", sequence, due, 3 * SECOND // 2)


async def test_an_unknown_policy_rejects_the_schedule_and_the_reason_names_it(served: Served) -> None:
    await served.schedule("s", "@every 1s", more={"X-Stat": "2026-01-01T00:00:00Z"})
    await eventually(
        lambda: bool(served.sidecar.of(served.name, ScheduleRejected)), within_seconds=30, describe="it is rejected"
    )
    (event,) = served.sidecar.of(served.name, ScheduleRejected)
    assert event.rejection.code == 0
    assert "X-Start may be meant" in str(event.rejection)
    assert await served.messages("out") == []


async def test_a_syntax_beside_the_headers_of_adr51_rejects_the_schedule(served: Served) -> None:
    await served.schedule("s", "* * * ? * *", more={"X-Syntax": "quartz"})
    await eventually(
        lambda: bool(served.sidecar.of(served.name, ScheduleRejected)), within_seconds=30, describe="it is rejected"
    )
    (event,) = served.sidecar.of(served.name, ScheduleRejected)
    assert "X-Nats-Schedule-X-Syntax" in str(event.rejection)
    assert await served.messages("out") == []


async def test_a_portable_pattern_fires_in_the_syntax_that_it_names(
    native_server: EmbeddedServer, stream_name: str
) -> None:
    """The pattern is one that no server reads, and matches each second."""
    async with sidecar_on(native_server.url) as running, account_on(native_server.url) as account:
        await account.create(stream_name, allow_msg_schedules=True)
        await running.ready(stream_name)
        stream = FlaggedStream(account, stream_name)
        more = {"X-Syntax": "quartz", "X-Limit": "3"}
        headers = {f"X-{name}": value for name, value in stream.headers("* * * 1-30,L * ? *", more=more).items()}
        await stream.publish("s", headers)
        await gone(stream, "s")
        fires = await stream.wait_for("out")
        assert 1 <= len(fires) <= 3
        assert b"X-Nats-Schedule-Next: purge\r\n" in fires[-1].block
        assert not any(b"X-Syntax" in one.block for one in fires)
        await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_a_server_that_fires_by_itself_keeps_policies_to_itself_and_ignores_them(
    native_server: EmbeddedServer, stream_name: str
) -> None:
    """The schedule goes on, without its policies, as the docs say of graduation."""
    async with account_on(native_server.url) as account:
        await account.create(stream_name, allow_msg_schedules=True)
        stream = FlaggedStream(account, stream_name)
        await stream.schedule("s", f"@at {in_seconds(0.5)}", more={"X-End": "2020-01-01T00:00:00Z", "X-Unknown": "1"})
        (fire,) = await stream.wait_for("out")
        assert b"Nats-Schedule-Next: purge\r\n" in fire.block
        assert b"X-End" not in fire.block
        assert b"X-Unknown" not in fire.block
        await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_the_portable_spelling_has_its_policies_beside_a_server_that_fires_by_itself(
    native_server: EmbeddedServer, stream_name: str
) -> None:
    async with sidecar_on(native_server.url) as running, account_on(native_server.url) as account:
        await account.create(stream_name, allow_msg_schedules=True)
        await running.ready(stream_name)
        stream = FlaggedStream(account, stream_name)
        headers = {f"X-{name}": value for name, value in stream.headers("@every 1s", more={"X-Limit": "2"}).items()}
        await stream.publish("s", headers)
        await gone(stream, "s")
        fires = await stream.wait_for("out")
        assert 1 <= len(fires) <= 2
        assert b"X-Nats-Schedule-Next: purge\r\n" in fires[-1].block
        await account.api.call(f"STREAM.DELETE.{stream_name}")
