"""Limits, work queue and interest streams: what consumers are given, and what remains, is the same on all sides.

A case is one stream on every side, and all cases run at once.
Intervals fire at other instants on each side, so of them only the first fires are compared.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.differential.differences import Allowance, Differences
from tests.differential.sides import ComparedSide, few_at_once, fresh_name, on_each
from tests.harness.account import in_seconds
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import EMULATED_VERSIONS

RETENTIONS = ("limits", "workqueue", "interest")
SOON = 3.0
"""The delay (s) of fires: they come after the rest of their case was said, with a hundred streams at once."""

Story = Callable[[FlaggedStream], Awaitable[Any]]


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


# -- stories -----------------------------------------------------------------------------------------------------------


async def delays(stream: FlaggedStream) -> Any:
    """Plain and sampling delays: all are given to the consumer, and the schedules are gone."""
    await keep_interest(stream)
    await stream.publish("sensor", {"Kind": "reading"}, b"20.5")
    for number in range(3):
        await stream.schedule(f"s.at{number}", f"@at {in_seconds(SOON)}", b"%d" % number, f"out.at{number}")
    sensor = {"Source": stream.subject("sensor")}
    await stream.schedule("s.sample", f"@at {in_seconds(SOON)}", b"own", "out.sample", sensor)
    nothing = {"Source": stream.subject("sensor.broken")}
    await stream.schedule("s.empty", f"@at {in_seconds(SOON)}", b"own", "out.empty", nothing)
    await stream.canary(SOON + 0.4)
    return await given(stream, "outs", 5), await remaining(stream)


async def intervals(stream: FlaggedStream) -> Any:
    """A plain and a sampling interval: each fire is given to the consumer, and the schedules stay."""
    await keep_interest(stream)
    await stream.publish("sensor", body=b"20.5")
    await stream.schedule("s.every", "@every 1s", b"tick", "out.every")
    await stream.schedule("s.sample", "* * * * * *", b"own", "out.sample", {"Source": stream.subject("sensor")})
    taken: dict[str, list[bytes]] = {"out.every": [], "out.sample": []}
    while min(map(len, taken.values())) < 2:
        for subject, body in await given(stream, "outs", 1):
            taken[subject].append(body)
    stays = [one for one in await remaining(stream) if not one[0].startswith("out")]
    return {subject: bodies[:2] for subject, bodies in taken.items()}, stays


async def consumed_source(stream: FlaggedStream) -> Any:
    """A source whose last message was acknowledged: where that removes it, the fire has the schedule's own body."""
    await keep_interest(stream)
    await stream.publish("sensor", body=b"20.5")
    sensor = {"Source": stream.subject("sensor")}
    await stream.schedule("s.sample", f"@at {in_seconds(SOON)}", b"own", "out.sample", sensor)
    consumed = await given(stream, "sensor", 1)
    await stream.canary(SOON + 0.4)
    return consumed, await given(stream, "outs", 1), await remaining(stream)


async def replaced_source(stream: FlaggedStream) -> Any:
    """The last message of a source counts, at the time of the fire."""
    await keep_interest(stream)
    sensor = {"Source": stream.subject("sensor")}
    await stream.schedule("s.sample", f"@at {in_seconds(SOON)}", b"own", "out.sample", sensor)
    for reading in (b"20.5", b"21.0", b"21.5"):
        await stream.publish("sensor", body=reading)
    await stream.canary(SOON + 0.4)
    return await given(stream, "outs", 1), await remaining(stream)


async def rolled_up_targets(stream: FlaggedStream) -> Any:
    """A fire that rolls up its target: what was there before is gone, given to somebody or not."""
    await keep_interest(stream)
    await stream.publish("out.rolled", body=b"before")
    await stream.schedule("s.roll", f"@at {in_seconds(SOON)}", b"after", "out.rolled", {"Rollup": "sub"})
    await stream.canary(SOON + 0.4)
    return await given(stream, "outs", 1), await remaining(stream)


async def nobody_takes(stream: FlaggedStream) -> Any:
    """Consumers are there and take nothing: everything remains."""
    await keep_interest(stream)
    await stream.schedule("s.at", f"@at {in_seconds(SOON)}", b"once", "out.at")
    await stream.publish("out.at", body=b"plain")
    await stream.canary(SOON + 0.4)
    return await remaining(stream)


