"""Forgeries of a publisher of the stream keep no fire away, on real servers and across restarts."""

import itertools

import pytest

from nats_scheduler.engine.events import FireForged
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND, round_to_second
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.account import CLOCK, WAIT_SECONDS, Account, Running, sidecar_on
from tests.harness.flagged import FlaggedStream
from tests.harness.waiting import eventually

YEAR_9000 = 221_845_392_000 * SECOND
GENUINE = b"genuine"

retentions = pytest.mark.parametrize("retention", ["limits", "workqueue"])


class Scene:
    """A stream, one schedule on it, and what a stranger writes beside it."""

    def __init__(self, account: Account, name: str) -> None:
        self.stream = FlaggedStream(account, name)
        self.sequence = 0
        self.stored_at = 0

    async def begin(self, pattern: str) -> None:
        """Store the schedule."""
        self.sequence = await self.stream.schedule("s", pattern, GENUINE)
        message = await self.stream.account.api.message(self.stream.name, seq=self.sequence)
        assert message is not None
        self.stored_at = message.stored_at

    async def forge(self, fire_time: int, on: str = "elsewhere", following: str = "", *, stamped: bool = True) -> None:
        """Store a message that claims to be a fire."""
        schedule = self.stream.subject("s")
        headers = {"Nats-Msg-Id": fire_identity(schedule, self.sequence, fire_time)}
        if stamped:
            headers |= {"Nats-Scheduler": schedule, "Nats-Schedule-Next": following or "9999-01-01T00:00:00Z"}
        await self.stream.publish(on, headers, b"forged")

    async def genuine(self) -> list[StoredMessage]:
        """Return the fires that are the sidecar's."""
        return [message for message in await self.stream.messages("out") if message.body == GENUINE]

    async def fired(self, count: int) -> list[StoredMessage]:
        """Wait for `count` fires."""

        async def enough() -> list[StoredMessage] | None:
            found = await self.genuine()
            return found if len(found) >= count else None

        found = await eventually(enough, within_seconds=WAIT_SECONDS, describe=f"{count} fires are stored")
        assert found is not None
        return found


def told(sidecar: Running, name: str) -> set[tuple[int, str]]:
    """Return the times and subjects of the forgeries that were reported."""
    return {(event.fire_time, event.subject) for event in sidecar.of(name, FireForged)}


@retentions
async def test_a_repeating_schedule_fires_each_second_whatever_is_forged(
    emulated_server: EmbeddedServer, account: Account, swept: str, retention: str
) -> None:
    scene = Scene(account, swept)
    async with sidecar_on(emulated_server.url) as first:
        await account.create(swept, retention=retention)
        await first.ready(swept)
        await scene.begin("@every 1s")
        await scene.forge(YEAR_9000)
        grid = [round_to_second(scene.stored_at) + number * SECOND for number in range(1, 30)]
        ahead = [instant for instant in grid if instant > CLOCK.now() + 6 * SECOND]
        for number, instant in enumerate(ahead):
            following = format_rfc3339(instant + SECOND)
            on = ("elsewhere", "out", f"elsewhere.{number}")[number % 3]
            await scene.forge(instant, on, following, stamped=number % 2 == 0)
        await scene.fired(10)
        assert {on for _time, on in told(first, swept)} >= {scene.stream.subject("out")}
    async with sidecar_on(emulated_server.url) as second:
        await second.ready(swept)
        before = len(await scene.genuine())
        found = await scene.fired(before + 3)
    seconds = [message.stored_at // SECOND for message in found]
    assert len(set(seconds)) == len(seconds)
    steps = [later - earlier for earlier, later in itertools.pairwise(seconds[:10])]
    assert steps == [1] * 9, "none is missing and none is doubled"


@retentions
async def test_a_delayed_message_fires_whatever_is_forged(
    emulated_server: EmbeddedServer, account: Account, swept: str, retention: str
) -> None:
    scene = Scene(account, swept)
    due = CLOCK.now() + 8 * SECOND
    async with sidecar_on(emulated_server.url) as first:
        await account.create(swept, retention=retention)
        await first.ready(swept)
        await scene.begin(f"@at {format_rfc3339(due)}")
        await scene.forge(YEAR_9000)
        await scene.forge(due, stamped=False)
    async with sidecar_on(emulated_server.url) as second:
        await second.ready(swept)
        [fired] = await scene.fired(1)
        assert 0 <= fired.stored_at - due < 5 * SECOND
        assert f"/{scene.sequence + 2}:{due}:".encode() in fired.block

        async def purged() -> bool:
            return not await scene.stream.messages("s")

        await eventually(purged, within_seconds=WAIT_SECONDS, describe="the schedule is purged")
        assert told(second, swept) == {(due, scene.stream.subject("elsewhere"))}
    async with sidecar_on(emulated_server.url) as third:
        await third.ready(swept)
        await scene.stream.canary(0.3)
        assert len(await scene.genuine()) == 1


async def test_an_identity_whose_message_was_consumed_before_its_time_is_known_by_what_was_stored_behind(
    emulated_server: EmbeddedServer, account: Account, swept: str
) -> None:
    scene = Scene(account, swept)
    due = CLOCK.now() + 8 * SECOND
    async with sidecar_on(emulated_server.url) as running:
        await account.create(swept, retention="workqueue")
        await running.ready(swept)
        await scene.begin(f"@at {format_rfc3339(due)}")
        await scene.forge(due, stamped=False)
        await scene.stream.call("STREAM.MSG.DELETE", {"seq": scene.sequence + 1})
        await scene.fired(1)
        assert told(running, swept) == {(due, "")}
