"""The promises of the contract if the leader is behind what was followed: in memory, and with real servers."""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest

from nats_scheduler.engine.fire import FetchContent
from nats_scheduler.engine.inputs import ContentFetched, Unanswered
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import ManualClock
from tests.conftest import SharedServer
from tests.contract.sides import PortSide, memory_config, memory_side, server_side
from tests.harness.lagging import PREFIX, lagging_leader
from tests.harness.replicated import ReplicatedStream
from tests.harness.servers import V2_10


class Lagging(NamedTuple):
    """A contact, and functions that make its leader fall behind what is stored, or catch up."""

    side: PortSide
    fall_behind: Callable[[int], None]
    """Called with the last sequence that the leader has."""
    catch_up: Callable[[], None]


@pytest.fixture(params=["memory", V2_10])
async def lagging(
    request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str
) -> AsyncIterator[Lagging]:
    """Open a side whose leader can fall behind."""
    if request.param == "memory":
        stream = ReplicatedStream(memory_config(stream_name, {}), ManualClock().now)
        async with memory_side(stream_name, {}, stream) as side:
            yield Lagging(
                side,
                lambda _applied: setattr(stream, "behind", SECOND),
                lambda: setattr(stream, "behind", 0),
            )
        return
    server = await shared_server(request.param)
    async with (
        lagging_leader(server.url, stream_name) as leader,
        server_side(server.url, stream_name, {}, prefix=PREFIX) as side,
    ):
        yield Lagging(
            side,
            lambda applied: setattr(leader, "applied", applied),
            lambda: setattr(leader, "applied", None),
        )


async def test_a_schedule_unknown_to_the_leader_is_unread_and_not_gone(lagging: Lagging) -> None:
    side, schedule = lagging.side, lagging.side.subject("schedule")
    before = await side.store("schedule", body=b"older")
    lagging.fall_behind(before)
    after = await side.store("schedule", body=b"newer")
    side.contact.ask(FetchContent(schedule, after, None))
    (unread,) = await side.hears(Unanswered)
    assert unread.question == FetchContent(schedule, after, None)
    lagging.catch_up()
    side.contact.ask(FetchContent(schedule, after, None))
    (read,) = await side.hears(ContentFetched)
    assert read.message is not None
    assert (read.message.sequence, read.message.body) == (after, b"newer")
    await side.delete(after)
    await side.delete(before)
    side.contact.ask(FetchContent(schedule, after, None))
    gone = (await side.hears(ContentFetched, 2))[1]
    assert (gone.message, len(side.received(Unanswered))) == (None, 1), "it is gone where the leader has come past it"


async def test_nothing_is_read_past_the_end_of_the_leader(lagging: Lagging) -> None:
    lagging.fall_behind(await lagging.side.store("first"))
    count = 100
    for number in range(count):
        name = f"herd.{number}"
        sequence = await lagging.side.store(name)
        lagging.side.contact.ask(FetchContent(lagging.side.subject(name), sequence, None, by_sequence=True))
    await lagging.side.hears(Unanswered, count)
    assert lagging.side.received(ContentFetched) == []