async def no_consumer(stream: FlaggedStream) -> Any:
    """Nobody is there at all: a stream that keeps by interest keeps nothing, the others all."""
    await stream.schedule("s.at", f"@at {in_seconds(SOON)}", b"once", "out.at")
    await stream.publish("plain", body=b"plain")
    await keep_interest(stream)
    await stream.canary(SOON + 0.4)
    return await remaining(stream)


async def no_interest_in_the_schedule(stream: FlaggedStream) -> Any:
    """A schedule that an interest stream does not keep never fires."""
    for durable, rest in (("outs", "out.>"), ("canary", "canary"), ("canaries", "canary.>")):
        await stream.add_consumer(durable, rest)
    await stream.schedule("s.at", f"@at {in_seconds(SOON)}", b"once", "out.at")
    await stream.canary(SOON + 0.4)
    return await remaining(stream)


async def no_interest_in_the_target(stream: FlaggedStream) -> Any:
    """A delay whose fire nobody wants is done all the same."""
    for durable, rest in (("s", "s.>"), ("canary", "canary"), ("canaries", "canary.>")):
        await stream.add_consumer(durable, rest)
    await stream.schedule("s.at", f"@at {in_seconds(SOON)}", b"once", "out.at")
    await stream.canary(SOON + 0.4)
    return await remaining(stream)


async def two_consumers_of_the_target(stream: FlaggedStream) -> Any:
    """Where interest counts, a fire stays until the last consumer has acknowledged it."""
    await keep_interest(stream)
    if (await stream.call("STREAM.INFO"))["config"]["retention"] != "workqueue":
        await stream.add_consumer("second", "out.>")
    await stream.schedule("s.at", f"@at {in_seconds(SOON)}", b"once", "out.at")
    await stream.canary(SOON + 0.4)
    return await given(stream, "outs", 1), await remaining(stream)


async def the_schedule_is_given_too(stream: FlaggedStream) -> Any:
    """A schedule is a message like any other: its consumer is given it, and its acknowledgement may end it."""
    await keep_interest(stream)
    await stream.schedule("s.at", f"@at {in_seconds(SOON)}", b"once", "out.at")
    seen = await given(stream, "ss", 1)
    await stream.canary(SOON + 0.4)
    return seen, await remaining(stream)


STORIES: tuple[Story, ...] = (
    delays,
    intervals,
    consumed_source,
    replaced_source,
    rolled_up_targets,
    nobody_takes,
    no_consumer,
    no_interest_in_the_schedule,
    no_interest_in_the_target,
    two_consumers_of_the_target,
    the_schedule_is_given_too,
)


@pytest.mark.clause("retention-limits", "retention-workqueue", "retention-interest", "no-interest")
async def test_consumers_are_given_the_same_and_the_same_remains(sides: list[ComparedSide]) -> None:
    found, prefix = Differences(), fresh_name()

    async def tell(number: int, retention: str, story: Story) -> None:
        async def on(side: ComparedSide) -> Any:
            name = f"{prefix}N{number}"
            await side.create(name, retention=retention, allow_rollup_hdrs=True)
            return await story(FlaggedStream(side.account, name))

        found.compare(f"{retention}: {story.__name__}", await on_each(sides, on))

    cases = [(retention, story) for retention in RETENTIONS for story in STORIES]
    await few_at_once(tell(number, *case) for number, case in enumerate(cases))
    found.check(at_least=len(cases))


@pytest.mark.clause("no-interest")
async def test_an_interval_whose_target_nobody_wants_lives_until_somebody_does(sides: list[ComparedSide]) -> None:
    """The native one hangs for good: better here."""
    name = fresh_name()

    async def on(side: ComparedSide) -> int:
        await side.create(name, retention="interest")
        stream = FlaggedStream(side.account, name)
        for durable, rest in (("s", "s.>"), ("canary", "canary"), ("canaries", "canary.>")):
            await stream.add_consumer(durable, rest)
        await stream.schedule("s.every", "@every 1s", b"tick", "out.every")
        await stream.canary(1.8)
        await stream.add_consumer("outs", "out.>")
        await stream.canary(1.5)
        return len(await stream.messages("out.every"))

    def lives_on(wanted: int, value: int) -> bool:
        return wanted == 0 and value >= 1

    found = Differences((Allowance("no-interest", EMULATED_VERSIONS, lives_on),))
    found.compare("an interval that nobody wanted", await on_each(sides, on))
    found.check()
