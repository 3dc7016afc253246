"""A schedule lives on under what other schedules fire onto its subject, again and again, on every side.

What else may happen to it then is a case of `ways_to_stop`.
"""

from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from nats_scheduler.message.headers import header_value
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.conftest import SharedServer
from tests.differential.differences import Differences
from tests.differential.sides import ComparedSide, fresh_name, on_each
from tests.harness.account import WAIT_SECONDS, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import ALL_VERSIONS, EMULATED_VERSIONS
from tests.harness.waiting import eventually

FIRES = 6
"""Fires of one second each that are watched: long enough that each of them comes just before or behind a landing."""

RETENTIONS = ["limits", "workqueue"]


def portable(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of a schedule in the spelling that no server looks at."""
    return {f"X-{name}": value for name, value in headers.items()}


async def fire_onto_each_other(stream: FlaggedStream, *, prefix: str = "") -> list[str]:
    """Have intervals fire onto one that fires elsewhere, and onto each other; returns what is odd about the fires."""

    async def schedule(rest: str, target: str, body: bytes) -> None:
        headers = stream.headers("@every 1s", target)
        await stream.publish(rest, portable(headers) if prefix else headers, body)

    await schedule("before", "s", b"landed")
    await schedule("s", "out", b"own")
    await schedule("behind", "s", b"landed too")
    await schedule("one", "other", b"one")
    await schedule("other", "one", b"other")
    await stream.wait_for("out", FIRES)
    await stream.wait_for("one", FIRES)
    found = []
    for rest, bodies in (("out", {b"own"}), ("one", {b"one", b"other"}), ("s", {b"own", b"landed", b"landed too"})):
        messages = await stream.messages(rest)
        if {message.body for message in messages} != bodies:
            found.append(f"{rest} holds {sorted({message.body or b'' for message in messages})}")
    name = f"{prefix}Nats-Schedule-Next".encode()
    following = [parse_rfc3339((header_value(m.block, name) or b"").decode()) for m in await stream.messages("out")]
    steps = {later - sooner for sooner, later in pairwise(following)
             if isinstance(sooner, int) and isinstance(later, int)}  # fmt: skip
    return [*found, *([] if steps == {SECOND} else [f"its fires are {steps} apart"])]


@pytest.mark.clause("stop-generated-message")
async def test_a_schedule_lives_on_under_what_landed(sides: list[ComparedSide]) -> None:
    name = fresh_name()

    async def watched(side: ComparedSide) -> list[str]:
        await side.create(name)
        return await fire_onto_each_other(FlaggedStream(side.account, name))

    found = Differences()
    told = await on_each(sides, watched)
    found.compare("intervals that fire onto each other", told)
    found.check()
    assert all(odd == [] for odd in told.values()), told


@pytest.mark.clause("stop-generated-message", "portable-headers")
@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_a_portable_schedule_lives_on_under_what_landed(shared_server: SharedServer, version: str) -> None:
    name = fresh_name()
    async with AsyncExitStack() as stack:
        server = await shared_server(version)
        account = await stack.enter_async_context(account_on(server.url))
        running = await stack.enter_async_context(sidecar_on(server.url, portable_streams=(name,)))
        await account.create(name, allow_msg_schedules=False)
        await running.ready(name)
        assert await fire_onto_each_other(FlaggedStream(account, name), prefix="X-") == []


@pytest.mark.clause("stop-generated-message")
@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_it_is_found_again_when_a_sidecar_starts(
    shared_server: SharedServer, version: str, retention: str
) -> None:
    name = fresh_name()
    server = await shared_server(version)
    async with account_on(server.url) as account:
        stream = FlaggedStream(account, name)
        async with sidecar_on(server.url) as running:
            await account.create(name, retention=retention)
            await running.ready(name)
            await stream.schedule("s", f"@at {in_seconds(8)}", b"own")
            await stream.schedule("ended", f"@at {in_seconds(8)}", b"ended")
            for number in range(3):
                onto = await stream.schedule(f"onto.{number}", "@at 2020-01-01T00:00:00Z", b"landed", "s")
                await stream.publish("ended")
                await stream.schedule(f"onto.ended.{number}", "@at 2020-01-01T00:00:00Z", b"landed", "ended")
                assert onto
            await stream.wait_for("s", 4)
            await stream.wait_for("ended", 7)
        async with sidecar_on(server.url) as running:
            await running.ready(name)
            await stream.wait_for("out")

            async def are_removed() -> bool:
                return await stream.messages("s") == []

            await eventually(are_removed, within_seconds=WAIT_SECONDS, describe="what had landed is removed")
            await stream.canary(1)
            assert [message.body for message in await stream.messages("out")] == [b"own"]
