"""Fires into other streams, on the stream in memory and on real servers: how they are answered, and found again.

What was read of a target is in `jetstream.target_fires`.
"""

import pytest

from nats_scheduler.engine.fire import FetchDuplicate, LookForFire
from nats_scheduler.engine.inputs import (
    NO_STREAM,
    DuplicateFetched,
    FireLookedFor,
    PublishConcluded,
    Refused,
    Stored,
    Unanswered,
)
from nats_scheduler.message.headers import with_header
from nats_scheduler.schedule.instants import SECOND
from tests.contract.sides import PortSide


def found(side: PortSide, sequences: list[int], answer: FireLookedFor) -> None:
    """Check which messages of the other stream were found."""
    assert [message.sequence for message in answer.found] == sequences
    assert all(message.body is None for message in answer.found)


async def test_an_acknowledgement_names_the_other_stream(side: PortSide) -> None:
    other = await side.add_stream()
    await other.publish(f"{side.name}_OTHER.run")
    fire = side.elsewhere()
    assert await side.outcome(fire) == Stored(2, stream=f"{side.name}_OTHER")
    assert await side.outcome(fire) == Stored(2, duplicate=True, stream=f"{side.name}_OTHER")
    assert await side.stored() == [], "nothing of it is in the stream of the schedule"
    side.contact.ask(FetchDuplicate(fire, 2, f"{side.name}_OTHER"))
    [read] = await side.hears(DuplicateFetched)
    assert read.message is not None
    assert (read.message.subject, read.message.block, read.message.body) == (fire.target, fire.block, b"body")


async def test_fires_into_both_streams_are_each_answered_once(side: PortSide) -> None:
    await side.add_stream()
    fires = [side.fire() if number % 3 else side.elsewhere(fire_time=number) for number in range(300)]
    side.contact.publish(fires)
    concluded = await side.hears(PublishConcluded, 300)
    assert {id(answer.fire) for answer in concluded} == {id(fire) for fire in fires}
    assert all(isinstance(answer.outcome, Stored) for answer in concluded)
    assert len(await side.stored()) == 200


async def test_a_fire_elsewhere_is_refused_without_a_stream_there(side: PortSide) -> None:
    fire = side.elsewhere()
    assert await side.outcome(fire) == NO_STREAM
    look = LookForFire(fire, 0, 0)
    side.contact.ask(look)
    assert await side.hears(Unanswered) == [Unanswered(look, NO_STREAM.description, refusal=NO_STREAM)]
    await side.add_stream(allow_rollup_hdrs=False)
    fire.block = with_header(fire.block, b"Nats-Rollup", b"sub")
    refused = await side.outcome(fire)
    assert isinstance(refused, Refused)
    assert refused.code == 10111


async def test_a_fire_that_lies_last_is_found_until_it_is_removed(side: PortSide) -> None:
    other = await side.add_stream()
    fire = side.elsewhere(fire_time=5 * SECOND)
    found(side, [], await side.looked_for(fire))
    await side.outcome(fire)
    found(side, [1], await side.looked_for(fire))
    found(side, [], await side.looked_for(side.elsewhere(fire_time=5 * SECOND, sequence=8)))
    found(side, [], await side.looked_for(side.elsewhere(fire_time=5 * SECOND, schedule="another")))
    found(side, [1], await side.looked_for(side.elsewhere(fire_time=4 * SECOND)))
    found(side, [], await side.looked_for(side.elsewhere(fire_time=6 * SECOND)))
    older = await side.looked_for(side.elsewhere(fire_time=6 * SECOND), since=1 << 62, first=5 * SECOND)
    found(side, [1], older)
    await other.delete(1)
    found(side, [], await side.looked_for(fire))


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_a_fire_is_found_under_the_messages_of_others(side: PortSide, retention: str) -> None:
    other = await side.add_stream(retention=retention)
    subject = f"{side.name}_OTHER.run"
    for number in range(40):
        await other.publish(subject if number % 2 else f"{subject}.else")
    fires = [side.elsewhere(fire_time=number, schedule=f"s{number}") for number in range(5)]
    for fire in fires:
        await side.outcome(fire)
        await other.publish(subject)
    for number, fire in enumerate(fires):
        found(side, [41 + 2 * number], await side.looked_for(fire))
    later = side.elsewhere(fire_time=9, schedule="s1")
    await side.outcome(later)
    await other.publish(subject)
    found(side, [51], await side.looked_for(later))
    both = await side.looked_for(fires[1])
    assert sorted(message.sequence for message in both.found) == [43, 51]
    found(side, [], await side.looked_for(side.elsewhere(fire_time=1, schedule="never")))
    assert await other.consumers() == 0 or retention == "limits"
