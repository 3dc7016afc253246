"""Publishers: they store, replace, overwrite, delete, purge and cancel, several at a time, and note the answers.

Its rule: they send to the servers directly and never retry: a request without an answer has an unknown outcome.
"""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import replace
from random import Random

from nats_scheduler.control.errors import RefusedError, SchedulerError
from tests.harness.account import Account
from tests.harness.blocks import block_to_send
from tests.harness.waiting import time_reached
from tests.judge.history import SECOND, Operation, Verb, headers_of
from tests.judge.patterns import NO_POLICIES, Pattern, Policies
from tests.nemesis.calendars import NAMES
from tests.nemesis.ground import ELSEWHERE, STREAM, WORKED, Ground, worker_of
from tests.nemesis.record import Record, now
from tests.nemesis.scenario import MEAN_PUBLISH_SECONDS, STEADY, Scenario

SUBJECTS = [f"s.{number}" for number in range(12)]
VERBS = [Verb.STORE] * 8 + [Verb.OVERWRITE, Verb.DELETE, Verb.DELETE, Verb.PURGE, Verb.PURGE, Verb.CANCEL, Verb.CANCEL]
SHARED_TARGETS = [f"{ELSEWHERE}{number}" for number in range(3)]
"""Targets in the other stream."""
WITH_POLICIES = (
    *((name, "", Policies(calendar=name)) for name in NAMES),
    *((kind, f"t.{kind}", Policies(overlap=kind, consumer=worker_of(f"t.{kind}"))) for kind in ("queue", "skip")),
    ("elsewhere", f"{ELSEWHERE}steady", NO_POLICIES),
)
"""Schedules that no publisher changes either, with what each needs of its policies."""
JITTERS = (None, 700, 950)
"""The most milliseconds by which the fires of a loaded cluster are late: some are in flight at any time."""
SOON_SECONDS = (0.02, 3.0)
"""The range of times (s) after which a schedule is due that fires once, soon."""
ANSWER_SECONDS = 2.0
AGAIN_SECONDS = 0.1
UNAVAILABLE = 503
"""The status of an answer that says nothing about the outcome of a request."""


def steady(number: int) -> str:
    """Return the subject of a schedule that no publisher changes."""
    return f"s.steady.{number}"


