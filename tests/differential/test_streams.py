"""Streams of all kinds: what fires, what consumers are given, and what remains is the same on all sides.

A case is a story that is told to one stream on every side, and all cases run at once.
Intervals fire at other instants on each side, so of them only the first fires are compared.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.message.headers import header_value
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from tests.conftest import SharedServer
from tests.differential.differences import Allowance, Differences
from tests.differential.sides import ComparedSide, fresh_name, on_each
from tests.harness.account import CLOCK, Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.cluster import running_cluster
from tests.harness.flagged import FlaggedStream
from tests.harness.leads import OvertakenError, with_more_time
from tests.harness.servers import EMULATED_VERSIONS, V2_10, V2_11, V2_15
from tests.harness.waiting import eventually, few_at_once, instant_reached
from tests.service.asking import answered

SOON_SECONDS = (3, 16, 64)
"""The delay (s) of fires; where a busy machine had not said the rest of a case before, it is told again, with more."""

FAR, PAST = "@at 2100-01-01T00:00:00Z", "@at 2020-01-01T00:00:00Z"


@dataclass
class ToldStream(FlaggedStream):
    """A stream to which a story is told, of what is due at one instant."""

    seconds: float = SOON_SECONDS[0]
    sidecar: Running | None = None
    """What fires here, if the server itself does not."""
    is_told: bool = False
    """True if all was said before it was due."""

    def __post_init__(self) -> None:
        """Begin to count."""
        self.due = CLOCK.now() + int(self.seconds * SECOND)

    @property
    def soon(self) -> str:
        """The pattern of what fires when the story is told."""
        return f"@at {format_rfc3339(self.due)}"

    async def told(self) -> None:
        """Wait until what is due has fired."""
        self.check_time()
        self.is_told = True
        await instant_reached(self.due, CLOCK.now)
        await self.canary(0.1)

    def check_time(self) -> None:
        """Raise `OvertakenError` if something is due before all was said."""
        if not self.is_told and CLOCK.now() >= self.due:
            raise OvertakenError

    async def ended(self, rest: str) -> None:
        """Wait until a sidecar holds a schedule no more that was removed, and so has no fire of it in flight."""
        if self.sidecar is not None:
            await self.sidecar.ended(self.name, self.subject(rest))

    async def call(self, request: str, body: Any = None) -> Any:
        """Ask JetStream for something about the stream; what it is about may be gone once it has fired."""
        try:
            return await super().call(request, body)
        except RefusedError:
            self.check_time()
            raise


Story = Callable[[ToldStream], Awaitable[Any]]


async def keep_interest(stream: FlaggedStream) -> None:
    """Have consumers of everything that the stories publish; each filter is of its own, as a work queue wants it."""
    for rest in ("s.>", "sensor", "canary", "canary.>", "out.>"):
        await stream.add_consumer(rest.replace(".>", "s"), rest)


async def given(stream: FlaggedStream, durable: str, count: int) -> list[tuple[str, bytes]]:
    """Take and acknowledge messages; returns subject and body of each, in a stable order."""
    taken = await stream.take(durable, count)
    for message in taken:
        await stream.acknowledge(message)
    return sorted((message.subject.removeprefix(f"{stream.name}."), message.body) for message in taken)


async def remaining(stream: FlaggedStream) -> list[tuple[str, bytes | None]]:
    """Return subject and body of what is stored, but for what the canary left."""
    found = [(one.subject.removeprefix(f"{stream.name}."), one.body) for one in await stream.messages(">")]
    return sorted(one for one in found if not one[0].startswith("canary"))


# -- stories of what consumers are given and what remains --------------------------------------------------------------


async def delays(stream: ToldStream) -> Any:
    """Plain and sampling delays: all are given to the consumer, and the schedules are gone."""
    await keep_interest(stream)
    await stream.publish("sensor", {"Kind": "reading"}, b"20.5")
    for number in range(3):
        await stream.schedule(f"s.at{number}", stream.soon, b"%d" % number, f"out.at{number}")
    sensor = {"Source": stream.subject("sensor")}
    await stream.schedule("s.sample", stream.soon, b"own", "out.sample", sensor)
    nothing = {"Source": stream.subject("sensor.broken")}
    await stream.schedule("s.empty", stream.soon, b"own", "out.empty", nothing)
    await stream.told()
    return await given(stream, "outs", 5), await remaining(stream)


async def consumed_source(stream: ToldStream) -> Any:
    """A source whose last message was acknowledged: where that removes it, the fire has the schedule's own body."""
    await keep_interest(stream)
    await stream.publish("sensor", body=b"20.5")
    sensor = {"Source": stream.subject("sensor")}
    await stream.schedule("s.sample", stream.soon, b"own", "out.sample", sensor)
    consumed = await given(stream, "sensor", 1)
    await stream.told()
    return consumed, await given(stream, "outs", 1), await remaining(stream)


