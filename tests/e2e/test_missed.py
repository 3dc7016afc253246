"""Missed fires on real servers: what a sidecar makes up after an outage, by each policy, and what its fires report."""

import pytest

from nats_scheduler.engine.events import Ending, FiresMissed, ScheduleEnded
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.e2e.conftest import Served
from tests.e2e.test_policies import due_of, gone
from tests.harness.account import CLOCK, Account, in_seconds, sidecar_on
from tests.harness.flagged import FlaggedStream
from tests.harness.waiting import eventually

OUTAGE_SECONDS = 4
WAIT_SECONDS = 60


def reported(block: bytes, name: str) -> bytes | None:
    """Return what a fire says of itself."""
    begin = block.find(b"\r\nX-Nats-Schedule-X-%b: " % name.encode())
    return None if begin < 0 else block[begin + 2 :].split(b": ", 1)[1].split(b"\r\n", 1)[0]


def instant_of(value: bytes | None) -> int:
    """Return the instant (ns) that a report names."""
    assert value is not None
    found = parse_rfc3339(value.decode())
    assert isinstance(found, int)
    return found


async def pass_outage() -> int:
    """Wait without a sidecar; returns when (ns) the next one is started at the earliest."""
    until = CLOCK.now() + OUTAGE_SECONDS * SECOND
    await eventually(lambda: CLOCK.now() > until, within_seconds=WAIT_SECONDS)
    return CLOCK.now()


async def fired_after(stream: FlaggedStream, instant: int) -> list[tuple[int, bytes]]:
    """Wait for a fire of a later time; returns the fire times and header blocks of all, in the order of storage."""

    async def has_fired() -> bool:
        return any(due_of(one.block) > instant for one in await stream.messages("out"))

    await eventually(has_fired, within_seconds=WAIT_SECONDS)
    return [(due_of(one.block), one.block) for one in await stream.messages("out")]


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_each_fire_of_an_outage_is_made_up_in_order(
    emulated_server: EmbeddedServer, account: Account, stream_name: str, retention: str
) -> None:
    stream = FlaggedStream(account, stream_name)
    async with sidecar_on(emulated_server.url) as first:
        await account.create(stream_name, retention=retention)
        await first.ready(stream_name)
        await stream.schedule("s", "@every 1s", more={"X-Missed": "all"})
        await stream.wait_for("out")
    stopped_at = CLOCK.now()
    started_at = await pass_outage()
    async with sidecar_on(emulated_server.url) as second:
        await second.ready(stream_name)
        dues = [due for due, _block in await fired_after(stream, started_at)]
    assert dues == list(range(dues[0], dues[-1] + SECOND, SECOND))
    assert dues[0] < stopped_at < started_at < dues[-1]
    assert not second.of(stream_name, FiresMissed)
    await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_a_number_bounds_what_is_made_up_and_a_skipped_fire_is_reported(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    """Each fire names the one before it and counts what was dropped between them: together they miss nothing."""
    stream = FlaggedStream(account, stream_name)
    more = {"X-Grace": "1s", "X-Report": "true"}
    async with sidecar_on(emulated_server.url) as first:
        await account.create(stream_name)
        await first.ready(stream_name)
        await stream.schedule("bounded", "@every 1s", more={"X-Missed": "all 2", **more})
        await stream.schedule("skipped", "@every 1s", more={"X-Missed": "skip", **more}, target="other")
        await stream.wait_for("out")
        await stream.wait_for("other")
    stopped_at = CLOCK.now()
    started_at = await pass_outage()
    async with sidecar_on(emulated_server.url) as second:
        await second.ready(stream_name)
        fires = await fired_after(stream, started_at)
        await eventually(lambda: len(second.of(stream_name, FiresMissed)) >= 2, within_seconds=WAIT_SECONDS)
    for index, (due, block) in enumerate(fires):
        assert instant_of(reported(block, "Due")) == due
        previous = reported(block, "Previous")
        assert (previous is None) == (index == 0)
        if previous is not None:
            assert instant_of(previous) == fires[index - 1][0]
            assert int(reported(block, "Missed") or b"-1") == (due - fires[index - 1][0]) // SECOND - 1
    skipped = [due_of(one.block) for one in await stream.messages("other")]
    assert not [due for due in skipped if stopped_at < due < started_at - SECOND]
    policies = {event.schedule: event.policy for event in second.of(stream_name, FiresMissed)}
    assert policies == {f"{stream_name}.bounded": "X-Missed: all 2", f"{stream_name}.skipped": "X-Missed: skip"}
    await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_an_at_that_is_missed_is_removed_without_a_fire(served: Served) -> None:
    await served.schedule("s", f"@at {in_seconds(-60)}", more={"X-Missed": "skip"})
    await gone(served, "s")
    assert await served.messages("out") == []
    await eventually(
        lambda: [event.ending for event in served.sidecar.of(served.name, ScheduleEnded)] == [Ending.MISSED_ITS_TIME],
        within_seconds=WAIT_SECONDS,
    )
    (event,) = served.sidecar.of(served.name, FiresMissed)
    assert (event.dropped, event.made_up) == (1, None)
