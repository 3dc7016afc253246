"""Fires, their times, their bytes and who sees them, on real servers that have no schedules of their own."""

import json
from typing import Any

from nats_scheduler.engine.firing.building import assembled
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.account import CLOCK, Account, account_on, in_seconds
from tests.harness.blocks import block_to_send
from tests.harness.burst import store_herd
from tests.harness.flagged import FlaggedStream, Served, fire_time_of
from tests.harness.waiting import eventually

HERD = 500


def lines_of(message: StoredMessage) -> list[str]:
    """Return the header lines but for our identity and guard, which come last."""
    ours = ("Nats-Msg-Id:", "Nats-Expected-")
    return [line for line in message.block.decode().split("\r\n")[1:-2] if not line.startswith(ours)]


async def test_a_cron_schedule_in_a_zone_names_its_next_time_there(served: Served) -> None:
    """And an interval names its own in UTC."""
    await served.schedule("cron", "* * * * * *", target="cron.out", more={"Time-Zone": "Asia/Kolkata"})
    await served.schedule("every", "@every 1s", target="every.out")
    cron, every = await served.wait_for("cron.out", 2), await served.wait_for("every.out", 2)
    assert all(lines_of(message)[-1].endswith("+05:30") for message in cron)
    for fire in every:
        assert lines_of(fire)[-1] == f"Nats-Schedule-Next: {format_rfc3339(fire_time_of(fire) + SECOND)}"
        assert fire.stored_at >= fire_time_of(fire)
    await served.none_left_out(every, "every")


async def test_further_headers_reach_the_target_byte_for_byte(served: Served) -> None:
    lines = ["X:  two spaces", "x: lower", "X: again", "Über: ñ", "Trailing: blank ", "No-Space:value"]
    kept = "".join(f"{line}\r\n" for line in [*lines, "nats-schedule: no"])
    schedule = f"Nats-Schedule: @at {in_seconds(0.2)}\r\nNats-Schedule-Target: {served.subject('out')}\r\n"
    await served.publish("s", f"{kept}{schedule}Nats-Schedule-Custom: gone\r\n")
    [fired] = await served.wait_for("out")
    expected = kept + f"Nats-Scheduler: {served.subject('s')}\r\nNats-Schedule-Next: purge\r\n"
    assert fired.block.startswith(f"NATS/1.0\r\n{expected}".encode())


async def test_a_herd_due_at_one_instant_fires_completely_and_once(served: Served) -> None:
    """And so do some of which each is due a few milliseconds after it was published."""
    await store_herd(served.account, served.name, CLOCK.now() + SECOND, HERD)
    for number in range(HERD, HERD + 50):
        await served.schedule(f"s.{number}", f"@at {in_seconds(0.003)}", str(number).encode())
    await served.each_fired_once(HERD + 50)


# -- subscribers -----------------------------------------------------------------------------------------------------


async def test_a_core_subscriber_of_the_target_receives_each_fire(
    served: Served,
) -> None:
    received: list[bytes] = []
    served.account.connection.subscribe(served.subject("out"), lambda _to, _reply, _block, body: received.append(body))
    await served.schedule("s", f"@at {in_seconds(0.5)}", b"fired")
    [fired] = await served.wait_for("out")
    await eventually(lambda: received == [b"fired"], describe=lambda: str(received))
    identity = next(line for line in fired.block.split(b"\r\n") if line.startswith(b"Nats-Msg-Id: ")).decode()
    again = await served.account.publish(served.subject("out"), f"{identity}\r\n", b"again")
    assert again == fired.sequence, "the stream has it already"
    await eventually(lambda: len(received) == 2, describe=lambda: str(received))
    assert len(await served.messages("out")) == 1


async def test_no_core_subscriber_sees_what_a_native_scheduler_stores(
    native_server: EmbeddedServer, stream_name: str
) -> None:
    """What is published behind the fire arrives, and the fire before it did not."""
    async with account_on(native_server.url) as account:
        stream, received = FlaggedStream(account, stream_name), list[bytes]()
        await account.create(stream_name)
        account.connection.subscribe(stream.subject("out"), lambda _to, _reply, _block, body: received.append(body))
        await stream.schedule("s", f"@at {in_seconds(0.5)}", b"fired")
        await stream.wait_for("out")
        await stream.publish("out", body=b"published")
        await eventually(lambda: received, describe="what is published is received")
        assert received == [b"published"]
        await stream.call("STREAM.DELETE")


