"""Answers of sidecars are kept for those who show them, and are asked for again neither too often nor too late."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from nats_scheduler.control.errors import (
    ConnectionLostError,
    DeadlineError,
    ForbiddenError,
    NoRespondersError,
    NotConnectedError,
)
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.sidecar_answers import HEALTH, MAX_REQUESTS, Answers, AnswerState, health_of
from nats_scheduler.testing.manual_clock import START
from tests.harness.waiting import eventually

ANSWER = {"at": "2026-01-31T09:00:00Z", "instance": "a", "ready": True, "reasons": []}


class Sidecar:
    """Answers what a test wants, when it wants it."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Object]] = []
        self.answers = Answers(self.ask, lambda: START, lambda error: pytest.fail(repr(error)))

    async def ask(self, _endpoint: str, _request: Mapping[str, object]) -> Object:
        answer: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        return await answer

    async def asked(self, number: int = 1) -> None:
        """Wait until `number` requests were sent."""
        await eventually(lambda: len(self.waiting) >= number)

    def give(self, outcome: Any) -> None:
        """Give this answer or error to the oldest request."""
        waiting = self.waiting.pop(0)
        if isinstance(outcome, Exception):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)

    async def get(self, outcome: Any) -> AnswerState[Any]:
        """Ask, give this answer or error to the request, and return what is known then."""
        asking = asyncio.create_task(self.answers.get(HEALTH))
        await self.asked()
        self.give(outcome)
        part = await asking
        self.answers.ask_again()
        return part


async def test_what_is_answered_is_read_by_its_model() -> None:
    sidecar = Sidecar()
    part = await sidecar.get({**ANSWER, "more": 1})
    assert (part.data, part.fault) == (ANSWER, "")
    assert sidecar.answers.last(HEALTH) == part
    part = await sidecar.get({**ANSWER, "ready": "yes"})
    assert part.data == ANSWER, "the answer before is still of use"
    assert "cannot read" in part.fault


async def test_why_there_is_no_answer_is_said_beside_the_one_before() -> None:
    errors: list[tuple[Exception, object, tuple[bool, bool]]] = [
        (DeadlineError("no answer"), ANSWER, (True, False)),
        (NotConnectedError("no connection"), ANSWER, (False, False)),
        (ConnectionLostError("closed"), ANSWER, (False, False)),
        (ForbiddenError("this user may not ask"), None, (True, False)),
        (NoRespondersError("nobody"), ANSWER, (True, True)),
        (ServiceError(503, "busy"), ANSWER, (True, False)),
        (ServiceError(404, "no such stream"), None, (True, False)),
    ]
    for error, kept, flags in errors:
        sidecar = Sidecar()
        await sidecar.get(ANSWER)
        part = await sidecar.get(error)
        assert (part.fault, part.data, (part.is_connected, part.is_absent)) == (str(error), kept, flags)
        assert (await sidecar.get(ANSWER)).fault == ""


async def test_two_readers_cause_one_request_and_wait_limited() -> None:
    sidecar = Sidecar()
    first, second = await asyncio.gather(*(sidecar.answers.get(HEALTH, patience=0.01) for _ in range(2)))
    assert (first.is_waiting, second.is_waiting) == (True, True)
    assert len(sidecar.waiting) == 1
    sidecar.waiting[0].set_result(ANSWER)
    assert (await sidecar.answers.get(HEALTH)).data == ANSWER, "it came later, and is kept"
    assert len(sidecar.waiting) == 1


async def test_only_some_requests_are_in_work_at_once() -> None:
    sidecar, number = Sidecar(), 3 * MAX_REQUESTS
    asking = [asyncio.create_task(sidecar.answers.get(health_of(f"i{n}"), patience=None)) for n in range(number)]
    for answered in range(number):
        await sidecar.asked(min(answered + MAX_REQUESTS, number))
        assert len(sidecar.waiting) == min(answered + MAX_REQUESTS, number)
        sidecar.waiting[answered].set_result(ANSWER)
    assert [part.data for part in await asyncio.gather(*asking)] == [ANSWER] * number


async def test_a_question_from_before_a_change_is_asked_again() -> None:
    sidecar, later = Sidecar(), {**ANSWER, "ready": False}
    before = asyncio.create_task(sidecar.answers.get(HEALTH, patience=None))
    await sidecar.asked()
    sidecar.answers.ask_again()
    after = asyncio.create_task(sidecar.answers.get(HEALTH, patience=None))
    sidecar.give(ANSWER)
    assert (await before).data == ANSWER
    await sidecar.asked()
    sidecar.give(later)
    assert (await after).data == later