class Publishers:
    """All publishers of a round."""

    def __init__(self, ground: Ground, record: Record, scenario: Scenario) -> None:
        """Draw from the seed of a scenario; some schedules name calendars."""
        self._ground = ground
        self._record = record
        self._scenario, seed = scenario, scenario.seed
        self._random = Random(f"publishers {seed}")
        self._treating = Random(f"policies {seed}")
        self._naming = Random(f"what names a calendar {seed}")
        self._sending = Random(f"what is elsewhere {seed}")
        self._overlapping = Random(f"what overlaps {seed}")
        self._loading = Random(f"what loads {seed}")
        self._account: Account | None = None
        self._last: dict[str, int] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def store_steady(self) -> None:
        """Store the schedules that fire each second throughout; the servers must work."""
        async with self._ground.account() as self._account:
            for number in range(STEADY):
                pattern = Pattern("every" if number % 2 else "cron", 1)
                await self._ask(self._store(steady(number), pattern))
            for name, target, policies in WITH_POLICIES:
                await self._ask(self._store(f"s.steady.{name}", Pattern("every", 1, policies), target))
            for number in range(STEADY, self._scenario.repeating):
                kind, seconds = self._loading.choice(["every", "cron"]), self._loading.choice([1, 1, 2, 3])
                policies = Policies(jitter=self._loading.choice(JITTERS))
                await self._ask(self._store(steady(number), Pattern(kind, seconds, policies)))
        self._account = None

    async def connect_now_and_again(self) -> None:
        """Keep a connection whenever a server accepts one."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with self._ground.account() as account:
                    self._account = account
                    self._ground.changed.clear()
                    await self._until_lost_or_stopped(account)
            except (SchedulerError, OSError):  # no server answers
                await time_reached(loop.time() + AGAIN_SECONDS)
            finally:
                self._account = None

    async def _until_lost_or_stopped(self, account: Account) -> None:
        """Wait for the loss of a connection, or until some node is stopped, which may be the other end."""
        async with asyncio.TaskGroup() as waits:
            changed = waits.create_task(self._ground.changed.wait())
            account.connection.lost.add_done_callback(lambda _lost: changed.cancel())

    async def store_soon_now_and_again(self) -> None:
        """Store the schedules of the scenario that fire once, soon, evenly while everything breaks."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for number in range(self._scenario.soon):
            await time_reached(begin + number * self._scenario.breaks_for / self._scenario.soon)
            due = now() + int(self._loading.uniform(*SOON_SECONDS) * SECOND)
            second, rest = divmod(due, SECOND)
            self._begin(self._store(f"s.soon.{number}", Pattern("at", second, thousandths=rest * 1000 // SECOND)))

    async def act_now_and_again(self) -> None:
        """Send requests, with pauses, whatever the outcome of the last one."""
        loop = asyncio.get_running_loop()
        while True:
            await time_reached(loop.time() + self._random.expovariate(1 / MEAN_PUBLISH_SECONDS))
            self._begin(self._drawn())

    def store_some(self, count: int) -> None:
        """Store some schedules that fire each second from now on."""
        for number in range(count):
            self._begin(self._store(f"s.late.{number}", Pattern("every", 1)))

    async def all_answered(self) -> None:
        """Wait until each request is answered or given up."""
        await asyncio.gather(*self._asking)

    def _begin(self, operation: Operation) -> None:
        task = asyncio.create_task(self._ask(operation))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    # -- what is asked -------------------------------------------------------------------------------------------

    def _drawn(self) -> Operation:
        subject, verb = self._random.choice(SUBJECTS), self._random.choice(VERBS)
        if verb is Verb.DELETE and subject in self._last:
            return Operation(verb, subject, now(), names=self._last[subject])
        if verb in (Verb.STORE, Verb.DELETE):
            target = self._target_of(subject)
            return self._store(subject, self._held_back(self._pattern(), target), target)
        return Operation(verb, subject, now())

    def _target_of(self, subject: str) -> str:
        """Draw where a schedule fires to."""
        own = f"t.{subject[2:]}"
        return own if self._sending.random() < 0.75 else self._sending.choice(SHARED_TARGETS)

    def _store(self, subject: str, pattern: Pattern, target: str = "") -> Operation:
        body = b"%s %d" % (subject.encode(), len(self._record.history.operations))
        return Operation(Verb.STORE, subject, now(), pattern=pattern, target=target or f"t.{subject[2:]}", body=body)

    def _pattern(self) -> Pattern:
        kind = self._random.choice(["at", "at", "every", "cron"])
        if kind == "at":
            number = now() // SECOND + self._random.randint(-2, 8)
            return Pattern(kind, number, self._named(self._treated(NO_POLICIES)))
        return Pattern(kind, self._random.choice([1, 1, 2, 3]), self._named(self._treated(self._bounded(kind))))

    def _bounded(self, kind: str) -> Policies:
        """Draw the bounds of a pattern that repeats; each leaves at least one fire."""
        draw, at = self._treating, now() // SECOND
        if draw.random() < 0.5:
            return NO_POLICIES
        return Policies(
            start=at + draw.randint(-3, 4) if draw.random() < 0.4 else None,
            end=at + draw.randint(8, 20) if draw.random() < 0.4 else None,
            limit=draw.randint(1, 6) if draw.random() < 0.4 else None,
            anchor=at + draw.randint(-20, 3) if kind == "every" and draw.random() < 0.5 else None,
        )

    def _treated(self, policies: Policies) -> Policies:
        """Draw when a fire is sent, what becomes of missed ones, and whether fires report that."""
        draw = self._treating
        if draw.random() < 0.5:
            return policies
        return replace(
            policies,
            jitter=draw.choice([None, 30, 700, 2_500]),
            missed=draw.choice(["", "once", "skip", "all", "all 2"]),
            grace=draw.choice([None, 1, 3]),
            report=draw.random() < 0.5,
        )

    def _named(self, policies: Policies) -> Policies:
        """Draw a calendar."""
        is_unnamed = self._naming.random() < 0.7
        return policies if is_unnamed else replace(policies, calendar=self._naming.choice(NAMES))

    def _held_back(self, pattern: Pattern, target: str) -> Pattern:
        """Draw what happens while the fire before is unfinished, for a target whose worker takes its time."""
        draw = self._overlapping
        if target not in WORKED or draw.random() < 0.5:
            return pattern
        overlap, timeout = draw.choice(["skip", "queue"]), draw.choice([None, None, 400, 2_500])
        blocked = replace(pattern.policies, overlap=overlap, consumer=worker_of(target), timeout=timeout)
        return replace(pattern, policies=blocked)

    # -- asking --------------------------------------------------------------------------------------------------

    async def _ask(self, operation: Operation) -> None:
        """Send one request and note the answer; without a connection nothing is sent."""
        if self._account is None:
            return
        operations = self._record.history.operations
        operation.invoked_at = now()
        operations.append(operation)
        try:
            operation.sequence = await self._request(self._account, operation)
            operation.completed_at = now()
        except RefusedError as refusal:
            if refusal.status != UNAVAILABLE:
                operations.remove(operation)
        except SchedulerError:
            pass  # unknown
        if operation.sequence is not None and operation.verb is not Verb.CANCEL:
            self._last[operation.schedule] = operation.sequence

    def _request(self, account: Account, operation: Operation) -> Awaitable[int | None]:
        if operation.verb is Verb.DELETE:
            return _call(account, "STREAM.MSG.DELETE", {"seq": operation.names})
        if operation.verb is Verb.PURGE:
            return _call(account, "STREAM.PURGE", {"filter": operation.schedule})
        if operation.verb is Verb.CANCEL:
            headers = {"Nats-Scheduler": operation.schedule, "Nats-Schedule-Next": "purge"}
            # Each on a subject of its own: of a work queue only the last message of each is found after a lost contact.
            return _published(account, f"x.cancel.{operation.invoked_at}", headers, b"")
        headers = headers_of(operation, elsewhere=operation.target.startswith(ELSEWHERE))
        return _published(account, operation.schedule, headers, operation.body)


async def _call(account: Account, request: str, body: object) -> None:
    await account.api.call(f"{request}.{STREAM}", body, ANSWER_SECONDS)


async def _published(account: Account, subject: str, headers: dict[str, str], body: bytes) -> int:
    block = block_to_send(headers) if headers else b""
    reply = await account.connection.request(subject, body, block, ANSWER_SECONDS)
    answer = json.loads(reply.body)
    if "error" in answer:
        error = answer["error"]
        raise RefusedError(int(error["code"]), int(error.get("err_code", 0)), str(error["description"]), subject)
    return int(answer["seq"])