async def test_every_answer_of_a_server_names_the_stream(account: Account, swept: str) -> None:
    config: dict[str, Any] = {"allow_msg_schedules": False, "max_msg_size": 1_000, "allow_rollup_hdrs": False}
    await account.create(swept, **config)

    async def named(headers: dict[str, str], body: bytes = b"") -> tuple[str, bool]:
        answer = await account.connection.request(f"{swept}.a", body, block_to_send(headers) if headers else b"")
        told = json.loads(answer.body)
        return told.get("stream"), "error" in told

    wrong = ({"Nats-Rollup": "sub"}, {"Nats-Expected-Last-Subject-Sequence": "9"}, {"Nats-Expected-Stream": "OTHER"})
    answers = [await named({}, b"x"), await named({}, b"x" * 2_000), *[await named(headers) for headers in wrong]]
    answers += [await named({"Nats-Msg-Id": "a"}) for _ in range(2)]
    for more in ({"max_msgs": 1, "discard": "new"}, {"sealed": True}):
        update = {"name": swept, "subjects": [f"{swept}.>"], "storage": "memory", **config, **more}
        await account.api.call(f"STREAM.UPDATE.{swept}", update)
        answers.append(await named({}, b"x"))
    assert answers == [(swept, failed) for failed in (False, True, True, True, True, False, False, True, True)]


# -- headers that look like ours -------------------------------------------------------------------------------------

IDENTITY = "Nats-Msg-Id"
GUARD = "Nats-Expected-Last-Subject-Sequence"
LOOK_ALIKES = [
    f"Orig-{IDENTITY}: x",
    f"A: {IDENTITY} {IDENTITY}",
    f"X-{GUARD}: 1",
    f"A: {GUARD}-Subject{GUARD}-Subject",
]
"""Headers of a publisher that might hide the identity of a fire, or its guard, from the server."""


async def fire_beside(stream: FlaggedStream, rest: str, line: str, *, sampled: bool, guard: bool) -> bytes:
    """Store a schedule, with a further line among its headers or those of its source; return its fire's block."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in stream.headers("@every 1h").items())
    own = block_to_send(lines if sampled else f"{line}\r\n{lines}")
    sequence = await stream.account.publish_block(stream.subject(rest), own, b"")
    schedule = await stream.account.api.message(stream.name, seq=sequence)
    assert schedule is not None
    source = StoredMessage("any", 1, 1, block_to_send(f"{line}\r\n"), b"") if sampled else None
    rules = StreamRules("ANY", (">",), allow_msg_ttl=True)
    reading = read_message(schedule.block, schedule.subject, schedule.stored_at, rules, (ADR51,))
    assert reading is not None
    assert isinstance(reading.definition, Definition)
    held = Held(schedule.subject, schedule.sequence, reading.definition, schedule.stored_at)
    return assembled(held, schedule, source, 1, None, guard=guard).block


async def test_the_server_refuses_a_fire_of_a_replaced_schedule(account: Account, swept: str) -> None:
    """And a fire that is sent twice is stored once, whatever other headers it or its sample has."""
    stream = FlaggedStream(account, swept)
    await account.create(swept, allow_msg_schedules=False)
    guard = ((await account.api.info()).get("api") or {}).get("level", 0) >= 1

    async def send(block: bytes) -> Any:
        return json.loads((await account.connection.request(stream.subject("out"), b"", block)).body)

    for number, line in enumerate(LOOK_ALIKES):
        for sampled in (False, True):
            fire = await fire_beside(stream, f"s.{number}.{sampled}", line, sampled=sampled, guard=guard)
            first, second = await send(fire), await send(fire)
            assert second == {**first, "duplicate": True}, (line, sampled)
        fire = await fire_beside(stream, f"replaced.{number}", line, sampled=False, guard=guard)
        await stream.publish(f"replaced.{number}")
        assert (await send(fire)).get("error", {}).get("err_code") == (10071 if guard else None), line
