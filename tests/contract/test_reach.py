"""Requests to the leader are answered exactly once each, and what it has accepted can be waited for.

What that wait proves if there are replicas is tested on clusters (`tests/e2e/test_identities_in_process.py`).
"""

from nats_scheduler.engine.fire import AwaitProposals
from nats_scheduler.engine.inputs import ProposalsApplied, PublishConcluded, Unanswered
from nats_scheduler.jetstream.reach import NO_SUBJECT
from tests.contract.conftest import OpenSide
from tests.contract.sides import PortSide

# -- waiting until the leader has applied what it has accepted -------------------------------------------------------


async def test_what_was_sent_before_is_stored_and_nothing_is_removed(side: PortSide) -> None:
    await side.store("schedule")
    await side.store("schedule")
    fires = [side.fire() for _ in range(100)]
    side.contact.publish(fires)
    await side.hears(PublishConcluded, len(fires))
    before = await side.stored()
    side.contact.ask(AwaitProposals(fires[0]))
    assert await side.hears(ProposalsApplied) == [ProposalsApplied(fires[0])]
    assert await side.stored() == before
    assert len(before) == 102


async def test_what_somebody_stored_on_the_subject_that_is_named_stays(open_side: OpenSide) -> None:
    async with open_side(subjects=["nats-scheduler.>"]) as side:
        fire = side.fire(target="nothing")
        fire.target = NO_SUBJECT
        side.contact.publish([fire])
        await side.hears(PublishConcluded)
        side.contact.ask(AwaitProposals(fire))
        await side.hears(ProposalsApplied)
        assert len(await side.stored()) == 1


async def test_a_stream_that_denies_purges_confirms_nothing(open_side: OpenSide) -> None:
    async with open_side(deny_purge=True, allow_rollup_hdrs=False) as side:
        fire = side.fire()
        side.contact.ask(AwaitProposals(fire))
        [answer] = await side.hears(Unanswered)
        assert (answer.question, answer.denied) == (AwaitProposals(fire), True)
