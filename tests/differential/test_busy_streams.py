"""Streams as they are in service: full of other messages, transformed, republished, without acknowledgements.

What fires and what is stored is the same on all sides.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.message.headers import header_value
from tests.conftest import SharedServer
from tests.differential.differences import Allowance, Differences
from tests.differential.sides import COMPARED_VERSIONS, ComparedSide, fresh_name, on_each
from tests.harness.account import CLOCK, WAIT_SECONDS, account_on, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import EMULATED_VERSIONS
from tests.harness.waiting import eventually

BEFORE, DURING = 30_000, 10_000
"""Ordinary messages that are stored before the sidecar starts, and while it fires."""
AT_ONCE = 2_000
"""Ordinary messages sent without waiting; the server takes 10,000."""
SCHEDULES = 60
START_SECONDS = 90.0
"""Longest start on a busy stream: it takes less than one."""


async def fill(stream: FlaggedStream, count: int) -> None:
    """Store ordinary messages, some with headers, as fast as the server takes them."""
    block = block_to_send({"Kind": "traffic"})
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        frames = [frame(stream.subject(f"traffic.{n % 700}"), "", block if n % 3 else b"", b"%d" % n) for n in numbers]
        stream.account.connection.write(b"".join(frames))
        await stream.account.connection.request(stream.subject("traffic.last"), b"barrier")


@asynccontextmanager
async def busy_side(share: SharedServer, version: str, name: str) -> AsyncIterator[FlaggedStream]:
    """Make a busy stream with schedules in it, and start the sidecar on it."""
    server = await share(version)
    async with AsyncExitStack() as stack:
        account = await stack.enter_async_context(account_on(server.url))
        emulated = version in EMULATED_VERSIONS
        mark = {"allow_msg_schedules": False, "metadata": {METADATA_FLAG: "true"}} if emulated else {}
        await account.create(name, allow_rollup_hdrs=True, **mark)
        stream = FlaggedStream(account, name)
        await fill(stream, BEFORE // 2)
        for number in range(SCHEDULES):
            await stream.schedule(f"s.{number}", f"@at {in_seconds(number / 15)}", b"%d" % number, f"out.{number % 7}")
        await stream.schedule("every", "@every 1s", b"tick", "ticks")
        await stream.publish(f"s.{SCHEDULES - 1}", body=b"plain")
        await fill(stream, BEFORE // 2)
        if emulated:
            running = await stack.enter_async_context(sidecar_on(server.url))
            await eventually(
                lambda: name in running.sidecar.served and running.sidecar.served[name].engine.is_live,
                within_seconds=START_SECONDS,
                describe=f"{name} is served",
            )
        yield stream
        await stream.call("STREAM.DELETE")


@pytest.mark.clause("busy-stream")
async def test_schedules_in_a_busy_stream_all_fire(shared_server: SharedServer) -> None:
    name = fresh_name()

    async def fired(version: str) -> dict[str, Any]:
        async with busy_side(shared_server, version, name) as stream:
            await fill(stream, DURING)
            replaced = [f"s.late{number}" for number in range(20)]
            for rest in replaced:
                await stream.schedule(rest, f"@at {in_seconds(1)}", b"old", "out.late")
                await stream.schedule(rest, f"@at {in_seconds(1)}", b"new", "out.late")
            await fill(stream, DURING)
            await stream.wait_for("ticks", 2)
            await stream.canary(4)
            found = [(one.subject.removeprefix(name), one.body) for one in await stream.messages("out.>")]
            kept = [(one.subject.removeprefix(name), one.body) for one in await stream.messages("s.>")]
            return {"fired": sorted(found), "kept": kept}

    values = await asyncio.gather(*map(fired, COMPARED_VERSIONS))
    found = Differences()
    found.compare("a busy stream", dict(zip(COMPARED_VERSIONS, values, strict=True)))
    found.check()


# -- subject transforms -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A message as it is compared: without what only one kind of scheduler adds."""

    subject: str
    scheduler: str
    body: bytes | None


