"""A micro service on a real connection: places for requests, what discovery shows, and requests that its end finds."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from nats_scheduler.jetstream.connection import MAX_SENT_CONTROL_LINE_BYTES, Reply
from nats_scheduler.message.headers import header_value
from nats_scheduler.service.micro import CONFLICT, MicroService, Places, Questions, Served, ServiceError, error_of
from tests.conftest import SharedServer
from tests.harness.account import CLOCK, Account, account_on, replied
from tests.harness.servers import V2_11
from tests.harness.waiting import PATIENCE_SECONDS, eventually

NAME = "tested-service"


async def echo(body: bytes) -> bytes:
    return body


async def refuse(_body: bytes) -> bytes:
    raise ServiceError(CONFLICT, "another one", [(b"Nats-Last-Sequence", b"7")])


def fail(error: Exception) -> None:
    pytest.fail(repr(error))


@dataclass
class Trial:
    """A service with an endpoint that waits, one that answers at once, and one that refuses."""

    account: Account
    number: int
    begun: int = 0
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def wait(self, body: bytes) -> bytes:
        self.begun += 1
        await self.may_answer.wait()
        return body

    async def ask(self, endpoint: str, body: bytes = b"{}") -> Reply:
        return await self.account.connection.request(
            f"tested.{self.number}.{endpoint}", body, deadline=PATIENCE_SECONDS
        )

    async def two_wait(self) -> list[asyncio.Task[Reply]]:
        """Send two requests that wait, and have them begun."""
        tasks = [asyncio.create_task(self.ask("wait", b"%d" % number)) for number in range(2)]
        await eventually(lambda: self.begun == 2, describe="they wait")
        return tasks

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
async def trial(shared_server: SharedServer, request: pytest.FixtureRequest) -> AsyncIterator[Trial]:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account, account_on(server.url) as own:
        found = Trial(account, id(request.node))

        def served(name: str, places: Places, answer: Callable[[bytes], Awaitable[bytes]]) -> Served:
            return Served(name, f"tested.{found.number}.{name}", places, answer, metadata={"places": str(places.most)})

        few, many = Places(2), Places(32)
        endpoints = [served("wait", few, found.wait), served("echo", many, echo), served("refuse", few, refuse)]
        identity = {"name": NAME, "id": str(found.number), "version": "1.0.0"}
        service = MicroService(own.connection, identity, "for a test", endpoints, CLOCK.now, fail)
        found.task = asyncio.create_task(service.serve())
        await replied(account.connection, f"tested.{found.number}.echo", b"{}")
        yield found
        await found.end()


async def test_endpoints_that_share_places_refuse_one_more_and_the_others_answer(trial: Trial) -> None:
    begun = await trial.two_wait()
    sentence = "2 requests are in work: ask again when one of them is answered"
    assert error_of((await trial.ask("wait")).block) == (429, sentence)
    assert error_of((await trial.ask("refuse")).block)[0] == 429
    assert (await trial.ask("echo", b"[]")).body == b"[]"
    trial.may_answer.set()
    assert [(await one).body for one in begun] == [b"0", b"1"]
    assert (await trial.ask("wait", b"after")).body == b"after", "the places are free again"


async def test_the_end_of_a_connection_is_seen_by_whom_asks_and_is_not_taken_for_a_refusal(trial: Trial) -> None:
    questions = Questions(trial.account.connection)
    subject = f"tested.{trial.number}.{{}}".format
    assert await questions.is_subscribed(subject("echo"))
    assert await questions.is_subscribed(subject("refuse")), "an error is an answer"
    assert await questions.is_subscribed(subject("wait")) is None
    assert await questions.is_subscribed("x" * MAX_SENT_CONTROL_LINE_BYTES) is None
    await trial.end()

    async def is_gone() -> bool:
        return await questions.is_subscribed(subject("echo")) is False

    await eventually(is_gone, describe="nothing subscribes any more")
    assert await questions.ask(subject("echo"), b"{}") is None


async def test_what_is_in_work_when_the_service_ends_is_answered(trial: Trial) -> None:
    begun = await trial.two_wait()
    await trial.end()
    answers = {error_of((await one).block) for one in begun}
    assert answers == {(503, "the sidecar ends, and has no answer: ask again")}


async def test_discovery_shows_what_is_said_of_each_endpoint_and_an_error_has_further_headers(trial: Trial) -> None:
    reply = await trial.account.connection.request(f"$SRV.INFO.{NAME}.{trial.number}", deadline=PATIENCE_SECONDS)
    shown = {one["name"]: one["metadata"] for one in json.loads(reply.body)["endpoints"]}
    assert shown == {"wait": {"places": "2"}, "echo": {"places": "32"}, "refuse": {"places": "2"}}
    block = (await trial.ask("refuse")).block
    assert (error_of(block), header_value(block, b"Nats-Last-Sequence")) == ((409, "another one"), b"7")
