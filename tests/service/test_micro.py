"""A micro service on a real connection: places for requests, what discovery shows, and requests that its end finds."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from nats_scheduler.control.transport import Reply
from nats_scheduler.jetstream.connection import MAX_SENT_CONTROL_LINE_BYTES
from nats_scheduler.service.instance_questions import Questions
from nats_scheduler.service.micro import (
    CONFLICT,
    CountedEndpoint,
    MicroService,
    ServiceError,
    error_of,
)
from nats_scheduler.service.shares import Budget, RequestPlaces
from tests.conftest import SharedServer, StartServer
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
    numbers: Iterator[int] = field(default_factory=itertools.count)
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

    def sends(self, client: str, endpoint: str, body: bytes = b"{}") -> asyncio.Task[Reply]:
        """Send a request as another client does, with an inbox of its own; return the answer that comes."""
        connection, inbox = self.account.connection, f"_INBOX.{client}.{next(self.numbers)}"
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        number = connection.subscribe(inbox, lambda _to, _reply, block, body: answer.set_result(Reply(block, body)))

        async def answered() -> Reply:
            try:
                return await answer
            finally:
                connection.unsubscribe(number)

        connection.publish(f"tested.{self.number}.{endpoint}", body, reply=inbox)
        return asyncio.create_task(answered())

    async def two_wait(self) -> list[asyncio.Task[Reply]]:
        """Send two requests of two clients that are not answered, and have them begun."""
        tasks = [self.sends(f"client-{number}", "wait", b"%d" % number) for number in range(2)]
        await eventually(lambda: self.begun == 2, describe="they are in work")
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

        def served(name: str, places: RequestPlaces, answer: Callable[[bytes], Awaitable[bytes]]) -> CountedEndpoint:
            return CountedEndpoint(
                name, f"tested.{found.number}.{name}", places, answer, metadata={"places": str(places.most)}
            )

        budget = Budget(1.0, 1.0)
        few, many = RequestPlaces(2, 1, 2, budget), RequestPlaces(32, 32, 32, budget)
        endpoints = [served("wait", few, found.wait), served("echo", many, echo), served("refuse", few, refuse)]
        identity = {"name": NAME, "id": str(found.number), "version": "1.0.0"}
        service = MicroService(own.connection, identity, "for a test", endpoints, CLOCK.now, fail)
        found.task = asyncio.create_task(service.serve())
        await replied(account.connection, f"tested.{found.number}.echo", b"{}")
        yield found
        await found.end()


async def test_requests_wait_for_places_and_one_too_many_is_refused(trial: Trial) -> None:
    begun = await trial.two_wait()
    begun += [trial.sends(f"client-{number}", "wait", b"%d" % number) for number in range(2, 4)]
    sentence = "at most 2 requests of all clients with 32,768 bytes wait, and they do: ask again"
    assert error_of((await trial.sends("another", "wait")).block) == (429, sentence)
    assert error_of((await trial.sends("another", "refuse")).block) == (429, sentence)
    assert (await trial.ask("echo", b"[]")).body == b"[]", "other places are not taken"
    trial.may_answer.set()
    assert [(await one).body for one in begun] == [b"0", b"1", b"2", b"3"]
    assert (await trial.ask("wait", b"after")).body == b"after", "the places are free again"


async def test_what_waits_when_the_service_ends_is_answered(trial: Trial) -> None:
    begun = [*await trial.two_wait(), trial.sends("another", "wait")]
    assert (await trial.ask("echo")).body == b"{}", "requests of one connection are received in order"
    await trial.end()
    answers = {error_of((await one).block) for one in begun}
    assert answers == {(503, "the sidecar ends, and has no answer: ask again")}


async def test_an_ended_connection_is_not_taken_for_a_refusal(trial: Trial) -> None:
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


IMPORTS = """
accounts {
  SERVICE { jetstream: enabled, users: [{ user: service, password: p }], exports: [{ service: "tested.>" }] }
  ONE { users: [{ user: one, password: p }], imports: [{ service: { account: SERVICE, subject: "tested.>" } }] }
  TWO { users: [{ user: two, password: p }], imports: [{ service: { account: SERVICE, subject: "tested.>" } }] }
}
"""


async def test_the_clients_of_another_account_are_told_apart_by_their_account(start_server: StartServer) -> None:
    """The inboxes of requests that come through an import are the server's, and all alike."""
    server = await start_server(V2_11, config=IMPORTS)
    urls = {user: server.url.replace("//", f"//{user}:p@") for user in ("service", "one", "two")}
    async with (
        account_on(urls["service"]) as own,
        account_on(urls["one"]) as one,
        account_on(urls["one"]) as another,
        account_on(urls["two"]) as two,
    ):
        found = Trial(own, 1)
        places = RequestPlaces(3, 1, 8, Budget(1.0, 1.0))
        endpoints = [
            CountedEndpoint("wait", "tested.1.wait", places, found.wait),
            CountedEndpoint("echo", "tested.1.echo", places, echo),
        ]
        identity = {"name": NAME, "id": "1", "version": "1.0.0"}
        service = MicroService(own.connection, identity, "for a test", endpoints, CLOCK.now, fail)
        found.task = asyncio.create_task(service.serve())
        await replied(own.connection, "tested.1.echo", b"{}")
        tasks = [
            asyncio.create_task(each.connection.request("tested.1.wait", b"{}", deadline=PATIENCE_SECONDS))
            for each in (one, another, two)
        ]
        await eventually(lambda: found.begun == 2, describe="a request of each account is in work")
        tasks.append(
            asyncio.create_task(two.connection.request("tested.1.echo", b"{}", deadline=PATIENCE_SECONDS)),
        )
        await eventually(lambda: places.waiting == 2, describe="the second request of each account waits")
        assert found.begun == 2, "one of each account is in work"
        found.may_answer.set()
        answers = await asyncio.gather(*tasks)
        assert [answer.body for answer in answers if not answer.block] == [b"{}"] * 4
        await found.end()
