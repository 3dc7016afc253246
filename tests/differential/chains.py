"""Programs that rely on a schedule being gone when its fire is stored, beside the native scheduler and beside sidecars.

The native scheduler stores a fire and removes its schedule in one step; a sidecar's purge follows the fire. A program
that acts on the schedule's subject the moment it receives a fire may come in between. These are the programs, each of
many schedules at once, and each with a worker that acknowledges a fire and acts in the same breath:

- `arms-at-0`: publish the next `@at` on the same subject with `Nats-Expected-Last-Subject-Sequence: 0`, and take 10071
  for *armed already*. A chain that is refused so has ended for ever.
  What is undecided (10164, only with replicas) is published again.
- `arms-after`: the same, but if 10071 names the sequence of the schedule that fired, which the fire's `Nats-Msg-Id`
  names too, expect that one (and 0 again, if it is gone by then).
- `creates`: store the next one by `Schedules.create`, and take `AlreadyExistsError` for *armed already*.
- `cancels`: purge the schedule's subject. `"purged": 1` says that the job was cancelled in time, which is wrong.
- `removes`: cancel the schedule by `Schedules.cancel`. Any answer but `NotFoundError` says that, too.

Cost: a chain of six takes six times `STEP`.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats

from nats_scheduler.client import AlreadyExistsError, NotFoundError, Schedules, at
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.generated import EXPECTED_SEQUENCE
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.identity import parse_identity
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.differential.sides import fresh_name
from tests.harness.account import CLOCK, Account, account_on
from tests.harness.blocks import block_of
from tests.harness.flagged import Delivered
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

LENGTH = 6
"""The fires of a whole chain."""
STEP = SECOND // 2
"""The time (ns) between two fires of a chain."""
LEAD = SECOND
"""The time (ns) before the first fires in which the schedules are stored."""

RETENTIONS = ("limits", "workqueue", "interest")

WRONG_LAST_SEQUENCE, UNDECIDED = 10071, 10164
"""Refusals of a condition: another sequence is there, or a message with a condition on the subject is on its way."""
AGAIN_SECONDS = 0.005
"""Pause before what is undecided is published again."""
_last_sequence = re.compile(r"wrong last sequence: ([0-9]+)").search


@dataclass(frozen=True)
class System:
    """Who fires, on which server, and in which spelling."""

    name: str
    version: str
    dialect: Dialect = ADR51
    has_sidecar: bool = True


NATIVE = System("native", V2_15, has_sidecar=False)
PORTABLE_SYSTEM = System("portable", V2_15, PORTABLE)
SYSTEMS = (NATIVE, System("emulated-2.11", V2_11), System("emulated-2.10", V2_10), PORTABLE_SYSTEM)


@dataclass
class Stage:
    """One stream of one system, served, with a consumer of its fires."""

    system: System
    account: Account
    retention: str
    name: str
    schedules: Schedules
    """What a program uses of the client: it is asked for before anything fires."""

    def schedule(self, number: int) -> str:
        """Return the subject of a schedule."""
        return f"{self.name}.s.{number}"

    def target(self, number: int) -> str:
        """Return the subject of its fires."""
        return f"{self.name}.t.{number}"

    def block(self, number: int, due: int, expected: int) -> bytes:
        """Return the headers of a schedule that is due at an instant (ns), in place of what has this sequence."""
        dialect = self.system.dialect
        return block_of(
            (dialect.schedule, f"@at {format_rfc3339(due)}"),
            (dialect.target, self.target(number)),
            (EXPECTED_SEQUENCE, str(expected)),
        )


class Program:
    """A worker that is given each fire of many schedules, and what it does then."""

    def __init__(self, stage: Stage, at_once: int, apart: int, work: int) -> None:
        """Prepare schedules that are due `apart` ns after each other; the worker acts `work` ns after a fire."""
        self.stage = stage
        self.at_once = at_once
        self.apart = apart
        self.work = work
        self.right = 0
        """Chains that lived to their end, and cancels that found nothing to cancel."""
        self.concluded = 0
        """Schedules of which the result is known."""
        self.unexpected: list[dict[str, Any]] = []
        """Answers that have nothing to do with what is tried."""
        self.begin = 0
        self.tasks = asyncio.TaskGroup()
        self._connection = stage.account.connection
        self._answers = self._connection.inbox(f"{stage.name}.answers")

    def due(self, number: int, fire: int) -> int:
        """Return when the schedule with this number is due for its fire with this number, from 0 on."""
        return self.begin + number * self.apart + fire * STEP

    async def run(self) -> int:
        """Store the schedules, act on their fires, and return how many came out right."""
        fires = self._connection.inbox(f"{self.stage.name}.fires")
        numbers = [
            self._connection.subscribe(fires, self._delivered),
            self._connection.subscribe(f"{self._answers}.>", self._was_answered),
        ]
        await self._consume(fires)
        self.begin = CLOCK.now() + LEAD
        async with asyncio.TaskGroup() as self.tasks:
            await asyncio.gather(*(self._store(number) for number in range(self.at_once)))
            await eventually(
                lambda: self.concluded == self.at_once or self.unexpected,
                describe=lambda: f"{self.at_once} results of {type(self).__name__}, {self.concluded} so far",
            )
        for number in numbers:
            self._connection.unsubscribe(number)
        assert not self.unexpected, self.unexpected
        return self.right

    def fired(self, number: int, fire: Delivered) -> None:
        """Act on a fire, which is acknowledged."""
        raise NotImplementedError

    def answered(self, number: int, answer: dict[str, Any]) -> None:
        """Take the answer to what was asked about a schedule."""
        raise NotImplementedError

    def conclude(self, *, right: bool) -> None:
        """Note the result of one schedule."""
        self.concluded += 1
        self.right += right

    def ask(self, number: int, subject: str, block: bytes, body: bytes) -> None:
        """Send a request about a schedule."""
        self._connection.write(frame(subject, f"{self._answers}.{number}", block, body))

    async def _consume(self, fires: str) -> None:
        """Create a consumer of the fires; an interest stream keeps the schedules for another one."""
        name, call = self.stage.name, self.stage.account.api.call
        shared = {"ack_policy": "explicit", "max_ack_pending": -1}
        config = {**shared, "durable_name": "worker", "deliver_subject": fires, "filter_subject": f"{name}.t.>"}
        await call(f"CONSUMER.DURABLE.CREATE.{name}.worker", {"stream_name": name, "config": config})
        if self.stage.retention == "interest":
            config = {**shared, "durable_name": "keeper", "filter_subject": f"{name}.s.>"}
            await call(f"CONSUMER.DURABLE.CREATE.{name}.keeper", {"stream_name": name, "config": config})

    async def _store(self, number: int) -> None:
        block = self.stage.block(number, self.due(number, 0), 0)
        await self.stage.account.publish_block(self.stage.schedule(number), block, b"1")

    def _delivered(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        if not reply:
            return
        self._connection.write(frame(reply.decode(), "", b"", b"+ACK"))
        number, fire = _number(subject), Delivered(subject.decode(), reply.decode(), block, body)
        if self.work:
            asyncio.get_running_loop().call_later(self.work / SECOND, self.fired, number, fire)
        else:
            self.fired(number, fire)

    def _was_answered(self, subject: bytes, _reply: bytes, _block: bytes, body: bytes) -> None:
        self.answered(_number(subject), json.loads(body) if body.startswith(b"{") else {})


class _Chain(Program):
    """Arms the next schedule on the same subject, until the chain is complete."""

    def __init__(self, stage: Stage, at_once: int, apart: int, work: int) -> None:
        super().__init__(stage, at_once, apart, work)
        self.fires = [0] * at_once
        """The fires of each chain so far."""

    def fired(self, number: int, fire: Delivered) -> None:
        self.fires[number] += 1
        if self.fires[number] == LENGTH:
            self.conclude(right=True)
        else:
            self.arm(number, fire)

    def arm(self, number: int, fire: Delivered) -> None:
        """Store the next schedule of a chain."""
        raise NotImplementedError


class _ArmsAtZero(_Chain):
    def __init__(self, stage: Stage, at_once: int, apart: int, work: int) -> None:
        super().__init__(stage, at_once, apart, work)
        self.expected = [0] * at_once
        """What each chain expects on its subject."""

    def arm(self, number: int, fire: Delivered) -> None:
        self.publish_next(number, 0)

    def publish_next(self, number: int, expected: int) -> None:
        self.expected[number] = expected
        block = self.stage.block(number, self.due(number, self.fires[number]), expected)
        self.ask(number, self.stage.schedule(number), block, b"next")

    def answered(self, number: int, answer: dict[str, Any]) -> None:
        if "error" not in answer:
            return
        if answer["error"]["err_code"] == UNDECIDED:
            loop = asyncio.get_running_loop()
            loop.call_later(AGAIN_SECONDS, self.publish_next, number, self.expected[number])
        else:
            self.refused(number, answer["error"])

    def refused(self, number: int, error: dict[str, Any]) -> None:
        if error["err_code"] != WRONG_LAST_SEQUENCE:
            self.unexpected.append(error)
        self.conclude(right=False)


class _ArmsAfter(_ArmsAtZero):
    """Takes the schedule that fired for absent."""

    def __init__(self, stage: Stage, at_once: int, apart: int, work: int) -> None:
        super().__init__(stage, at_once, apart, work)
        self.before = [0] * at_once
        """The sequence of the schedule that fired last, by its fire; 0 where the fire names none."""

    def arm(self, number: int, fire: Delivered) -> None:
        identity = parse_identity((header_value(fire.block, MSG_ID) or b"").decode())
        self.before[number] = 0 if identity is None else identity[1]
        super().arm(number, fire)

    def refused(self, number: int, error: dict[str, Any]) -> None:
        last = _last_sequence(error["description"])
        if last is not None and int(last[1]) in (0, self.before[number]):
            self.publish_next(number, int(last[1]))
        else:
            super().refused(number, error)


class _Creates(_Chain):
    def arm(self, number: int, fire: Delivered) -> None:
        self.tasks.create_task(self._create(number, self.due(number, self.fires[number])))

    async def _create(self, number: int, due: int) -> None:
        subject, target = self.stage.schedule(number), self.stage.target(number)
        when = at(datetime.fromtimestamp(due / SECOND, UTC))
        try:
            await self.stage.schedules.create(subject, when, b"next", target=target)
        except AlreadyExistsError:
            self.conclude(right=False)


class _Cancels(Program):
    def fired(self, number: int, fire: Delivered) -> None:
        body = json.dumps({"filter": self.stage.schedule(number)}).encode()
        self.ask(number, f"$JS.API.STREAM.PURGE.{self.stage.name}", b"", body)

    def answered(self, number: int, answer: dict[str, Any]) -> None:
        self.conclude(right=answer["purged"] == 0)


class _Removes(Program):
    def fired(self, number: int, fire: Delivered) -> None:
        self.tasks.create_task(self._remove(self.stage.schedule(number)))

    async def _remove(self, subject: str) -> None:
        try:
            await self.stage.schedules.cancel(subject)
        except NotFoundError:
            self.conclude(right=True)
        else:
            self.conclude(right=False)


PROGRAMS: dict[str, type[Program]] = {
    "arms-at-0": _ArmsAtZero,
    "arms-after": _ArmsAfter,
    "creates": _Creates,
    "cancels": _Cancels,
    "removes": _Removes,
}


def _number(subject: bytes) -> int:
    return int(subject.rpartition(b".")[2])


@asynccontextmanager
async def stages(
    system: System, url: str, folder: Path, retentions: Sequence[str], replicas: int = 1
) -> AsyncIterator[list[Stage]]:
    """Serve streams with these retentions on a server, with a sidecar of its own process where it needs one."""
    names = [fresh_name() for _ in retentions]
    async with AsyncExitStack() as stack:
        account = await stack.enter_async_context(account_on(url))
        client = await nats.connect(url)
        stack.push_async_callback(client.close)
        process = None if not system.has_sidecar else stack.enter_context(_sidecar(system, url, folder, names))
        if process is not None:
            await process.wait_for_line('"event": "connected"')
        for retention, name in zip(retentions, names, strict=True):
            config = {"retention": retention, "allow_direct": True, "storage": "file", "num_replicas": replicas}
            await account.create(name, allow_msg_schedules=system.dialect is ADR51, **config)
            stack.push_async_callback(account.api.call, f"STREAM.DELETE.{name}")
        if process is not None:
            for name in names:
                await process.wait_for_line(f'"stream": "{name}".*"event": "stream_ready"')
        clients = [await Schedules.on(client, name) for name in names]
        places = zip(retentions, names, clients, strict=True)
        yield [Stage(system, account, *place) for place in places]
        assert process is None or await process.terminate() == 0


def _sidecar(system: System, url: str, folder: Path, streams: Sequence[str]) -> ChildProcess:
    arguments = ["run", "--server", url, "--no-context", "--log-format", "json"]
    if system.dialect is PORTABLE:
        arguments += ["--portable-streams", ",".join(streams)]
    return sidecar(*arguments, folder=folder)


async def played(program: str, stage: Stage, at_once: int, apart: int = 0, work: int = 0) -> int:
    """Run a program on a stream, which is empty again afterwards; return how many were right. Times are in ns."""
    right = await PROGRAMS[program](stage, at_once, apart, work).run()
    call = stage.account.api.call
    for name in (await call(f"CONSUMER.NAMES.{stage.name}")).get("consumers") or []:
        await call(f"CONSUMER.DELETE.{stage.name}.{name}")
    await call(f"STREAM.PURGE.{stage.name}")
    return right
