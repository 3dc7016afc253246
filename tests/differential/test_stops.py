"""Every way to stop a schedule: on all sides nothing fires any more, and the same is stored in the end.

A case is one stream on every side, and many cases run at once.
That nothing fires is shown by a canary: a schedule due later than the stopped one, in the same stream, that has fired.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.differential.differences import Allowance, Differences
from tests.differential.sides import COMPARED_VERSIONS, ComparedSide, fresh_name, on_each
from tests.harness.account import CLOCK
from tests.harness.blocks import block_to_send
from tests.harness.flagged import FlaggedStream
from tests.harness.leads import OvertakenError, with_more_time
from tests.harness.servers import EMULATED_VERSIONS, V2_10
from tests.harness.waiting import PATIENCE_SECONDS, eventually, few_at_once, instant_reached

DUE_SECONDS = (4, 16, 64)
"""The delay (s) of the schedule that is stopped: if a busy machine needs longer to stop it, the case is run again."""
MARGIN_SECONDS = 0.3
"""The time before it is due by which the schedule has to be stopped, so that no step of the case finds it fired."""

PURGE_SECONDS = 8.0
"""The longest time in which a busy machine purges a schedule after its fire, and after the canary is purged."""

FAR, PAST = "@at 2100-01-01T00:00:00Z", "@at 2020-01-01T00:00:00Z"

# -- ways to stop the schedule on `s` --------------------------------------------------------------------------------

Stop = Callable[[FlaggedStream], Awaitable[object]]


def then(*acts: Stop) -> Stop:
    """Do one after the other."""

    async def stop(stream: FlaggedStream) -> None:
        for act in acts:
            await act(stream)

    return stop


async def sequence_of(stream: FlaggedStream) -> int:
    return (await stream.messages("s"))[-1].sequence


def delete(which: int = -1, *, erase: bool = False) -> Stop:
    """Delete one of the messages on the subject."""

    async def stop(stream: FlaggedStream) -> None:
        sequence = (await stream.messages("s"))[which].sequence
        await stream.call("STREAM.MSG.DELETE", {"seq": sequence, **({} if erase else {"no_erase": True})})

    return stop


def purge(subject: str | None = None, below: int | None = None, **body: Any) -> Stop:
    """Purge; `below` is added to the sequence of the schedule, below which is purged.

    For the older servers a sequence of 1 means none, so a message has to lie below the schedule.
    """

    async def stop(stream: FlaggedStream) -> None:
        wanted = body if subject is None else {"filter": stream.subject(subject), **body}
        wanted = wanted if below is None else {**wanted, "seq": await sequence_of(stream) + below}
        await stream.call("STREAM.PURGE", wanted)

    return stop


def publish(rest: str, body: bytes = b"plain", times: int = 1, **headers: str) -> Stop:
    """Publish something that is no schedule; `_` in the name of a header stands for a hyphen."""

    async def stop(stream: FlaggedStream) -> None:
        for _ in range(times):
            await stream.publish(rest, {key.replace("_", "-"): value for key, value in headers.items()}, body)

    return stop


async def say(stream: FlaggedStream, rest: str, headers: Mapping[str, str], body: bytes) -> None:
    """Publish what some of the sides refuse."""
    await stream.account.connection.request(stream.subject(rest), body, block_to_send(headers), PATIENCE_SECONDS)


def replace(pattern: str = FAR, target: str = "later", more: dict[str, str] | None = None) -> Stop:
    """Publish another schedule; a server that refuses it is in its right."""
    return lambda stream: say(stream, "s", stream.headers(pattern, target, more), b"newer")


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
    named = {"Nats-Scheduler": stream.subject("s"), "Nats-Schedule-Next": "purge"}
    await stream.publish("other", {**stream.headers(FAR, "later"), **named}, b"newer")


def cancel_another_on_it(**more: str) -> Stop:
    """Cancel another schedule by a message on the subject."""

    async def stop(stream: FlaggedStream) -> None:
        await stream.schedule("other", FAR, b"other", "later")
        said = {"Nats-Scheduler": stream.subject("other"), "Nats-Schedule-Next": "purge"}
        await stream.publish("s", said | {key.replace("_", "-"): value for key, value in more.items()}, b"cancel")

    return stop


def land(body: bytes = b"generated", other: str = "other", sampled: str = "", **more: str) -> Stop:
    """Have another schedule fire onto the subject, of its own or of what it samples."""

    async def stop(stream: FlaggedStream) -> None:
        headers = {**more, "Source": stream.subject(sampled)} if sampled else more
        await stream.schedule(other, PAST, b"not sent" if sampled else body, "s", headers)

        async def is_last() -> bool:
            on_it = await stream.messages("s")
            return bool(on_it) and on_it[-1].body == body and not await stream.messages(other)

        await eventually(is_last, describe="the generated message has landed")

    return stop


def landed_and(*acts: Stop) -> Stop:
    """Have another schedule fire onto the subject, and do more."""
    return then(land(), *acts)


def left(count: int) -> Stop:
    """Wait until so many messages are left on the subject."""

    async def stop(stream: FlaggedStream) -> None:
        async def are_left() -> bool:
            return len(await stream.messages("s")) == count

        await eventually(are_left, describe=f"{count} are left on s of {stream.name}")

    return stop


def consumers(*filters: tuple[str, str], **config: str) -> Stop:
    """Have consumers, each with a name and a filter."""

    async def add(stream: FlaggedStream) -> None:
        for durable, rest in filters:
            await stream.add_consumer(durable, rest, **config)

    return add


def take(count: int = 1, *, answered: slice = slice(None), word: bytes = b"+ACK") -> Stop:
    """Take messages through the consumer `worker`, and answer some of them."""

    async def stop(stream: FlaggedStream) -> None:
        for message in (await stream.take("worker", count))[answered]:
            await stream.acknowledge(message, word)

    return stop


async def delete_the_consumer(stream: FlaggedStream) -> None:
    await stream.account.api.call(f"CONSUMER.DELETE.{stream.name}.worker")


NONE, LAST = slice(0), slice(-1, None)
WORKER, ALL = consumers(("worker", "s")), consumers(("worker", ">"))
CANARY = (("canary", "canary"), ("canaries", "canary.>"))


@dataclass(frozen=True)
class Case:
    """One way to stop the schedule, in a stream with this configuration."""

    stop: Stop
    config: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, str] = field(default_factory=dict)
    """Further headers of the schedule."""
    before: Stop | None = None
    """An act before the schedule is stored."""
    versions: tuple[str, ...] = COMPARED_VERSIONS


TTL = {"allow_msg_ttl": True}
WITH_TTL = tuple(version for version in COMPARED_VERSIONS if version != V2_10)
WORK_QUEUE = {"retention": "workqueue"}
INTEREST = {"retention": "interest"}

CASES: dict[str, Case] = {
    "deleted": Case(delete()),
    "erased": Case(delete(erase=True)),
    "purged": Case(purge("s")),
    "purged but for one": Case(purge("s", keep=1)),
    "purged by its own sequence": Case(purge("s", below=0), before=publish("plain")),
    "the stream purged": Case(purge()),
    "replaced, the newer deleted": Case(then(replace(), delete())),
    "plain message": Case(publish("s")),
    "replaced by @at": Case(replace()),
    "replaced by the same": Case(replace(target="out")),
    "replaced by an invalid pattern": Case(replace("@at soon")),
    "rolled up": Case(publish("s", Nats_Rollup="sub")),
    "a generated message lands on it": Case(land()),
    "what landed expires": Case(then(land(TTL="1s"), left(1)), TTL, versions=WITH_TTL),
    "landed, and deleted again": Case(landed_and(delete())),
    "landed, and a plain message": Case(landed_and(publish("s"))),
    "landed, and replaced": Case(landed_and(replace())),
    "landed, and cancelled": Case(landed_and(cancel())),
    "landed, and its Nats-TTL runs out": Case(landed_and(left(1)), TTL, {"Nats-TTL": "1s"}, versions=WITH_TTL),
    "landed on a work queue": Case(land(), WORK_QUEUE),
    "another one cancelled on its subject": Case(cancel_another_on_it()),
    "max_age": Case(left(0), {"max_age": 3 * SECOND}),
    "Nats-TTL": Case(left(0), TTL, {"Nats-TTL": "1s"}, versions=WITH_TTL),
    "max_msgs": Case(publish("t", times=2), {"max_msgs": 2}),
    "max_msgs_per_subject 1, plain message": Case(publish("s"), {"max_msgs_per_subject": 1}),
    "acknowledged on a work queue": Case(take(), WORK_QUEUE, before=WORKER),
    "acknowledged on an interest stream": Case(take(), INTEREST, before=ALL),
    "acknowledged with the next on an interest stream": Case(
        then(publish("after", b"after"), take(2, answered=LAST), left(0)),
        INTEREST,
        before=consumers(("worker", ">"), ack_policy="all"),
    ),
    "taken from a work queue": Case(take(answered=NONE), WORK_QUEUE, before=WORKER),
    "terminated on a work queue": Case(take(word=b"+TERM"), WORK_QUEUE, before=WORKER),
    "its only consumer deleted": Case(
        then(delete_the_consumer, left(0)),
        INTEREST,
        before=consumers(("worker", "s"), ("targets", "out"), *CANARY),
    ),
    "cancelled": Case(cancel()),
    "cancelled with a new schedule": Case(cancel_with_a_new_schedule),
    "cancelled with the right guard": Case(cancel(guard=0)),
    "cancelled with a wrong guard": Case(cancel(guard=7)),
    "cancel that names itself": Case(cancel("cancels")),
    "cancel that names a plain subject": Case(cancel("plain"), before=publish("plain")),
    "cancel that names an empty subject": Case(cancel("nothing")),
    "cancel that names another stream": Case(cancel("outside.s")),
    "cancel that names a wildcard": Case(cancel("*")),
    "cancel without a word": Case(publish("cancels", Nats_Schedule_Next="")),
}

# -- what is compared ------------------------------------------------------------------------------------------------


Stored = dict[str, list[bytes | None]]


async def stored(stream: FlaggedStream) -> Stored:
    """Return the bodies on each subject, but for the canary's."""
    found: Stored = {}
    for message in await stream.messages(">"):
        rest = message.subject.removeprefix(f"{stream.name}.")
        if not rest.startswith("canary"):
            found.setdefault(rest, []).append(message.body)
    return found


