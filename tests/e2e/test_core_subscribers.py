"""Fires are ordinary publishes: a subscriber without a stream receives them, other than what a native server stores."""

from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.e2e.conftest import Served
from tests.harness.account import WAIT_SECONDS, account_on, in_seconds
from tests.harness.servers import V2_12
from tests.harness.waiting import eventually


async def test_a_core_subscriber_of_the_target_receives_each_fire(served: Served) -> None:
    received: list[bytes] = []
    served.account.connection.subscribe(served.subject("out"), lambda _to, _reply, _block, body: received.append(body))
    await served.schedule("s", f"@at {in_seconds(0.5)}", b"fired")
    await served.wait_for("out")
    await eventually(lambda: received == [b"fired"], within_seconds=WAIT_SECONDS, describe=lambda: str(received))


async def test_a_core_subscriber_receives_a_repetition_that_the_stream_drops(served: Served) -> None:
    received: list[bytes] = []
    served.account.connection.subscribe(served.subject("out"), lambda _to, _reply, _block, body: received.append(body))
    await served.schedule("s", f"@at {in_seconds(0.5)}", b"fired")
    [fired] = await served.wait_for("out")
    identity = next(line for line in fired.block.split(b"\r\n") if line.startswith(b"Nats-Msg-Id: ")).decode()
    again = await served.account.publish(served.subject("out"), f"{identity}\r\n", b"fired")
    assert again == fired.sequence, "the stream has it already"
    await eventually(lambda: len(received) == 2, within_seconds=WAIT_SECONDS, describe=lambda: str(received))
    assert len(await served.messages("out")) == 1


async def test_what_a_native_scheduler_stores_is_seen_by_no_core_subscriber(
    native_server: EmbeddedServer, stream_name: str
) -> None:
    """Its own delays; 2.12 knows no more. What is published behind the fire arrives, and the fire before it did not."""
    assert native_server.version >= V2_12
    async with account_on(native_server.url) as account:
        await account.create(stream_name)
        received: list[bytes] = []
        out = f"{stream_name}.out"
        account.connection.subscribe(out, lambda _to, _reply, _block, body: received.append(body))
        headers = {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": out}
        await account.publish(f"{stream_name}.s", headers, b"fired")
        await account.wait_for(stream_name, out)
        await account.publish(out, body=b"published")
        await eventually(lambda: received, within_seconds=WAIT_SECONDS, describe="what is published is received")
        assert received == [b"published"]
        await account.api.call(f"STREAM.DELETE.{stream_name}")