async def rolled_up_targets(stream: ToldStream) -> Any:
    """A fire that rolls up its target: what was there before is gone, given to somebody or not."""
    await keep_interest(stream)
    await stream.publish("out.rolled", body=b"before")
    await stream.schedule("s.roll", stream.soon, b"after", "out.rolled", {"Rollup": "sub"})
    await stream.told()
    return await given(stream, "outs", 1), await remaining(stream)


async def no_consumer(stream: ToldStream) -> Any:
    """Nobody is there at all: a stream that keeps by interest keeps nothing, the others all."""
    await stream.schedule("s.at", stream.soon, b"once", "out.at")
    await stream.publish("plain", body=b"plain")
    await keep_interest(stream)
    await stream.told()
    return await remaining(stream)


async def no_interest_in_the_schedule(stream: ToldStream) -> Any:
    """A schedule that an interest stream does not keep never fires."""
    for durable, rest in (("outs", "out.>"), ("canary", "canary"), ("canaries", "canary.>")):
        await stream.add_consumer(durable, rest)
    await stream.schedule("s.at", stream.soon, b"once", "out.at")
    await stream.told()
    return await remaining(stream)


async def no_interest_in_an_interval(stream: ToldStream) -> int:
    """An interval whose target nobody wants lives until somebody does."""
    for durable, rest in (("s", "s.>"), ("canary", "canary"), ("canaries", "canary.>")):
        await stream.add_consumer(durable, rest)
    await stream.schedule("s.every", "@every 1s", b"tick", "out.every")
    await stream.canary(1.8)
    await stream.add_consumer("outs", "out.>")
    await stream.canary(1.5)
    return len(await stream.messages("out.every"))


RETENTION_STORIES: tuple[Story, ...] = (
    delays,
    consumed_source,
    rolled_up_targets,
    no_consumer,
    no_interest_in_the_schedule,
)

# -- stories of streams that change, copy or acknowledge what they store in their own way ----------------------------


class Kept(NamedTuple):
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


async def transformed(stream: ToldStream) -> list[Kept]:
    """Schedules and targets are stored on `kept.*` where they are published to `in.*`."""
    await stream.publish("in.sensor", body=b"20.5")
    await stream.schedule("in.both", stream.soon, b"both", "in.out1")
    await stream.schedule("in.schedule", stream.soon, b"schedule", "out2")
    await stream.schedule("s", stream.soon, b"target", "in.out3")
    await stream.schedule("in.raw", stream.soon, b"own", "out4", {"Source": stream.subject("in.sensor")})
    await stream.schedule("in.stored", stream.soon, b"own", "out5", {"Source": stream.subject("kept.sensor")})
    await stream.schedule("in.replaced", stream.soon, b"old", "out6")
    await stream.schedule("in.replaced", stream.soon, b"new", "out6")
    await stream.schedule("in.overwritten", stream.soon, b"fires", "out7")
    await stream.publish("in.overwritten", body=b"plain")
    await stream.schedule("in.cancelled", stream.soon, b"fires", "out8")
    await stream.publish("c", {"Nats-Scheduler": stream.subject("kept.cancelled"), "Nats-Schedule-Next": "purge"})
    await stream.schedule("in.other", stream.soon, b"other", "out9")
    await stream.publish("d", {"Nats-Scheduler": stream.subject("in.other"), "Nats-Schedule-Next": "purge"})
    await stream.told()
    return await kept(stream)


