"""Reads and purges are answered exactly once each, also those whose tasks die before the server answers."""

import asyncio

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.inputs import Input, PurgeConcluded
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.reach import BoundedRequests
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

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self.requests = BoundedRequests(self.inputs.append, tasks, ask=self.ask, failed=failed, limit=3)
            for number in range(10):
                self.requests.begin(PurgeSchedule("s", number))


def failed(request: PurgeSchedule, error: JetStreamError) -> Input:
    return PurgeConcluded(request.schedule, request.through, str(error))


async def test_requests_whose_tasks_were_cancelled_are_answered_at_the_end() -> None:
    server = SilentServer()
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.asked == 3, within_seconds=30)
    serving.cancel()
    await asyncio.wait((serving,))
    assert server.inputs == []
    server.requests.end("the contact ended")
    server.requests.end("once more")
    assert server.inputs == [PurgeConcluded("s", number, "the contact ended") for number in range(10)]


async def test_a_request_begun_while_the_tasks_are_ending_is_answered_at_the_end() -> None:
    server = SilentServer()
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.asked == 3, within_seconds=30)
    serving.cancel()
    await asyncio.wait((serving,))
    server.requests.begin(PurgeSchedule("s", 10))
    assert server.inputs == []
    server.requests.end("the contact ended")
    assert server.inputs[-1] == PurgeConcluded("s", 10, "the contact ended")
    assert len(server.inputs) == 11


async def test_a_request_begun_when_no_task_may_start_any_more_is_answered_at_the_end() -> None:
    inputs: list[Input] = []
    async with asyncio.TaskGroup() as tasks:
        requests = BoundedRequests(inputs.append, tasks, ask=SilentServer().ask, failed=failed, limit=3)
    requests.begin(PurgeSchedule("s", 1))
    requests.end("the contact ended")
    assert inputs == [PurgeConcluded("s", 1, "the contact ended")]