async def stored_in_the_end(stream: FlaggedStream) -> Stored:
    """Return the bodies once a schedule that has fired is purged; in some cases what lies there stays."""

    async def is_over() -> bool:
        return not {"s", "out"} <= (await stored(stream)).keys()

    with suppress(AssertionError):
        await eventually(is_over, within_seconds=PURGE_SECONDS)
    return await stored(stream)


async def new_stream(side: ComparedSide, name: str, case: Case) -> FlaggedStream:
    await side.create(name, **{"allow_rollup_hdrs": True, **case.config})
    stream = FlaggedStream(side.account, name)
    if case.before is not None:
        await case.before(stream)
    return stream


async def stop_a_delay(side: ComparedSide, name: str, case: Case) -> Stored:
    """Stop an `@at` before it is due, and return what is stored once a later one has fired."""

    async def stopped(seconds: float) -> Stored:
        stream = await new_stream(side, f"{name}S{seconds:g}", case)
        due = CLOCK.now() + int(seconds * SECOND)
        headers = {**stream.headers(f"@at {format_rfc3339(due)}"), **case.schedule}
        try:
            async with asyncio.timeout(seconds - MARGIN_SECONDS):
                await stream.publish("s", headers, b"fires")
                await case.stop(stream)
        except TimeoutError:
            raise OvertakenError from None
        # The canary is stored last: it must neither age nor be evicted before the schedule is due.
        await instant_reached(due, CLOCK.now)
        await stream.canary(0.1)
        return await stored_in_the_end(stream)

    return await with_more_time(stopped, DUE_SECONDS)


