"""How `top` asks: how many questions at once, how often, and what becomes of questions when the connection ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nats_scheduler.cli.top_asking import MAX_OPEN, Questions
from nats_scheduler.cli.top_knowledge import ANSWER_KEPT_SECONDS, Question
from nats_scheduler.service.client import PAUSE_FACTOR
from nats_scheduler.service.schemas import HealthAnswer
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

WAIT_SECONDS = 45.0
ANSWER = {"at": "2026-01-31T09:00:00Z", "instance": "a", "ready": True, "reasons": []}


def asked_of(endpoint: str, **fields: Any) -> Question:
    return Question(endpoint, HealthAnswer, **fields)


class Sidecar:
    """Takes requests to one endpoint, and answers when a test wants it to."""

    def __init__(self, account: Account, endpoint: str) -> None:
        self.connection = account.connection
        self.waiting: list[str] = []
        self.connection.subscribe(
            f"nats_scheduler.v1.{endpoint}", lambda _to, reply, _block, _body: self.waiting.append(reply.decode())
        )

    async def has(self, number: int) -> None:
        """Wait until so many requests wait for an answer."""
        await eventually(lambda: len(self.waiting) >= number, within_seconds=WAIT_SECONDS)

    def answer(self) -> None:
        """Answer the oldest request."""
        assert self.connection.publish(self.waiting.pop(0), json.dumps(ANSWER).encode())


@asynccontextmanager
async def sidecar_and_user(shared_server: SharedServer, endpoint: str) -> AsyncIterator[tuple[Sidecar, Account]]:
    server = await shared_server(V2_11)
    async with account_on(server.url) as theirs, account_on(server.url) as ours:
        sidecar = Sidecar(theirs, endpoint)
        await theirs.api.info()  # the server knows the subscription when it has answered
        yield sidecar, ours


async def test_the_last_answer_is_kept_for_a_while(shared_server: SharedServer) -> None:
    async with sidecar_and_user(shared_server, "a.kept") as (sidecar, ours):
        question = asked_of("a.kept", patience=1.0)
        questions = Questions(ours.connection, 0.0, lambda _question: None)
        questions.ask_due([question])
        await sidecar.has(1)
        sidecar.answer()
        await questions.wait()
        assert (question.is_answered, question.answer) == (True, ANSWER)
        for answered_at, kept in ((question.answered_at, ANSWER), (-ANSWER_KEPT_SECONDS, None)):
            question.due, question.answered_at = 0.0, answered_at
            questions.ask_due([question])
            await questions.wait()
            assert (question.is_answered, question.error, question.answer) == (
                False,
                "no sidecar answered within 1 s",
                kept,
            )


async def test_only_some_questions_are_open_at_once(shared_server: SharedServer) -> None:
    async with sidecar_and_user(shared_server, "a.crowd") as (sidecar, ours):
        answered: list[Question] = []
        questions = Questions(ours.connection, 1.0, answered.append)
        asked = [asked_of("a.crowd") for _ in range(3 * MAX_OPEN)]
        questions.ask_due(asked)
        for number in range(len(asked)):
            wanted = min(MAX_OPEN, len(asked) - number)
            await sidecar.has(wanted)
            assert len(sidecar.waiting) == wanted
            sidecar.answer()
        await questions.wait()
        assert answered == asked


async def test_a_question_is_asked_again_after_a_pause_that_grows_with_its_cost(shared_server: SharedServer) -> None:
    async with sidecar_and_user(shared_server, "a.pause") as (sidecar, ours):
        loop = asyncio.get_running_loop()
        questions = Questions(ours.connection, 0.001, lambda _question: None)
        question = asked_of("a.pause")
        began = loop.time()
        questions.ask_due([question])
        await sidecar.has(1)
        received = loop.time()
        questions.ask_due([question])  # it is open, and is not asked twice
        answered = loop.time()
        sidecar.answer()
        await questions.wait()
        ended = loop.time()
        assert sidecar.waiting == []
        assert answered + PAUSE_FACTOR * (answered - received) <= question.due <= ended + PAUSE_FACTOR * (ended - began)


async def test_questions_that_are_given_up_can_be_asked_again(shared_server: SharedServer) -> None:
    async with sidecar_and_user(shared_server, "a.again") as (sidecar, ours):
        asked = [asked_of("a.again") for _ in range(MAX_OPEN + 1)]
        questions = Questions(ours.connection, 1.0, lambda _question: None)
        questions.ask_due(asked)
        await questions.close()  # before any of them began
        for question in asked:
            question.due = 0.0
        answered: list[Question] = []
        again = Questions(ours.connection, 1.0, answered.append)
        again.ask_due(asked)
        for _ in asked:
            await sidecar.has(1)
            sidecar.answer()
        await again.wait()
        assert len(answered) == len(asked)