async def transformed_onto_itself(stream: ToldStream) -> list[Kept]:
    """A schedule whose target is transformed onto itself is not lost; the native one is purged with what it fired."""
    await stream.schedule("in.self", stream.soon, b"body", "in.self")
    await stream.told()
    return await kept(stream)


async def beyond_2262(stream: ToldStream) -> str:
    """An instant that no 64-bit count of nanoseconds holds is not taken for one in the past."""
    await stream.schedule("far", "@at 2300-01-01T00:00:00Z")
    await stream.schedule("farthest", "@at 9999-12-31T23:59:59Z")
    for _ in range(3):  # each canary runs behind whatever was due before it
        await stream.canary(0.5)
    return "fires at once" if await stream.messages("out") else "waits"


ADDED = (b"Nats-Rollup", b"Nats-Msg-Id", b"Nats-Expected-")
"""The headers that one kind of scheduler adds to a message and the other does not."""
VARIES = (b"Nats-Sequence", b"Nats-Time-Stamp", b"Nats-Last-Sequence", b"Nats-Msg-Size", b"Nats-Schedule:")


def lines(block: bytes) -> list[bytes]:
    """Return the header lines that are compared; of what varies only the name."""
    shown = [line for line in block.split(b"\r\n")[1:] if line and not line.startswith(ADDED)]
    return [line.split(b":")[0] if line.startswith(VARIES) else line for line in shown]


