"""The promises of the contract about unfinished fires: on streams that keep what is acknowledged, and on others."""

import pytest

from nats_scheduler.engine.fire import CheckFinished
from nats_scheduler.engine.inputs import FinishChecked
from tests.contract.conftest import OpenSide
from tests.contract.sides import PortSide
from tests.harness.blocks import block_of

CONSUMED, INTEREST = {"retention": "workqueue"}, {"retention": "interest"}
WORKERS = "workers"


def block_of_fire(side: PortSide, schedule: str = "schedule") -> bytes:
    return block_of(("X-Nats-Scheduler", side.subject(schedule)), ("X-Nats-Schedule-Next", "purge"))


def question(
    side: PortSide, after: int, through: int, consumer: str | None = None, *, target: str = "out"
) -> CheckFinished:
    return CheckFinished(side.subject("schedule"), 1, side.subject(target), after, through, consumer)


async def checked(side: PortSide, request: CheckFinished) -> FinishChecked:
    """Ask, and return the answer."""
    before = len(side.received(FinishChecked))
    side.contact.ask(request)
    answer = (await side.hears(FinishChecked, before + 1))[before]
    assert answer.request == request
    return answer


async def unfinished(side: PortSide, after: int, through: int, consumer: str | None = None) -> int:
    """Return the sequence of the unfinished fire, 0 for none."""
    return (await checked(side, question(side, after, through, consumer))).unfinished


@pytest.mark.parametrize("retention", [CONSUMED, INTEREST], ids=["work queue", "interest"])
async def test_a_fire_is_finished_once_its_acknowledgement_removed_it(
    open_side: OpenSide, retention: dict[str, str]
) -> None:
    async with open_side(**retention) as side:
        await side.add_consumer(WORKERS, "out")
        first, second = [await side.store("out", block_of_fire(side)) for _ in range(2)]
        answer = await checked(side, question(side, first - 1, first))
        assert (answer.unfinished, answer.fault) == (first, "")
        assert answer.stored_at > 0
        await side.acknowledge(WORKERS, first)
        if (first, "out") in await side.stored():
            await side.delete(first)  # a stream in memory removes nothing by itself
        assert await unfinished(side, first - 1, first) == 0
        assert await unfinished(side, second - 1, second) == second


async def test_a_kept_fire_is_finished_once_it_is_acknowledged(side: PortSide) -> None:
    await side.add_consumer(WORKERS)
    await side.add_consumer("others")
    await side.store("schedule")
    fire = await side.store("out", block_of_fire(side))
    assert await unfinished(side, fire - 1, fire, WORKERS) == fire
    await side.acknowledge("others", fire - 1)
    await side.acknowledge("others", fire)
    assert await unfinished(side, fire - 1, fire, WORKERS) == fire, "another consumer says nothing about it"
    await side.acknowledge(WORKERS, fire - 1)
    assert await unfinished(side, fire - 1, fire, WORKERS) == fire
    await side.acknowledge(WORKERS, fire)
    assert await unfinished(side, fire - 1, fire, WORKERS) == 0


async def test_a_kept_fire_is_finished_with_those_before_it(side: PortSide) -> None:
    await side.add_consumer(WORKERS, "out")
    other = await side.store("out")
    fire = await side.store("out", block_of_fire(side))
    await side.acknowledge(WORKERS, fire)
    assert await unfinished(side, fire - 1, fire, WORKERS) == fire, "it was acknowledged out of order"
    await side.acknowledge(WORKERS, other)
    assert await unfinished(side, fire - 1, fire, WORKERS) == 0
    removed = await side.store("out", block_of_fire(side))
    await side.delete(removed)
    for consumer in (WORKERS, "nobody"):
        assert await unfinished(side, removed - 1, removed, consumer) == 0, "whatever its consumer does"


async def test_a_consumer_that_cannot_finish_a_fire_is_the_fault(side: PortSide) -> None:
    await side.add_consumer(WORKERS, "elsewhere")
    fire = await side.store("out", block_of_fire(side))
    for consumer, says in (("nobody", "has no consumer 'nobody'"), (WORKERS, "does not receive")):
        answer = await checked(side, question(side, fire - 1, fire, consumer))
        assert answer.unfinished == fire
        assert says in answer.fault
        several = await checked(side, question(side, 0, fire, consumer))
        assert (several.unfinished, several.fault) == (fire, answer.fault)


async def test_a_consumer_created_behind_a_fire_holds_it_no_more(side: PortSide) -> None:
    fire = await side.store("out", block_of_fire(side))
    await side.add_consumer(WORKERS, "out", is_behind=True)
    for later in (fire, await side.store("out", block_of_fire(side))):
        for after, through in ((fire - 1, fire), (0, fire), (later - 1, later)):
            answer = await checked(side, question(side, after, through, WORKERS))
            is_held = answer.unfinished > 0 and not answer.given_up  # later servers begin with a floor behind the fire
            assert is_held is (through > fire)
            assert answer.given_up is ("holds it no more" in answer.fault)


async def test_a_fire_of_unknown_sequence_is_searched_on_the_target(open_side: OpenSide) -> None:
    async with open_side(**CONSUMED) as side:
        old = await side.store("out", block_of_fire(side))
        await side.store("elsewhere", block_of_fire(side))
        await side.store("out", block_of_fire(side, "another"))
        fire = await side.store("out", block_of_fire(side))
        later = await side.store("out", block_of_fire(side))
        assert await unfinished(side, old, later) == fire
        assert await unfinished(side, old, fire - 1) == 0
        anywhere = CheckFinished(side.subject("schedule"), 1, ">", old, later)
        assert (await checked(side, anywhere)).unfinished == old + 1
        await side.delete(fire)
        assert await unfinished(side, old, later) == later
        await side.delete(later)
        assert await unfinished(side, old, later) == 0
