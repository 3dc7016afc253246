"""Forgeries of a publisher of the stream keep no fire away, on real servers and across restarts."""

from nats_scheduler.engine.events import FireForged, FiresMissed
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND, round_to_second
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.account import CLOCK, Account, Running, sidecar_on
from tests.harness.flagged import FlaggedStream, at, fire_time_of, left_out
from tests.harness.leads import in_time
from tests.harness.waiting import eventually

YEAR_9000 = 221_845_392_000 * SECOND
AHEAD_NS = 3 * SECOND
"""A forgery for a time that is no further away may be stored after the genuine fire."""


async def forge(
    stream: FlaggedStream, sequence: int, fire_time: int, on: str = "elsewhere", following: str = "", *, stamped: bool
) -> None:
    """Store a message that claims to be a fire of the schedule on `s`."""
    schedule = stream.subject("s")
    headers = {"Nats-Msg-Id": fire_identity(schedule, sequence, fire_time)}
    if stamped:
        headers |= {"Nats-Scheduler": schedule, "Nats-Schedule-Next": following or "9999-01-01T00:00:00Z"}
    await stream.publish(on, headers, b"forged")


def told(sidecar: Running, name: str) -> set[tuple[int, str]]:
    """Return the times and subjects of the forgeries that were reported."""
    return {(event.fire_time, event.subject) for event in sidecar.of(name, FireForged)}


async def test_a_repeating_schedule_fires_each_second_whatever_is_forged(
    emulated_server: EmbeddedServer, account: Account, swept: str
) -> None:
    stream = FlaggedStream(account, swept)
    async with sidecar_on(emulated_server.url) as first:
        await account.create(swept)
        await first.ready(swept)
        sequence = await stream.schedule("s", "@every 1s", b"genuine")
        await forge(stream, sequence, YEAR_9000, stamped=True)
        begin = round_to_second(CLOCK.now() + AHEAD_NS)
        for number in range(8):
            instant = begin + number * SECOND
            on = ("elsewhere", "out", f"elsewhere.{number}")[number % 3]
            await forge(stream, sequence, instant, on, format_rfc3339(instant + SECOND), stamped=number % 2 == 0)

        async def passed_them() -> bool:
            found = [one for one in await stream.messages("out") if one.body == b"genuine"]
            return bool(found) and fire_time_of(found[-1]) > begin + 4 * SECOND

        await eventually(passed_them, describe="it fires where something is forged")
        assert stream.subject("out") in {on for _time, on in told(first, swept)}
    async with sidecar_on(emulated_server.url) as second:
        await second.ready(swept)
        before = len(await stream.messages("out"))
        await stream.wait_for("out", before + 3)
        found = [message for message in await stream.messages("out") if message.body == b"genuine"]
        missed = [*first.of(swept, FiresMissed), *second.of(swept, FiresMissed)]
    assert left_out(found, missed) == set()


async def test_a_delayed_message_fires_whatever_is_forged(
    emulated_server: EmbeddedServer, account: Account, swept: str
) -> None:
    """By the sidecar that has seen the forgery, or by the next one."""
    stream = FlaggedStream(account, swept)

    async def forge_before(due: int) -> int:
        await stream.call("STREAM.PURGE")
        sequence = await stream.schedule("s", at(due), b"genuine", f"out.{due}")
        await forge(stream, sequence, YEAR_9000, stamped=True)
        await forge(stream, sequence, due, stamped=False)
        return sequence

    async with sidecar_on(emulated_server.url) as first:
        await account.create(swept, retention="workqueue")
        await first.ready(swept)
        due, sequence = await in_time(forge_before, 3.0)
    async with sidecar_on(emulated_server.url) as second:
        await second.ready(swept)
        [fired] = await stream.wait_for(f"out.{due}")
        assert fired.stored_at >= due
        assert f"/{sequence + 2}:{due}:".encode() in fired.block
        await stream.gone("s")
        assert (due, stream.subject("elsewhere")) in told(first, swept) | told(second, swept)
    async with sidecar_on(emulated_server.url) as third:
        await third.ready(swept)
        await stream.canary(0.3)
        assert len(await stream.messages(f"out.{due}")) == 1