async def kept(stream: FlaggedStream) -> list[Kept]:
    """Return what is stored, in a stable order, but for the canary's."""
    found = []
    for message in await stream.messages(">"):
        rest = message.subject.removeprefix(f"{stream.name}.")
        scheduler = (header_value(message.block, b"Nats-Scheduler") or b"").decode().removeprefix(f"{stream.name}.")
        if "canary" not in rest:
            found.append(Kept(rest, scheduler, message.body))
    return sorted(found, key=repr)


async def moved_stream(side: ComparedSide, name: str, **config: Any) -> FlaggedStream:
    """Make a stream that stores on `kept.*` what is published to `in.*`."""
    moved = {"src": f"{name}.in.*", "dest": f"{name}.kept.{{{{wildcard(1)}}}}"}
    await side.create(name, subject_transform=moved, **config)
    return FlaggedStream(side.account, name)


@pytest.mark.clause("subject-transform")
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_schedules_and_targets_that_are_transformed_end_where_the_native_ones_end(
    sides: list[ComparedSide], retention: str
) -> None:
    name = fresh_name()

    async def on(side: ComparedSide) -> list[Kept]:
        stream = await moved_stream(side, name, retention=retention)
        due = f"@at {in_seconds(1)}"
        await stream.publish("in.sensor", body=b"20.5")
        await stream.schedule("in.both", due, b"both", "in.out1")
        await stream.schedule("in.schedule", due, b"schedule", "out2")
        await stream.schedule("s", due, b"target", "in.out3")
        await stream.schedule("in.raw", due, b"own", "out4", {"Source": stream.subject("in.sensor")})
        await stream.schedule("in.stored", due, b"own", "out5", {"Source": stream.subject("kept.sensor")})
        await stream.schedule("in.replaced", due, b"old", "out6")
        await stream.schedule("in.replaced", due, b"new", "out6")
        await stream.schedule("in.overwritten", due, b"fires", "out7")
        await stream.publish("in.overwritten", body=b"plain")
        await stream.schedule("in.cancelled", due, b"fires", "out8")
        await stream.publish("c", {"Nats-Scheduler": stream.subject("kept.cancelled"), "Nats-Schedule-Next": "purge"})
        await stream.schedule("in.other", due, b"other", "out9")
        await stream.publish("d", {"Nats-Scheduler": stream.subject("in.other"), "Nats-Schedule-Next": "purge"})
        await stream.canary(1.5)
        return await kept(stream)

    found = Differences()
    found.compare(f"transformed, {retention}", await on_each(sides, on))
    found.check()


@pytest.mark.clause("subject-transform")
async def test_a_schedule_whose_target_is_transformed_onto_itself_is_not_lost(sides: list[ComparedSide]) -> None:
    """The native one is purged together with what it fired: better here."""
    name = fresh_name()

    async def on(side: ComparedSide) -> list[Kept]:
        stream = await moved_stream(side, name)
        await stream.schedule("in.self", f"@at {in_seconds(0.5)}", b"body", "in.self")
        await stream.canary(1)
        return await kept(stream)

    def stays(wanted: list[Kept], value: list[Kept]) -> bool:
        return wanted == [] and value == [Kept("kept.self", "kept.self", b"body")]

    found = Differences((Allowance("subject-transform", EMULATED_VERSIONS, stays),))
    found.compare("a target that is the schedule", await on_each(sides, on))
    found.check()


# -- republish --------------------------------------------------------------------------------------------------------

ADDED = (b"Nats-Rollup", b"Nats-Msg-Id", b"Nats-Expected-")
"""The headers that one kind of scheduler adds to a message and the other does not."""
VARIES = (b"Nats-Sequence", b"Nats-Time-Stamp", b"Nats-Last-Sequence", b"Nats-Msg-Size")


def lines(block: bytes) -> list[bytes]:
    """Return the header lines that are compared; of what varies only the name."""
    shown = [line for line in block.split(b"\r\n")[1:] if line and not line.startswith(ADDED)]
    return [line.split(b":")[0] if line.startswith(VARIES) else line for line in shown]


