"""Ways to stop the schedule on the subject `s` of a stream, each a line in `CASES`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from nats_scheduler.schedule.instants import SECOND
from tests.differential.sides import COMPARED_VERSIONS
from tests.harness.account import WAIT_SECONDS
from tests.harness.blocks import block_to_send
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import V2_10
from tests.harness.waiting import eventually

GONE_SECONDS = 30.0

Stop = Callable[[FlaggedStream], Awaitable[object]]


@dataclass(frozen=True)
class Case:
    """One way to stop the schedule on `s`, in a stream with this configuration."""

    stop: Stop
    config: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, str] = field(default_factory=dict)
    """Further headers of the schedule."""
    before: Stop | None = None
    """An act before the schedule is stored."""
    versions: tuple[str, ...] = COMPARED_VERSIONS


# -- ways to stop ----------------------------------------------------------------------------------------------------


async def sequence_of(stream: FlaggedStream, rest: str = "s") -> int:
    return (await stream.messages(rest))[-1].sequence


async def delete(stream: FlaggedStream) -> None:
    await stream.call("STREAM.MSG.DELETE", {"seq": await sequence_of(stream), "no_erase": True})


async def erase(stream: FlaggedStream) -> None:
    await stream.call("STREAM.MSG.DELETE", {"seq": await sequence_of(stream)})


def purge(**body: Any) -> Stop:
    """Purge; `filter` is a subject of the stream."""

    async def stop(stream: FlaggedStream) -> None:
        wanted = {key: stream.subject(value) if key == "filter" else value for key, value in body.items()}
        await stream.call("STREAM.PURGE", wanted)

    return stop


async def purge_below_the_next(stream: FlaggedStream) -> None:
    await stream.call("STREAM.PURGE", {"filter": stream.subject("s"), "seq": await sequence_of(stream) + 1})


async def purge_below_itself(stream: FlaggedStream) -> None:
    """Purge what is older than the schedule; for the older servers `seq` 1 means none, so something has to be."""
    await stream.call("STREAM.PURGE", {"filter": stream.subject("s"), "seq": await sequence_of(stream)})


def publish(rest: str, body: bytes = b"plain", times: int = 1, **headers: str) -> Stop:
    """Publish something that is no schedule; `_` in the name of a header stands for a hyphen."""

    async def stop(stream: FlaggedStream) -> None:
        for _ in range(times):
            await stream.publish(rest, {key.replace("_", "-"): value for key, value in headers.items()}, body)

    return stop


def replace(pattern: str, rest: str = "s", target: str = "later", more: dict[str, str] | None = None) -> Stop:
    """Publish another schedule; a server that refuses it is in its right."""

    async def stop(stream: FlaggedStream) -> None:
        headers = stream.headers(pattern, target, more)
        await say(stream, rest, headers, b"newer")

    return stop


async def say(stream: FlaggedStream, rest: str, headers: dict[str, str], body: bytes = b"said") -> None:
    """Publish what some of the sides refuse."""
    await stream.account.connection.request(stream.subject(rest), body, block_to_send(headers), WAIT_SECONDS)


def cancel(scheduler: str = "s", rest: str = "cancels", guard: int | None = None, **headers: str) -> Stop:
    """Say the atomic cancel; `guard` is added to the sequence of the schedule that is expected."""

    async def stop(stream: FlaggedStream) -> None:
        named = stream.subject(scheduler) if not scheduler.startswith("outside") else scheduler
        said = {"Nats-Scheduler": named, "Nats-Schedule-Next": "purge", **headers}
        if guard is not None:
            said["Nats-Expected-Last-Subject-Sequence"] = str(await sequence_of(stream) + guard)
            said["Nats-Expected-Last-Subject-Sequence-Subject"] = named
        await say(stream, rest, {key.replace("_", "-"): value for key, value in said.items()}, b"cancel")

    return stop


async def cancel_with_a_new_schedule(stream: FlaggedStream) -> None:
    headers = stream.headers("@at 2100-01-01T00:00:00Z", "later")
    named = {"Nats-Scheduler": stream.subject("s"), "Nats-Schedule-Next": "purge"}
    await stream.publish("other", {**headers, **named}, b"newer")


async def replace_and_delete_the_newest(stream: FlaggedStream) -> None:
    await replace("@at 2100-01-01T00:00:00Z")(stream)
    await delete(stream)


async def overwrite_and_delete_the_newest(stream: FlaggedStream) -> None:
    await publish("s")(stream)
    await delete(stream)


async def land_on_it(stream: FlaggedStream) -> None:
    """Have another schedule fire onto the subject."""
    await stream.schedule("other", "@at 2020-01-01T00:00:00Z", b"generated", "s")
    await landed(stream)


async def land_on_it_with_a_roll_up(stream: FlaggedStream) -> None:
    await stream.schedule("other", "@at 2020-01-01T00:00:00Z", b"generated", "s", {"Rollup": "sub"})
    await landed(stream)


async def land_on_it_often(stream: FlaggedStream) -> None:
    """Have three other schedules fire onto the subject, one after the other."""
    for number in range(3):
        await stream.schedule(f"other.{number}", "@at 2020-01-01T00:00:00Z", b"generated %d" % number, "s")
        await landed(stream, b"generated %d" % number, f"other.{number}")


async def land_a_sample_on_it(stream: FlaggedStream) -> None:
    await stream.publish("sampled", body=b"generated")
    source = {"Source": stream.subject("sampled")}
    await stream.schedule("other", "@at 2020-01-01T00:00:00Z", b"not sent", "s", source)
    await landed(stream)


async def land_what_expires(stream: FlaggedStream) -> None:
    await stream.schedule("other", "@at 2020-01-01T00:00:00Z", b"generated", "s", {"TTL": "1s"})
    await landed(stream)

    async def is_alone() -> bool:
        return len(await stream.messages("s")) == 1

    await eventually(is_alone, within_seconds=GONE_SECONDS, describe="what had landed has expired")


def landed_and(*then: Stop) -> Stop:
    """Have another schedule fire onto the subject, and do more."""

    async def stop(stream: FlaggedStream) -> None:
        for one in (land_on_it, *then):
            await one(stream)

    return stop


async def delete_what_landed(stream: FlaggedStream) -> None:
    await stream.call("STREAM.MSG.DELETE", {"seq": await sequence_of(stream), "no_erase": True})


async def delete_what_lies_under(stream: FlaggedStream) -> None:
    first = (await stream.messages("s"))[0].sequence
    await stream.call("STREAM.MSG.DELETE", {"seq": first, "no_erase": True})


async def acknowledge_what_landed(stream: FlaggedStream) -> None:
    await stream.acknowledge((await stream.take("worker", 2))[-1])


async def acknowledge_both(stream: FlaggedStream) -> None:
    for message in await stream.take("worker", 2):
        await stream.acknowledge(message)


def cancel_another_on_it(more: dict[str, str] | None = None) -> Stop:
    """Cancel another schedule by a message on the subject."""

    async def stop(stream: FlaggedStream) -> None:
        await stream.schedule("other", "@at 2100-01-01T00:00:00Z", b"other", "later")
        said = {"Nats-Scheduler": stream.subject("other"), "Nats-Schedule-Next": "purge", **(more or {})}
        await stream.publish("s", said, b"cancel")

    return stop


async def landed(stream: FlaggedStream, body: bytes = b"generated", other: str = "other") -> None:
    async def is_last() -> bool:
        on_it = await stream.messages("s")
        return bool(on_it) and on_it[-1].body == body and not await stream.messages(other)

    await eventually(is_last, within_seconds=GONE_SECONDS, describe="the generated message has landed")


async def wait_until_gone(stream: FlaggedStream) -> None:
    async def gone() -> bool:
        return not await stream.messages("s")

    await eventually(gone, within_seconds=GONE_SECONDS, describe=f"the schedule of {stream.name} is gone")


async def wait_until_one_is_left(stream: FlaggedStream) -> None:
    async def is_alone() -> bool:
        return [message.body for message in await stream.messages("s")] == [b"generated"]

    await eventually(is_alone, within_seconds=GONE_SECONDS, describe="the schedule has expired")


def consumer(rest: str = ">", durable: str = "worker") -> Stop:
    """Have a consumer."""

    async def add(stream: FlaggedStream) -> None:
        await stream.add_consumer(durable, rest)

    return add


async def acknowledge(stream: FlaggedStream) -> None:
    for message in await stream.take("worker"):
        await stream.acknowledge(message)


async def terminate(stream: FlaggedStream) -> None:
    for message in await stream.take("worker"):
        await stream.acknowledge(message, b"+TERM")


async def take_without_acknowledging(stream: FlaggedStream) -> None:
    await stream.take("worker")


async def delete_the_consumer(stream: FlaggedStream) -> None:
    await stream.account.api.call(f"CONSUMER.DELETE.{stream.name}.worker")
    await wait_until_gone(stream)


async def consumers_of_its_own_and_of_the_canary(stream: FlaggedStream) -> None:
    for durable, rest in (("worker", "s"), ("canary", "canary"), ("canaries", "canary.>"), ("targets", "out")):
        await stream.add_consumer(durable, rest)


async def not_acknowledging(stream: FlaggedStream) -> None:
    await stream.add_consumer("worker", "s", ack_policy="none")
    await stream.add_consumer("canary", "canary")
    await stream.add_consumer("canaries", "canary.>")


async def acknowledge_all_below(stream: FlaggedStream) -> None:
    """Take the schedule and what came after it, and acknowledge both with the answer to the later one."""
    await stream.publish("after", body=b"after")
    await stream.acknowledge((await stream.take("all", 2))[-1])
    await wait_until_gone(stream)


async def acknowledging_all(stream: FlaggedStream) -> None:
    await stream.add_consumer("all", ack_policy="all")


async def plain_message_first(stream: FlaggedStream) -> None:
    await stream.publish("plain", body=b"plain")


TTL = {"allow_msg_ttl": True}
WITH_TTL = tuple(version for version in COMPARED_VERSIONS if version != V2_10)
WORK_QUEUE = {"retention": "workqueue"}
INTEREST = {"retention": "interest"}

CASES: dict[str, Case] = {
    "deleted": Case(delete),
    "erased": Case(erase),
    "purged": Case(purge(filter="s")),
    "purged by a wildcard": Case(purge(filter="*")),
    "another subject purged": Case(purge(filter="t")),
    "purged but for one": Case(purge(filter="s", keep=1)),
    "purged by a sequence above": Case(purge_below_the_next),
    "purged by its own sequence": Case(purge_below_itself, before=plain_message_first),
    "the stream purged": Case(purge()),
    "the stream purged but for none": Case(purge(keep=1)),
    "deleted, over an older version": Case(delete, before=replace("@at 2100-01-01T00:00:00Z")),
    "replaced, the newer deleted": Case(replace_and_delete_the_newest),
    "plain message, deleted again": Case(overwrite_and_delete_the_newest),
    "plain message": Case(publish("s")),
    "empty plain message": Case(publish("s", b"")),
    "plain message with headers": Case(publish("s", X_Kind="order")),
    "plain message elsewhere": Case(publish("t")),
    "replaced by @at": Case(replace("@at 2100-01-01T00:00:00Z")),
    "replaced by cron": Case(replace("0 0 0 1 1 *")),
    "replaced by @every": Case(replace("@every 24h")),
    "replaced by the same": Case(replace("@at 2100-01-01T00:00:00Z", target="out")),
    "replaced by an invalid pattern": Case(replace("@at soon")),
    "replaced by one without a target": Case(replace("@every 1s", target="")),
    "replaced by one with a bad roll-up": Case(replace("@every 1s", more={"Rollup": "all"})),
    "rolled up": Case(publish("s", Nats_Rollup="sub")),
    "all rolled up from elsewhere": Case(publish("t", Nats_Rollup="all")),
    "a generated message lands on it": Case(land_on_it),
    "a generated message lands on it and rolls up": Case(land_on_it_with_a_roll_up),
    "three generated messages land on it": Case(land_on_it_often),
    "a generated sample lands on it": Case(land_a_sample_on_it),
    "what landed expires": Case(land_what_expires, TTL, versions=WITH_TTL),
    "landed, and deleted again": Case(landed_and(delete_what_landed)),
    "landed, and it is deleted": Case(landed_and(delete_what_lies_under)),
    "landed, and its subject is purged": Case(landed_and(purge(filter="s"))),
    "landed, and its subject is purged but for that": Case(landed_and(purge(filter="s", keep=1))),
    "landed, and a plain message": Case(landed_and(publish("s"))),
    "landed, a plain message, and landed again": Case(landed_and(publish("s"), land_on_it)),
    "landed, and replaced": Case(landed_and(replace("@at 2100-01-01T00:00:00Z"))),
    "landed, replaced, and landed again": Case(landed_and(replace("@at 2100-01-01T00:00:00Z"), land_on_it)),
    "landed, and cancelled": Case(landed_and(cancel())),
    "landed, and cancelled with the guard of what landed": Case(landed_and(cancel(guard=0))),
    "landed, and its Nats-TTL runs out": Case(
        landed_and(wait_until_one_is_left), TTL, {"Nats-TTL": "1s"}, versions=WITH_TTL
    ),
    "landed with max_msgs_per_subject 1": Case(land_on_it, {"max_msgs_per_subject": 1}),
    "landed with max_msgs_per_subject 2, twice": Case(landed_and(land_on_it), {"max_msgs_per_subject": 2}),
    "landed on a work queue": Case(land_on_it, WORK_QUEUE),
    "landed on a work queue, and taken away": Case(
        landed_and(acknowledge_what_landed), WORK_QUEUE, before=consumer("s")
    ),
    "landed on a work queue, and both taken away": Case(landed_and(acknowledge_both), WORK_QUEUE, before=consumer("s")),
    "landed on an interest stream": Case(land_on_it, INTEREST, before=consumer()),
    "another one cancelled on its subject": Case(cancel_another_on_it()),
    "another one cancelled on its subject, with a roll-up": Case(cancel_another_on_it({"Nats-Rollup": "sub"})),
    "max_age": Case(wait_until_gone, {"max_age": 3 * SECOND}),
    "Nats-TTL": Case(wait_until_gone, TTL, {"Nats-TTL": "1s"}, versions=WITH_TTL),
    "Nats-TTL that lasts": Case(publish("t"), TTL, {"Nats-TTL": "1h"}, versions=WITH_TTL),
    "max_msgs": Case(publish("t", times=2), {"max_msgs": 2}),
    "max_bytes": Case(publish("t", bytes(700), times=3), {"max_bytes": 2048}),
    "max_msgs_per_subject 1, plain message": Case(publish("s"), {"max_msgs_per_subject": 1}),
    "max_msgs_per_subject 1, replaced": Case(replace("@at 2100-01-01T00:00:00Z"), {"max_msgs_per_subject": 1}),
    "max_msgs_per_subject 2, plain messages": Case(publish("s", times=2), {"max_msgs_per_subject": 2}),
    "max_msgs_per_subject 1, target": Case(publish("out"), {"max_msgs_per_subject": 1}),
    "acknowledged on a work queue": Case(acknowledge, WORK_QUEUE, before=consumer("s")),
    "acknowledged on an interest stream": Case(acknowledge, INTEREST, before=consumer()),
    "acknowledged on a limits stream": Case(acknowledge, before=consumer("s")),
    "acknowledged with the next on an interest stream": Case(acknowledge_all_below, INTEREST, before=acknowledging_all),
    "taken from a work queue": Case(take_without_acknowledging, WORK_QUEUE, before=consumer("s")),
    "terminated on a work queue": Case(terminate, WORK_QUEUE, before=consumer("s")),
    "terminated on an interest stream": Case(terminate, INTEREST, before=consumer()),
    "taken without acknowledgement from an interest stream": Case(
        take_without_acknowledging, INTEREST, before=not_acknowledging
    ),
    "its only consumer deleted": Case(delete_the_consumer, INTEREST, before=consumers_of_its_own_and_of_the_canary),
    "cancelled": Case(cancel()),
    "cancelled, on the target": Case(cancel(rest="out")),
    "cancelled with a new schedule": Case(cancel_with_a_new_schedule),
    "cancelled with a roll-up": Case(cancel(Nats_Rollup="sub")),
    "cancelled on a work queue": Case(cancel(), WORK_QUEUE),
    "cancelled on an interest stream": Case(cancel(), INTEREST, before=consumer()),
    "cancelled with the right guard": Case(cancel(guard=0)),
    "cancelled with a wrong guard": Case(cancel(guard=7)),
    "cancel that names itself": Case(cancel("cancels")),
    "cancel that names a plain subject": Case(cancel("plain"), before=plain_message_first),
    "cancel that names an empty subject": Case(cancel("nothing")),
    "cancel that names another stream": Case(cancel("outside.s")),
    "cancel that names a wildcard": Case(cancel("*")),
    "cancel with another word": Case(cancel(Nats_Schedule_Next="Purge")),
    "cancel without a word": Case(publish("cancels", Nats_Schedule_Next="")),
}

REPEATING = {
    name: CASES[name]
    for name in (
        "deleted",
        "purged",
        "the stream purged",
        "plain message",
        "replaced by @at",
        "a generated message lands on it",
        "three generated messages land on it",
        "a generated sample lands on it",
        "landed, and deleted again",
        "landed, and it is deleted",
        "landed, and its subject is purged",
        "landed, and its subject is purged but for that",
        "landed, and a plain message",
        "landed, a plain message, and landed again",
        "landed, and replaced",
        "landed with max_msgs_per_subject 1",
        "landed with max_msgs_per_subject 2, twice",
        "landed on a work queue",
        "landed on a work queue, and taken away",
        "landed on a work queue, and both taken away",
        "another one cancelled on its subject",
        "a generated message lands on it and rolls up",
        "cancelled",
        "max_msgs_per_subject 1, plain message",
        "acknowledged on a work queue",
        "acknowledged on an interest stream",
        "cancelled on a work queue",
    )
}