async def compare_all(
    sides: list[ComparedSide],
    cases: dict[str, Case],
    act: Callable[[ComparedSide, str, Case], Awaitable[Any]],
    found: Differences,
) -> None:
    """Run all cases on every side that knows them, and compare each."""
    prefix = fresh_name()

    async def run(number: int, title: str, case: Case) -> None:
        known = [side for side in sides if side.version in case.versions]
        found.compare(title, await on_each(known, lambda side: act(side, f"{prefix}N{number}", case)))

    await few_at_once(run(number, title, case) for number, (title, case) in enumerate(cases.items()))


# -- differences that the document names ---------------------------------------------------------------------------

FIRES: Stored = {"out": [b"fires"]}


def is_ended_by_a_rejected_one(wanted: Stored, value: Stored) -> bool:
    """A native server refuses an invalid replacement; where it is stored, it is the last word on its subject."""
    return wanted == FIRES and value == {"s": [b"fires", b"newer"]}


def is_stored_though_refused(wanted: Stored, value: Stored) -> bool:
    """A native server refuses a wrong cancel; where it is stored, it ends nothing."""
    return "out" in wanted and value == {**wanted, "cancels": [b"cancel"]}


def is_cancelled_under_a_fire(wanted: Stored, value: Stored) -> bool:
    """A native server refuses to cancel what something lies on; where the cancel is stored, it ends the schedule."""
    return wanted == FIRES and value == {"cancels": [b"cancel"]}


def is_refused_by_the_guard(wanted: Stored, value: Stored) -> bool:
    """Without the header for another subject the guard is checked on the cancel's own subject, and refuses."""
    return wanted == {"cancels": [b"cancel"]} and value == FIRES


NAMED = (
    Allowance("rejected-schedules", EMULATED_VERSIONS, is_ended_by_a_rejected_one),
    Allowance("cancel", EMULATED_VERSIONS, is_stored_though_refused),
    Allowance("cancel", EMULATED_VERSIONS, is_cancelled_under_a_fire),
    Allowance("cancel-guarded", (V2_10,), is_refused_by_the_guard),
)


@pytest.mark.clause("stop-delete", "stop-purge", "stop-ttl", "stop-max-age", "stop-eviction", "stop-replaced")
@pytest.mark.clause("stop-plain-message", "stop-generated-message", "stop-ack", "rejected-schedules")
@pytest.mark.clause("cancel", "cancel-guarded", "old-versions")
async def test_a_stopped_delay_ends_in_the_same_state(sides: list[ComparedSide]) -> None:
    found = Differences(NAMED)
    await compare_all(sides, CASES, stop_a_delay, found)
    found.check(at_least=len(CASES))
