"""Requests to the leader are answered exactly once each, and what it has accepted can be waited for.

What that wait proves if there are replicas is tested on clusters (`tests/e2e/test_identities_in_process.py`).
"""

import asyncio

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.fire import AwaitProposals
from nats_scheduler.engine.inputs import Input, ProposalsApplied, PublishConcluded, PurgeConcluded, Unanswered
from nats_scheduler.jetstream.bounded_requests import BoundedRequests
from nats_scheduler.jetstream.reach import NO_SUBJECT
from tests.contract.conftest import OpenSide
from tests.contract.sides import PortSide
from tests.harness.waiting import eventually


class SilentServer:
    """Never answers; `requests` is what it was asked, `inputs` the answers of `BoundedRequests`."""

    def __init__(self) -> None:
        self.asked = 0
        self.inputs: list[Input] = []
        self.requests: BoundedRequests[PurgeSchedule]

    async def ask(self, request: PurgeSchedule) -> Input:
        self.asked += 1
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable: nobody answers")

    async def serve(self, count: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            self.requests = BoundedRequests(self.inputs.append, tasks, ask=self.ask, failed=failed, limit=3)
            for number in range(count):
                self.requests.begin(PurgeSchedule("s", number))


def failed(request: PurgeSchedule, error: SchedulerError) -> Input:
    return PurgeConcluded(request.schedule, request.through, str(error))


async def test_cancelled_and_late_requests_are_answered_at_the_end() -> None:
    server = SilentServer()
    serving = asyncio.create_task(server.serve(10))
    await eventually(lambda: server.asked == 3)
    serving.cancel()
    await asyncio.wait((serving,))
    server.requests.begin(PurgeSchedule("s", 10))
    assert server.inputs == []
    server.requests.end("the contact ended")
    server.requests.end("once more")
    assert server.inputs == [PurgeConcluded("s", number, "the contact ended") for number in range(11)]


async def test_a_request_after_the_last_task_is_answered_at_the_end() -> None:
    server = SilentServer()
    await server.serve(0)
    server.requests.begin(PurgeSchedule("s", 1))
    server.requests.end("the contact ended")
    assert server.inputs == [PurgeConcluded("s", 1, "the contact ended")]


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


async def test_each_wait_is_answered_once_when_the_contact_ends(side: PortSide) -> None:
    fires = [side.fire() for _ in range(40)]
    side.contact.ask(AwaitProposals(fires[0]))
    await side.hears(ProposalsApplied)
    for fire in fires:
        side.contact.ask(AwaitProposals(fire))
    side.contact.end("enough")
    side.contact.ask(AwaitProposals(fires[0]))
    unconfirmed = await side.hears(Unanswered, 41)
    assert unconfirmed == [Unanswered(AwaitProposals(fire), "enough") for fire in (*fires, fires[0])]
