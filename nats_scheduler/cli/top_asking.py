"""How `top` asks the sidecars, and receives what they publish.

Rule: a question is asked again only when its last answer is there, and after a pause that is `PAUSE_FACTOR` times as
long as the sidecar needed: over a million schedules a list takes seconds of work, and a display is not worth that each
second. An answer that is missing is a sentence about why, never an exception. A connection that is lost is made again,
as often as it takes.
These permissions are enough: to publish to `nats_scheduler.v1.>`, and to subscribe to `nats_scheduler.advisory.>` and
to the own inboxes.
Cost: seven questions in each interval, one more for each sidecar and for each of the streams that are shown first.
Limit: an advisory that was published while there was no connection is shown only if a stream keeps advisories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from nats_scheduler.cli.top_knowledge import ANSWER_KEPT_SECONDS, Knowledge, Question
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.errors import Denial, JetStreamError
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX
from nats_scheduler.service.client import (
    PAUSE_FACTOR,
    NotConnectedError,
    NothingSubscribesError,
    QuestionError,
    ask,
    read,
)
from nats_scheduler.settings.connection import ConnectionSettings

ADVISORIES = f"{ADVISORY_PREFIX}.>"
RECONNECT_WAIT_SECONDS = 1.0
MAX_NAME_CHARS = 12
"""How much of the name of a server is shown: without one it has its id, of 56 characters."""
MAX_OPEN = 8
"""Questions that are open at once: a sidecar refuses all requests beyond 32, and others may ask too."""


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
            answer = await ask(self._connection, question.endpoint, question.request, question.patience, repeats=True)
            question.answer = read(question.form, answer)
            question.answered_at = self._loop.time()
            question.error, question.has_responders = "", True
        except NothingSubscribesError:
            question.answer, question.error, question.has_responders = None, "", False
        except NotConnectedError:
            return  # the connection is reported, and what was known of it stays
        except QuestionError as error:
            factor = 1  # silence is no work
            question.error, question.has_responders = str(error), True
            if self._loop.time() - question.answered_at > ANSWER_KEPT_SECONDS:
                question.answer = None
        finally:
            now = self._loop.time()
            # A bit less than the interval: the next check must not come just before it.
            question.due = now + max(self._interval * 0.9, question.least_pause, factor * (now - began))
        self._answered(question)


class Feed:
    """Fills the knowledge, on one connection after the other."""

    def __init__(self, settings: ConnectionSettings, knowledge: Knowledge, interval: float) -> None:
        """Prepare to ask each `interval` seconds."""
        self._dialer = Dialer(settings)
        self._knowledge = knowledge
        self._interval = interval

    async def connect(self) -> Connection:
        """Connect, and receive advisories; raises `JetStreamError`."""
        connection = await self._dialer.dial()
        server = connection.server
        name = server.name if len(server.name) <= MAX_NAME_CHARS else f"{server.name[:MAX_NAME_CHARS]}…"
        self._knowledge.connected(f"{connection.url} ({name}, {server.version})")
        connection.when_denied(self._denied)
        connection.subscribe(ADVISORIES, lambda _to, _reply, _block, body: self._knowledge.advised(body))
        return connection

    async def once(self) -> None:
        """Ask everything once; what follows from the first answers in a second round; raises `JetStreamError`."""
        connection = await self.connect()
        questions = Questions(connection, self._interval, self._knowledge.answered)
        try:
            questions.ask_due(self._knowledge.questions())
            await questions.wait()
            questions.ask_due(self._knowledge.further_questions())
            await questions.wait()
        finally:
            await questions.close()
            await connection.close()

    async def keep_asking(self, connection: Connection, notify: Callable[[], None]) -> None:
        """Ask in each interval until cancelled, and call `notify` when there is something to show."""
        while True:
            try:
                await self._ask_until_lost(connection, notify)
                self._knowledge.lost = str(connection.lost.result())
            finally:
                await connection.close()
            notify()
            connection = await self._connect_again(notify)

    async def _ask_until_lost(self, connection: Connection, notify: Callable[[], None]) -> None:
        questions = Questions(connection, self._interval, self._knowledge.answered)
        loop = asyncio.get_running_loop()
        try:
            while not connection.is_lost:
                next_round = loop.time() + self._interval
                questions.ask_due(self._knowledge.questions())
                questions.ask_due(self._knowledge.further_questions())
                await questions.wait(self._interval)
                notify()
                await asyncio.wait((connection.lost,), timeout=max(next_round - loop.time(), 0))
        finally:
            await questions.close()

    async def _connect_again(self, notify: Callable[[], None]) -> Connection:
        while True:
            try:
                return await self.connect()
            except JetStreamError as error:
                self._knowledge.lost = " ".join(str(error).split())
                notify()
            await asyncio.sleep(RECONNECT_WAIT_SECONDS)

    def _denied(self, denial: Denial) -> None:
        """Note that advisories are not received; a request that is denied fails by itself."""
        if not denial.publishes and denial.subject == ADVISORIES:
            self._knowledge.denied = f"this user may not subscribe to {ADVISORIES}: failures appear late"