@pytest.mark.clause("republish")
@pytest.mark.parametrize("headers_only", [False, True])
async def test_schedules_and_their_fires_are_republished_alike(sides: list[ComparedSide], headers_only: bool) -> None:
    name, due = fresh_name(), in_seconds(1)

    async def on(side: ComparedSide) -> list[tuple[bytes, list[bytes], bytes]]:
        seen: list[tuple[bytes, list[bytes], bytes]] = []

        def sink(subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
            if b"canary" not in subject:
                seen.append((subject, lines(block), body))

        copies = {"src": f"{name}.>", "dest": f"copies.{name}.>", "headers_only": headers_only}
        number = side.account.connection.subscribe(f"copies.{name}.>", sink)
        await side.create(name, republish=copies)
        stream = FlaggedStream(side.account, name)
        headers = {**stream.headers(f"@at {due}"), "Kind": "order"}
        await stream.publish("s", headers, b"body")
        await stream.canary(1.2)
        await eventually(lambda: len(seen) >= 2, within_seconds=WAIT_SECONDS, describe="both are republished")
        side.account.connection.unsubscribe(number)
        return seen

    found = Differences()
    found.compare("republished", await on_each(sides, on))
    found.check()


# -- no acknowledgements, and other configurations --------------------------------------------------------------------

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "no_ack": {"no_ack": True},
    "no_ack, file": {"no_ack": True, "storage": "file"},
    "no_ack, work queue": {"no_ack": True, "retention": "workqueue"},
    "deny_delete": {"deny_delete": True},
    "compressed file": {"storage": "file", "compression": "s2"},
    "allow_direct": {"allow_direct": True, "mirror_direct": False},
    "max_msgs_per_subject 1": {"max_msgs_per_subject": 1},
    "max_msg_size": {"max_msg_size": 2048},
    "duplicate_window": {"duplicate_window": 200_000_000},
    "first_seq": {"first_seq": 1_000_000},
    "consumer_limits": {"consumer_limits": {"inactive_threshold": 5_000_000_000, "max_ack_pending": 3}},
}


def send(stream: FlaggedStream, rest: str, headers: dict[str, str], body: bytes) -> None:
    """Publish without waiting for an acknowledgement, of which there may be none."""
    stream.account.connection.write(frame(stream.subject(rest), "", block_to_send(headers) if headers else b"", body))


async def canary(stream: FlaggedStream, seconds: float) -> None:
    """Wait for a canary that was sent without an acknowledgement."""
    send(stream, "canary", stream.headers(f"@at {in_seconds(seconds)}", "canary.out"), b"canary")
    await stream.wait_for("canary.out")

    async def purged() -> bool:
        return not await stream.messages("canary")

    await eventually(purged, within_seconds=WAIT_SECONDS, describe="the canary is purged")


@pytest.mark.clause("no-ack")
async def test_configurations_of_all_kinds_end_in_the_same_state(sides: list[ComparedSide]) -> None:
    found, prefix = Differences(), fresh_name()

    async def compare(number: int, title: str, config: dict[str, Any]) -> None:
        async def on(side: ComparedSide) -> list[Kept]:
            name = f"{prefix}N{number}"
            await side.create(name, **config)
            stream = FlaggedStream(side.account, name)
            due = f"@at {in_seconds(1)}"
            send(stream, "sensor", {}, b"20.5")
            send(stream, "at", stream.headers(due), b"once")
            send(stream, "past", stream.headers("@at 2020-01-01T00:00:00Z", "past.out"), b"past")
            send(stream, "sample", stream.headers(due, "sampled", {"Source": stream.subject("sensor")}), b"own")
            for body in (b"old", b"new"):
                send(stream, "replaced", stream.headers(due, "replaced.out"), body)
            send(stream, "overwritten", stream.headers(due), b"fires")
            send(stream, "overwritten", {}, b"plain")
            send(stream, "every", stream.headers("@every 1s", "ticks"), b"tick")
            await stream.wait_for("ticks", 1 if config.get("max_msgs_per_subject") else 2)
            await stream.call("STREAM.PURGE", {"filter": stream.subject("every")})
            stopped = CLOCK.now()
            await canary(stream, 1.2)
            late = [one for one in await stream.messages("ticks") if one.stored_at > stopped]
            return [one for one in await kept(stream) if one.subject != "ticks"] + [Kept("late", "", b"")] * len(late)

        found.compare(title, await on_each(sides, on))

    await asyncio.gather(*(compare(number, *each) for number, each in enumerate(CONFIGURATIONS.items())))
    found.check(at_least=len(CONFIGURATIONS))
