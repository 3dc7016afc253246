"""Other headers of a publisher hide neither the identity of a fire nor its guard from the server."""

import json
from typing import Any

import pytest

from nats_scheduler.engine.events import FireStored
from nats_scheduler.engine.firing.building import assembled
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from tests.e2e.conftest import Served
from tests.harness.account import WAIT_SECONDS, Account, in_seconds
from tests.harness.blocks import block_to_send
from tests.harness.flagged import FlaggedStream
from tests.harness.waiting import eventually

IDENTITY = "Nats-Msg-Id"
GUARD = "Nats-Expected-Last-Subject-Sequence"
LOOK_ALIKES = [
    f"Orig-{IDENTITY}: x",
    f"A: {IDENTITY}",
    f"A: {IDENTITY}{IDENTITY}",
    f"A: {IDENTITY} {IDENTITY}",
    f"{IDENTITY}s: x",
    f"A: {IDENTITY}:",
    f"X-{GUARD}: 1",
    f"A: {GUARD}{GUARD}",
    f"A: {GUARD}-Subject{GUARD}-Subject",
    f"A: {GUARD}: 9",
]


def fire_block_of(schedule: StoredMessage, source: StoredMessage | None, *, guard: bool) -> bytes:
    """Return the block of a fire, as the engine builds it."""
    rules = StreamRules("ANY", (">",), allow_msg_ttl=True)
    reading = read_message(schedule.block, schedule.subject, schedule.stored_at, rules, (ADR51,))
    assert reading is not None
    assert isinstance(reading.definition, Definition)
    held = Held(schedule.subject, schedule.sequence, reading.definition, schedule.stored_at)
    return assembled(held, schedule, source, 1, None, guard=guard).block


class Stage:
    """A stream without a sidecar, a schedule with odd headers in it, and its fire."""

    def __init__(self, stream: FlaggedStream, *, guard: bool) -> None:
        self.stream = stream
        self.guard = guard
        self.fire = b""

    async def prepare(self, line: str, *, sampled: bool) -> None:
        """Store a schedule, or its source, with a further line among its headers."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.stream.headers("@every 1h").items())
        own = block_to_send(lines if sampled else f"{line}\r\n{lines}")
        sequence = await self.stream.account.publish_block(self.stream.subject("s"), own, b"")
        schedule = await self.stream.account.api.message(self.stream.name, seq=sequence)
        assert schedule is not None
        source = StoredMessage("any", 1, 1, block_to_send(f"{line}\r\n"), b"") if sampled else None
        self.fire = fire_block_of(schedule, source, guard=self.guard)

    async def send(self) -> Any:
        """Publish the fire, and return the server's answer."""
        answer = await self.stream.account.connection.request(self.stream.subject("out"), b"", self.fire)
        return json.loads(answer.body)


@pytest.fixture
async def stage(account: Account, swept: str) -> Stage:
    await account.create(swept, allow_msg_schedules=False)
    has_guard = ((await account.api.info()).get("api") or {}).get("level", 0) >= 1
    return Stage(FlaggedStream(account, swept), guard=has_guard)


@pytest.mark.parametrize("sampled", [False, True], ids=["own", "sampled"])
@pytest.mark.parametrize("line", LOOK_ALIKES)
async def test_a_fire_that_is_sent_twice_is_stored_once(stage: Stage, line: str, *, sampled: bool) -> None:
    await stage.prepare(line, sampled=sampled)
    first, second = await stage.send(), await stage.send()
    assert second == {**first, "duplicate": True}


@pytest.mark.parametrize("line", LOOK_ALIKES)
async def test_a_fire_whose_schedule_was_replaced_is_refused_where_the_server_can(stage: Stage, line: str) -> None:
    await stage.prepare(line, sampled=False)
    await stage.stream.publish("s")
    refused = (await stage.send()).get("error", {}).get("err_code")
    assert refused == (10071 if stage.guard else None)


async def test_a_schedule_with_a_look_alike_is_served_to_its_end(served: Served) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in served.headers(f"@at {in_seconds(0.4)}").items())
    odd = f"Orig-{IDENTITY}: x\r\nA: {GUARD}{GUARD}\r\n"
    await served.account.publish_block(served.subject("s"), block_to_send(odd + lines), b"body")
    [fired] = await served.wait_for("out")
    await eventually(lambda: served.sidecar.of(served.name, FireStored), within_seconds=WAIT_SECONDS, describe="stored")
    assert b"Orig-Nats-Msg-Id: x\r\n" in fired.block
