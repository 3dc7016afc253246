"""What `top` asks of the sidecars, and how often: several questions at a time, none of them more often than is cheap.

Rule: a question is asked again only when its last answer is there, and after a pause that is `PAUSE_FACTOR` times as
long as the sidecar needed: over a million schedules a list takes seconds of work, and a display is not worth that each
second. An answer that is missing is a sentence about why, never an exception.
Cost: a request for each question and interval.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nats_scheduler.jetstream.connection import Connection, Reply
from nats_scheduler.jetstream.errors import (
    ConnectionLostError,
    JetStreamError,
    NoAnswerError,
    NoJetStreamError,
    NotPermittedError,
)
from nats_scheduler.jetstream.foreign_json import read_object
from nats_scheduler.message.headers import decoded, header_value
from nats_scheduler.service.endpoint import SUBJECTS
from nats_scheduler.service.overview import PAUSE_FACTOR

ANSWER_SECONDS = 5.0
"""Longest wait for one answer, unless the question has another."""
MAX_OPEN = 8
"""Questions that are open at once: a sidecar refuses all requests beyond 32, and others may ask too."""
FIRST_REPEAT_SECONDS = 0.5
"""A question is asked again after so long without an answer, then after twice that pause, and so on."""
ANSWER_KEPT_SECONDS = 30.0
"""How long the last answer is used while there is no new one."""
ERROR_HEADER = b"Nats-Service-Error"


class NoneAnswersError(Exception):
    """Nothing subscribes to the subject of a question: no sidecar runs, or those that run do not have the endpoint."""


class RefusedError(Exception):
    """A sidecar answered with an error, or nothing that can be read, or not in time."""


@dataclass(eq=False)
class Question:
    """One question, and what is known of its answer."""

    endpoint: str
    """Behind the prefix of all subjects, with the id of an instance if it is asked of one."""
    request: Mapping[str, object] = field(default_factory=dict)
    least_pause: float = 0.0
    """Seconds between an answer and the next request, at least."""
    patience: float = ANSWER_SECONDS
    """Seconds after which no answer is expected any more."""
    answer: dict[str, Any] | None = None
    """The last answer; None if there is none, or it is older than `ANSWER_KEPT_SECONDS`."""
    answered_at: float = 0.0
    """When it came, by the loop's clock."""
    error: str = ""
    """Why the last request had no answer."""
    has_responders: bool | None = None
    """Whether anything subscribes there; None if that is not known."""
    due: float = 0.0
    """When it is asked again, by the loop's clock."""

    @property
    def is_answered(self) -> bool:
        """Whether the last request had an answer."""
        return self.has_responders is True and not self.error

    @property
    def is_unanswered(self) -> bool:
        """Whether the last request had none."""
        return self.has_responders is False or bool(self.error)


async def ask(connection: Connection, question: Question) -> dict[str, Any]:
    """Return the answer to a question; raises `NoneAnswersError`, `RefusedError` or `ConnectionLostError`."""
    try:
        reply = await _first_reply(connection, question)
    except ConnectionLostError:
        raise
    except NoJetStreamError:
        raise NoneAnswersError from None
    except NoAnswerError:
        raise RefusedError(f"no answer within {question.patience:.0f} s") from None
    except NotPermittedError:
        raise RefusedError(f"this user may not publish to {SUBJECTS}.{question.endpoint}") from None
    except JetStreamError as error:
        raise RefusedError(str(error)) from None
    refusal = header_value(reply.block, ERROR_HEADER)
    if refusal is not None:
        raise RefusedError(decoded(refusal))
    answer = read_object(reply.body)
    if answer is None:
        raise RefusedError("the answer is no JSON object")
    return answer


async def _first_reply(connection: Connection, question: Question) -> Reply:
    """Send a request, and send it again while no answer comes: the sidecar that got it may stand still."""
    loop = asyncio.get_running_loop()
    subject, body = f"{SUBJECTS}.{question.endpoint}", json.dumps(question.request).encode()
    deadline, pause = loop.time() + question.patience, FIRST_REPEAT_SECONDS
    sent: list[asyncio.Task[Reply]] = []
    try:
        while True:
            left = deadline - loop.time()
            if not sent or left > pause:
                sent.append(loop.create_task(connection.request(subject, body, deadline=max(left, 0))))
            done, _ = await asyncio.wait(sent, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done.pop().result()
            pause *= 2
    finally:
        for task in sent:
            task.cancel()
        await asyncio.gather(*sent, return_exceptions=True)


class Questions:
    """The questions on one connection."""

    def __init__(self, connection: Connection, interval: float, answered: Callable[[Question], None]) -> None:
        """Ask nothing yet; `answered` is called after each answer, or when it is known that there is none."""
        self._connection = connection
        self._interval = interval
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._open: dict[Question, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(MAX_OPEN)

    def ask_due(self, questions: Iterable[Question]) -> None:
        """Ask those of the questions for which it is time, all at once, and do not wait."""
        now = self._loop.time()
        for question in questions:
            if question not in self._open and question.due <= now:
                self._open[question] = task = self._loop.create_task(self._ask(question))
                task.add_done_callback(partial(self._closed, question))

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until nothing that was asked is open, at most so long; each request has its deadline."""
        if self._open:
            await asyncio.wait(self._open.values(), timeout=seconds)

    async def close(self) -> None:
        """Give up what is open."""
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _closed(self, question: Question, _task: asyncio.Task[None]) -> None:
        del self._open[question]

    async def _ask(self, question: Question) -> None:
        async with self._places:
            await self._ask_now(question)

    async def _ask_now(self, question: Question) -> None:
        began = self._loop.time()
        factor = PAUSE_FACTOR
        try:
            question.answer = await ask(self._connection, question)
            question.answered_at = self._loop.time()
            question.error, question.has_responders = "", True
        except NoneAnswersError:
            question.answer, question.error, question.has_responders = None, "", False
        except RefusedError as error:
            factor = 1  # silence is no work
            question.error, question.has_responders = str(error), True
            if self._loop.time() - question.answered_at > ANSWER_KEPT_SECONDS:
                question.answer = None
        except ConnectionLostError:
            return  # the connection is reported, and what was known of it stays
        finally:
            now = self._loop.time()
            # A bit less than the interval: the next check must not come just before it.
            question.due = now + max(self._interval * 0.9, question.least_pause, factor * (now - began))
        self._answered(question)
