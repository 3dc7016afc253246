"""Programs that arm the next schedule when they receive a fire, and those that cancel at that moment.

The native scheduler stores a fire and removes its schedule in one step; a sidecar's purge follows the fire. A program
that acts on the schedule's subject the moment it receives a fire may come in between. These are programs for which that
makes no difference, each of many schedules at once:

- arms: publish the next `@at` on the same subject with `Nats-Expected-Last-Subject-Sequence: 0`; if the refusal (10071)
  names the sequence of the schedule that fired, which the fire's `Nats-Msg-Id` names too, expect that one (and 0 again,
  if it is gone by then). What is undecided (10164, only with replicas) is published again.
- creates: store the next one by `Schedules.create`, and take `AlreadyExistsError` for *armed already*.
- removes: cancel the schedule by `Schedules.cancel`. Any answer but `NotFoundError` says that it came in time.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import nats
import pytest

from nats_scheduler.client import AlreadyExistsError, NotFoundError, Schedules
from nats_scheduler.client import at as at_instant
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.generated import EXPECTED_SEQUENCE
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.identity import parse_identity
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import SharedServer
from tests.differential.sides import fresh_name
from tests.harness.account import CLOCK, Account, account_on, sidecar_on
from tests.harness.blocks import block_of
from tests.harness.servers import EMULATED_VERSIONS, V2_11, V2_15
from tests.harness.waiting import eventually

LENGTH = 6
"""The fires of a whole chain."""
AT_ONCE = 20
"""The number of schedules of each program."""
APART, STEP, LEAD = 23 * MILLISECOND, SECOND // 2, SECOND
"""The times (ns) between two due times, between two fires of a chain, and before the first fires."""

WRONG_LAST_SEQUENCE, UNDECIDED = 10071, 10164
"""Refusals of a condition: another sequence is there, or a message with a condition on the subject is on its way."""
_last_sequence = re.compile(r"wrong last sequence: ([0-9]+)").search


@dataclass
class Stage:
    """One stream, served, and a client that is asked for before anything fires."""

    account: Account
    name: str
    schedules: Schedules

    def schedule(self, number: int) -> str:
        """Return the subject of a schedule."""
        return f"{self.name}.s.{number}"

    def target(self, number: int) -> str:
        """Return the subject of its fires."""
        return f"{self.name}.t.{number}"

    async def store(self, number: int, due: int, expected: int) -> dict[str, Any]:
        """Store a schedule that is due at an instant (ns), in place of what has a sequence; return the answer."""
        headers = (ADR51.schedule, f"@at {format_rfc3339(due)}"), (ADR51.target, self.target(number))
        block = block_of(*headers, (EXPECTED_SEQUENCE, str(expected)))
        reply = await self.account.connection.request(self.schedule(number), b"next", block)
        error: dict[str, Any] = json.loads(reply.body).get("error", {})
        return error


class Program:
    """A worker that is given each fire of many schedules, acknowledges it, and acts in the same breath."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.right: dict[int, bool] = {}
        """The schedules of which the result is known: a chain lived to its end, or there was nothing to cancel."""
        self.fires = [0] * AT_ONCE
        self.begin = CLOCK.now() + LEAD
        self.tasks = asyncio.TaskGroup()

    def due(self, number: int) -> int:
        """Return when the next fire of a schedule is due."""
        return self.begin + number * APART + self.fires[number] * STEP

    async def run(self) -> int:
        """Store the schedules, act on their fires, and return how many came out right."""
        connection, name = self.stage.account.connection, self.stage.name
        inbox = connection.inbox(f"{name}.fires")
        number = connection.subscribe(inbox, self._delivered)
        config = {"durable_name": "worker", "ack_policy": "explicit", "filter_subject": f"{name}.t.>"}
        request = {"stream_name": name, "config": {**config, "deliver_subject": inbox}}
        await self.stage.account.api.call(f"CONSUMER.DURABLE.CREATE.{name}.worker", request)
        async with self.tasks:
            await asyncio.gather(*(self.stage.store(one, self.due(one), 0) for one in range(AT_ONCE)))
            await eventually(lambda: len(self.right) == AT_ONCE, describe=f"all results of {type(self).__name__}")
        connection.unsubscribe(number)
        return sum(self.right.values())

    async def act(self, number: int, block: bytes) -> None:
        """Act on a fire, which is acknowledged: arm the next one, until the chain is complete."""
        self.fires[number] += 1
        if self.fires[number] == LENGTH or not await self.arm(number, block):
            self.right[number] = self.fires[number] == LENGTH

    async def arm(self, number: int, block: bytes) -> bool:
        """Store the next schedule of a chain; returns whether it is stored."""
        raise NotImplementedError

    def _delivered(self, subject: bytes, reply: bytes, block: bytes, _body: bytes) -> None:
        if reply:
            self.stage.account.connection.write(frame(reply.decode(), "", b"", b"+ACK"))
            self.tasks.create_task(self.act(int(subject.rpartition(b".")[2]), block))


class Arms(Program):
    """Takes the schedule that fired for absent."""

    async def arm(self, number: int, block: bytes) -> bool:
        identity = parse_identity((header_value(block, MSG_ID) or b"").decode())
        fired, expected = 0 if identity is None else identity[1], 0
        while error := await self.stage.store(number, self.due(number), expected):
            if error["err_code"] != UNDECIDED:
                assert error["err_code"] == WRONG_LAST_SEQUENCE, error
                last = _last_sequence(error["description"])
                if last is None or int(last[1]) not in (0, fired):
                    return False
                expected = int(last[1])
        return True


class Creates(Program):
    async def arm(self, number: int, block: bytes) -> bool:
        when = at_instant(datetime.fromtimestamp(self.due(number) / SECOND, UTC))
        try:
            await self.stage.schedules.create(
                self.stage.schedule(number), when, b"next", target=self.stage.target(number)
            )
        except AlreadyExistsError:
            return False
        return True


class Removes(Program):
    async def act(self, number: int, block: bytes) -> None:
        try:
            await self.stage.schedules.cancel(self.stage.schedule(number))
        except NotFoundError:
            self.right[number] = True
        else:
            self.right[number] = False


@asynccontextmanager
async def stage_on(url: str, version: str) -> AsyncIterator[Stage]:
    """Serve a stream on a server, with a sidecar where it needs one."""
    async with AsyncExitStack() as stack:
        account = await stack.enter_async_context(account_on(url))
        client = await nats.connect(url)
        stack.push_async_callback(client.close)
        name = fresh_name()
        running = await stack.enter_async_context(sidecar_on(url)) if version in EMULATED_VERSIONS else None
        await account.create(name, allow_direct=True, storage="file")
        stack.push_async_callback(account.api.call, f"STREAM.DELETE.{name}")
        if running is not None:
            await running.ready(name)
        yield Stage(account, name, await Schedules.on(client, name))


@pytest.mark.parametrize("version", [V2_15, V2_11])
@pytest.mark.parametrize("program", [Arms, Creates, Removes])
@pytest.mark.clause("gone-with-its-fire")
async def test_what_names_the_fired_schedule_is_as_right_as_natively(
    program: type[Program], version: str, shared_server: SharedServer
) -> None:
    async with stage_on((await shared_server(version)).url, version) as stage:
        assert await program(stage).run() == AT_ONCE