async def republished(stream: ToldStream) -> list[tuple[bytes, list[bytes], bytes]]:
    """Schedules and their fires are republished alike."""
    seen: list[tuple[bytes, list[bytes], bytes]] = []

    def sink(subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        if b"canary" not in subject:
            seen.append((subject, lines(block), body))

    stream.account.connection.subscribe(f"copies.{stream.name}.>", sink)
    await stream.publish("s", {**stream.headers(stream.soon), "Kind": "order"}, b"body")
    await stream.told()
    await eventually(lambda: len(seen) >= 2, describe="both are republished")
    return seen


def send(stream: FlaggedStream, rest: str, headers: dict[str, str], body: bytes) -> None:
    """Publish without waiting for an acknowledgement, of which there may be none."""
    stream.account.connection.write(frame(stream.subject(rest), "", block_to_send(headers) if headers else b"", body))


async def without_acknowledgements(stream: ToldStream) -> list[Kept]:
    """Everything is sent without waiting, as to a stream that acknowledges nothing."""
    send(stream, "sensor", {}, b"20.5")
    send(stream, "at", stream.headers(stream.soon), b"once")
    send(stream, "past", stream.headers(PAST, "past.out"), b"past")
    send(stream, "sample", stream.headers(stream.soon, "sampled", {"Source": stream.subject("sensor")}), b"own")
    for body in (b"old", b"new"):
        send(stream, "replaced", stream.headers(stream.soon, "replaced.out"), body)
    send(stream, "overwritten", stream.headers(stream.soon), b"fires")
    send(stream, "overwritten", {}, b"plain")
    send(stream, "every", stream.headers("@every 1s", "ticks"), b"tick")
    config = (await stream.call("STREAM.INFO"))["config"]
    await stream.wait_for("ticks", 1 if config["max_msgs_per_subject"] == 1 else 2)
    await stream.call("STREAM.PURGE", {"filter": stream.subject("every")})
    stopped = CLOCK.now() + SECOND // 4  # a fire may be in flight while it is stopped
    await instant_reached(max(stream.due, stopped + SECOND), CLOCK.now)
    send(stream, "canary", stream.headers(f"@at {in_seconds(0.1)}", "canary.out"), b"canary")
    await stream.wait_for("canary.out")

    async def purged() -> bool:
        return not await stream.messages("canary")

    await eventually(purged, describe="the canary is purged")
    await stream.ended("every")
    late = [one for one in await stream.messages("ticks") if one.stored_at > stopped]
    return [one for one in await kept(stream) if one.subject != "ticks"] + [Kept("late", "", b"")] * len(late)


OURS = (b"Nats-Msg-Id: nats-scheduler:", b"Nats-Expected-Last-Subject-Sequence")
"""The headers behind those of ADR-51 in a fire of the sidecar."""


def as_native(block: bytes) -> bytes:
    """Return the headers of a fire without those that make it unique."""
    return b"\r\n".join(line for line in block.split(b"\r\n") if not line.startswith(OURS))


async def of_all_kinds(stream: ToldStream) -> dict[str, Any]:
    """Schedules of each kind, some of them stopped in each way; the fires byte for byte, and what else is stored."""
    at = stream.soon
    await stream.publish("sensor", {"Kind": "reading", "X": " spaced "}, b"20.5")
    await stream.publish("at", {"Before": "1", **stream.headers(at), "kind": "order", "Nats-Msg-Id": "mine"}, b"once")
    await stream.schedule("ttl", at, b"", "out.ttl", {"TTL": "5m", "Rollup": "sub"})
    await stream.schedule("sample", at, b"own", "out.sample", {"Source": stream.subject("sensor")})
    await stream.schedule("past", PAST, b"past", "out.past")
    await stream.schedule("every", "@every 1s", b"tick", "ticks")
    await stream.schedule("replaced", at, b"old", "out.replaced")
    await stream.schedule("replaced", at, b"new", "out.replaced")
    await stream.schedule("cancelled", at, b"never", "out.cancelled")
    await stream.publish(
        "cancels", {"Nats-Scheduler": stream.subject("cancelled"), "Nats-Schedule-Next": "purge"}, b"cancel"
    )
    deleted = await stream.schedule("deleted", at, b"never", "out.deleted")
    await stream.call("STREAM.MSG.DELETE", {"seq": deleted})
    await stream.schedule("purged", at, b"never", "out.purged")
    await stream.call("STREAM.PURGE", {"filter": stream.subject("purged")})
    await stream.schedule("overwritten", at, b"never", "out.overwritten")
    await stream.publish("overwritten", body=b"plain")
    await stream.wait_for("ticks", 2)
    await stream.call("STREAM.PURGE", {"filter": stream.subject("every")})
    await stream.told()
    rests: dict[str, list[bytes | None]] = {}
    for message in await stream.messages(">"):
        rest = message.subject.removeprefix(f"{stream.name}.")
        if not rest.startswith(("canary", "out", "ticks")):
            rests.setdefault(rest, []).append(message.body)
    fires = [await stream.messages(rest) for rest in ("out", "out.>")]
    found = [(one.subject.encode(), as_native(one.block), one.body) for several in fires for one in several]
    name = stream.name.encode()
    stored = [(subject.replace(name, b""), block.replace(name, b""), body) for subject, block, body in found]
    return {"fires": sorted(stored), "rests": rests, "ticks": {one.body for one in await stream.messages("ticks")}}


# -- stories of what lands on schedules ------------------------------------------------------------------------------

FIRES = 4
"""Fires of one second each that are watched: each of them comes just before or behind a landing."""


async def fired_onto_each_other(stream: FlaggedStream) -> None:
    """A schedule lives on under what other schedules fire onto its subject, again and again."""
    await stream.schedule("before", "@every 1s", b"landed", "s")
    await stream.schedule("s", "@every 1s", b"own", "out")
    await stream.schedule("behind", "@every 1s", b"landed too", "s")
    await stream.wait_for("out", FIRES)
    for rest, bodies in (("out", {b"own"}), ("s", {b"own", b"landed", b"landed too"})):
        assert {message.body for message in await stream.messages(rest)} == bodies, rest
    named = [header_value(fire.block, b"Nats-Schedule-Next") or b"" for fire in await stream.messages("out")]
    nexts = [parse_rfc3339(text.decode()) for text in named]
    following = [instant for instant in nexts if isinstance(instant, int)]
    gaps = {later - sooner for sooner, later in pairwise(following)}
    if gaps != {SECOND} and all(gap > 0 and gap % SECOND == 0 for gap in gaps):
        raise OvertakenError("a fire stands for those that a stalled machine missed, here or on the server")
    assert gaps == {SECOND}, nexts


# -- the cases -------------------------------------------------------------------------------------------------------

TRANSFORM = {"subject_transform": {"src": "{n}.in.*", "dest": "{n}.kept.{{wildcard(1)}}"}}
COPIES = {"src": "{n}.>", "dest": "copies.{n}.>"}

CASES: dict[str, tuple[dict[str, Any], Story]] = {
    **{
        f"{retention}: {story.__name__}": ({"retention": retention}, story)
        for retention in ("limits", "workqueue", "interest")
        for story in RETENTION_STORIES
    },
    "an interval that nobody wants": ({"retention": "interest"}, no_interest_in_an_interval),
    "transformed": (TRANSFORM, transformed),
    "transformed onto itself": (TRANSFORM, transformed_onto_itself),
    "republished": ({"republish": COPIES}, republished),
    "no_ack": ({"no_ack": True}, without_acknowledgements),
    "no_ack, work queue": ({"no_ack": True, "retention": "workqueue"}, without_acknowledgements),
    "max_msgs_per_subject 1": ({"max_msgs_per_subject": 1}, without_acknowledgements),
    "beyond 2262": ({}, beyond_2262),
    "fired onto each other": ({}, fired_onto_each_other),
}

SELF = [Kept("kept.self", "kept.self", b"body")]
NAMED = (
    Allowance("subject-transform", EMULATED_VERSIONS, lambda wanted, value: wanted == [] and value == SELF),
    Allowance("beyond-2262", EMULATED_VERSIONS, lambda wanted, value: (wanted, value) == ("fires at once", "waits")),
    Allowance("no-interest", EMULATED_VERSIONS, lambda wanted, value: wanted == 0 and value >= 1),
)
"""The native scheduler loses a schedule whose target is its own subject, fires one of the year 2300, and hangs where
nobody wants a fire."""


def named(config: Any, name: str) -> Any:
    """Put the name of a stream into a configuration."""
    if isinstance(config, dict):
        return {key: named(value, name) for key, value in config.items()}
    return config.replace("{n}", name) if isinstance(config, str) else config


@pytest.mark.clause("retention-limits", "retention-workqueue", "retention-interest", "no-interest", "invisible")
@pytest.mark.clause("subject-transform", "republish", "no-ack", "stop-generated-message", "beyond-2262")
async def test_what_fires_and_what_remains_is_the_same_in_every_stream(sides: list[ComparedSide]) -> None:
    found, prefix = Differences(NAMED), fresh_name()

    async def tell(number: int, title: str, config: dict[str, Any], story: Story) -> None:
        async def on(side: ComparedSide) -> Any:
            async def told(seconds: float) -> Any:
                name = f"{prefix}N{number}S{seconds:g}"
                await side.create(name, **named(config, name))
                return await story(ToldStream(side.account, name, seconds, side.sidecar))

            return await with_more_time(told, SOON_SECONDS)

        found.compare(title, await on_each(sides, on))

    await few_at_once(tell(number, title, *case) for number, (title, case) in enumerate(CASES.items()))
    found.check(at_least=len(CASES))


BEFORE, DURING = 6_000, 2_000
"""Ordinary messages that are stored before the sidecar starts, and while it fires."""
AT_ONCE = 2_000
"""Ordinary messages sent without waiting; the server takes 10,000."""
SCHEDULES = 60


async def fill(stream: FlaggedStream, count: int) -> None:
    """Store ordinary messages, some with headers, as fast as the server takes them."""
    block = block_to_send({"Kind": "traffic"})
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        frames = [frame(stream.subject(f"traffic.{n % 700}"), "", block if n % 3 else b"", b"%d" % n) for n in numbers]
        stream.account.connection.write(b"".join(frames))
        await stream.account.connection.request(stream.subject("traffic.last"), b"barrier")


@asynccontextmanager
async def busy_stream(share: SharedServer, version: str, name: str) -> AsyncIterator[FlaggedStream]:
    """Make a busy stream with schedules in it, and start the sidecar on it."""
    server = await share(version)
    is_emulated = version in EMULATED_VERSIONS
    mark = {"allow_msg_schedules": False, "metadata": {METADATA_FLAG: "true"}} if is_emulated else {}
    async with AsyncExitStack() as stack:
        account = await stack.enter_async_context(account_on(server.url))
        await account.create(name, allow_rollup_hdrs=True, **mark)
        stream = FlaggedStream(account, name)
        await fill(stream, BEFORE // 2)
        for number in range(SCHEDULES):
            await stream.schedule(f"s.{number}", f"@at {in_seconds(number / 30)}", b"%d" % number, f"out.{number % 7}")
        await stream.schedule("every", "@every 1s", b"tick", "ticks")
        await stream.schedule("s.overwritten", FAR, b"fires")
        await stream.publish("s.overwritten", body=b"plain")
        await fill(stream, BEFORE // 2)
        if is_emulated:
            running = await stack.enter_async_context(sidecar_on(server.url))
            await running.ready(name)
        yield stream
        await stream.call("STREAM.DELETE")


@pytest.mark.clause("busy-stream")
async def test_schedules_in_a_busy_stream_all_fire(shared_server: SharedServer) -> None:
    name, versions = fresh_name(), (V2_15, V2_11, V2_10)

    async def fired(version: str) -> dict[str, Any]:
        async with busy_stream(shared_server, version, name) as stream:
            await fill(stream, DURING)
            for number in range(20):
                await stream.schedule(f"s.late{number}", FAR, b"old", "out.late")
                await stream.schedule(f"s.late{number}", f"@at {in_seconds(1)}", b"new", "out.late")
            await fill(stream, DURING)
            await stream.wait_for("out.*", SCHEDULES + 20)
            await stream.wait_for("ticks", 2)
            await stream.canary(0.1)

            async def are_purged() -> bool:
                return len(await stream.messages("s.>")) == 2

            await eventually(are_purged, describe="what has fired is purged")
            found = [(one.subject.removeprefix(name), one.body) for one in await stream.messages("out.>")]
            kept = [(one.subject.removeprefix(name), one.body) for one in await stream.messages("s.>")]
            return {"fired": sorted(found), "kept": kept}

    found = Differences()
    found.compare("a busy stream", dict(zip(versions, await asyncio.gather(*map(fired, versions)), strict=True)))
    found.check()


@pytest.mark.clause("replicated")
async def test_a_replicated_stream_is_served_from_another_node_and_from_all(
    shared_server: SharedServer, tmp_path: Path
) -> None:
    """In a cluster of an older version, beside one native server."""

    async def told_on(account: Account, seconds: float) -> dict[str, Any]:
        name, replicas = fresh_name(), 1 if account.connection.server.version == V2_15 else 3
        await account.create(name, num_replicas=replicas, allow_msg_ttl=True, allow_rollup_hdrs=True)
        stream = FlaggedStream(account, name)
        await stream.schedule_soon("served", PAST, target="canary.served")
        await stream.wait_for("canary.served")  # a young cluster may take seconds to give the stream a leader
        return await of_all_kinds(ToldStream(account, name, seconds))

    async with account_on((await shared_server(V2_15)).url) as account:
        wanted = await with_more_time(partial(told_on, account), SOON_SECONDS)
    async with running_cluster(V2_11, tmp_path) as cluster:
        for nodes in (cluster.nodes[:1], cluster.nodes):
            async with AsyncExitStack() as stack:
                account = await stack.enter_async_context(account_on(cluster.nodes[1].url))
                running = [await stack.enter_async_context(sidecar_on(node.url)) for node in nodes]
                for one in running:
                    # Its answer comes from that node only if that one knows of its other subscriptions too.
                    await answered(account.connection, f"health.get.{one.sidecar.instance}")
                found = await with_more_time(partial(told_on, account), SOON_SECONDS)
                assert found == wanted, f"sidecars at {len(nodes)} nodes"
                assert all(service.engine.is_live for one in running for service in one.sidecar.served.values())
