"""Purges: sent alone or jointly, each removes what it names and nothing else, and is answered once.

One that is not answered in time is not taken for done. A long stream is purged only where that does not have the server
read all of its indexes for one message.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.inputs import Input, PurgeConcluded, SchedulesPurged, Version
from nats_scheduler.jetstream import block_indexes
from nats_scheduler.jetstream.block_indexes import (
    KEPT_SECONDS,
    LONG_STREAM,
    BlockIndexes,
)
from nats_scheduler.jetstream.joint_purge import MIN_JOINT_PURGES, filter_of
from nats_scheduler.jetstream.purge import MAX_PURGES_IN_FLIGHT, Purger
from nats_scheduler.jetstream.reach import LeaderReach
from tests.conftest import SharedServer
from tests.contract.conftest import OpenSide
from tests.contract.sides import PortSide, server_side
from tests.harness.account import Account, account_on, flushed
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually, one_turn

NUMBER = MAX_PURGES_IN_FLIGHT + MIN_JOINT_PURGES + 300
"""Enough to be purged jointly, in more than one request."""
STORED_AT_ONCE = 256


@pytest.fixture
async def url(shared_server: SharedServer) -> str:
    return (await shared_server(V2_11)).url


async def store_all(side: PortSide, names: list[str]) -> list[int]:
    """Store a message on each subject, in order, and return their sequences."""
    sequences: list[int] = []
    for start in range(0, len(names), STORED_AT_ONCE):
        sequences += await asyncio.gather(*map(side.store, names[start : start + STORED_AT_ONCE]))
    return sequences


async def store_burst(side: PortSide, number: int = NUMBER, *, first: int = 0) -> list[PurgeSchedule]:
    """Store schedules that are done, and return their purges."""
    names = [f"s.{n}" for n in range(first, first + number)]
    sequences = await store_all(side, names)
    return [
        PurgeSchedule(side.subject(name), at, None, Version(at, 0)) for name, at in zip(names, sequences, strict=True)
    ]


async def purge(side: PortSide, requests: list[PurgeSchedule]) -> list[PurgeConcluded]:
    """Order purges, wait for their answers, and check that each has one."""
    for request in requests:
        side.contact.purge(request)
    answers = await side.hears(PurgeConcluded, len(requests))
    answered = Counter((answer.schedule, answer.through) for answer in answers)
    assert answered == Counter((request.schedule, request.through) for request in requests)
    return answers


@asynccontextmanager
async def removals(account: Account, stream: str) -> AsyncIterator[list[tuple[str, bytes]]]:
    """Watch what is asked of a server to remove from a stream: PURGE or MSG, and the body of the request."""
    seen: list[tuple[str, bytes]] = []

    def note(subject: bytes, _reply: bytes, _block: bytes, body: bytes) -> None:
        seen.append((subject.decode().split(".")[3], body))

    for request in ("PURGE", "MSG.DELETE"):
        account.connection.subscribe(f"$JS.API.STREAM.{request}.{stream}", note)
    await flushed(account.connection)
    yield seen


async def test_a_burst_is_purged_and_what_else_lies_there_stays(side: PortSide) -> None:
    [older] = await store_all(side, ["s.5"])
    requests = await store_burst(side, 1_000)
    [far] = await store_all(side, ["s.far"])
    requests += await store_burst(side, NUMBER - 1_000, first=1_000)
    others = ["s.5", "other", "s.more", "s.7.more"]
    kept = await store_all(side, others)
    twice = [requests[3]._replace(through=1), requests[3]]
    answers = await purge(side, [*requests, *twice])
    assert [answer for answer in answers if answer.failure is not None] == []
    assert older < requests[5].through
    assert await side.stored() == [(far, "s.far"), *zip(kept, others, strict=True)]


async def test_a_burst_of_which_all_is_done_takes_few_requests(url: str, stream_name: str) -> None:
    async with (
        server_side(url, stream_name, {}) as side,
        account_on(url) as account,
        removals(account, stream_name) as asked,
    ):
        requests = await store_burst(side, 2 * NUMBER)
        await purge(side, requests[::-1])  # in whatever order they are done
        assert await side.stored() == []
        await flushed(account.connection)
    assert any(b"*" in body for _request, body in asked)
    assert len(asked) < len(requests) // 2


async def test_a_stream_that_denies_purges_refuses_each(url: str, stream_name: str) -> None:
    async with server_side(url, stream_name, {"deny_purge": True, "allow_rollup_hdrs": False}) as side:
        requests = await store_burst(side)
        answers = await purge(side, requests)
        assert {(answer.refused, answer.denied) for answer in answers} == {(True, False)}
        assert "stream purge not permitted" in str(answers[0].failure)


async def test_subjects_that_json_spells_in_another_way_are_purged(open_side: OpenSide) -> None:
    names = ['quo"te', "back\\slash", "größe", "🙂", "</script>", "tab\\t", "\x01"]
    async with open_side() as side:
        sequences = await store_all(side, names)
        requests = [PurgeSchedule(side.subject(name), at) for name, at in zip(names, sequences, strict=True)]
        await purge(side, requests)
        assert await side.stored() == []


def test_a_filter_has_a_wildcard_where_subjects_differ() -> None:
    cases: list[tuple[list[str], str | None]] = [
        (["a.b.1", "a.b.2"], "a.b.*"),
        (["a.1.x", "a.2.x", "a.3.x"], "a.*.x"),
        (["a.b"], "a.b"),
        (["a.1", "b.2"], None),
        (["a.1", "a.1.2"], None),
        ([], None),
    ]
    assert [(subjects, filter_of(subjects)) for subjects, _wanted in cases] == cases


# -- the window ------------------------------------------------------------------------------------------------------


class Scene:
    """A purger, and what it said."""

    def __init__(self) -> None:
        self.purger: Purger
        self.inputs: list[Input] = []

    def purge(self, *numbers: int) -> None:
        for number in numbers:
            self.purger.begin(PurgeSchedule(f"s.{number}", number, None, Version(number, 0)))

    @property
    def done(self) -> list[str]:
        """The schedules that were purged, or found purged."""
        several = [one for given in self.inputs if isinstance(given, SchedulesPurged) for one in given.schedules]
        return several + [one.schedule for one in self.concluded if one.failure is None]

    @property
    def concluded(self) -> list[PurgeConcluded]:
        return [given for given in self.inputs if isinstance(given, PurgeConcluded)]

    async def until_done(self, count: int) -> None:
        await eventually(lambda: len(self.done) >= count, within_seconds=30)


@asynccontextmanager
async def scene(url: str, stream: str) -> AsyncIterator[Scene]:
    """Open a purger on a stream that is empty."""
    made = Scene()
    async with account_on(url) as account:
        await account.create(stream, allow_msg_schedules=False)
        async with asyncio.TaskGroup() as tasks:
            reach = LeaderReach(account.api, stream, may_lag=False)
            note = made.inputs.append
            made.purger = Purger(account.connection, account.api, {"name": stream}, note, tasks, reach)
            yield made
            made.purger.end("the test is over")


async def test_a_purge_without_an_answer_is_not_done(url: str, stream_name: str) -> None:
    async with scene(url, stream_name) as at:
        at.purge(1)
        await one_turn()
        assert at.purger.in_flight == 1
        at.purger.conclude_late(math.inf)
        said = len(at.inputs)
        at.purge(*range(2, 12))
        await at.until_done(10)
        assert [(one.schedule, one.failure) for one in at.concluded if one.failure] == [
            ("s.1", f"$JS.API.STREAM.PURGE.{stream_name}: no answer within 5.0 s")
        ]
        assert said == 1
        assert "s.1" not in at.done


async def test_only_an_answer_of_the_server_says_that_a_purge_was_done(url: str, stream_name: str) -> None:
    async with scene(url, stream_name) as at:
        at.purge(1, 2)
        await one_turn()
        first, second = list(at.purger._in_flight)
        at.purger.acknowledged(first, b"NATS/1.0\r\nA: b\r\n\r\n", b'{"success":true,"purged":1}')
        assert at.inputs == []
        at.purger.acknowledged(second, b"", b'{"purged":1}')
        assert ["neither that it was done" in str(one.failure) for one in at.concluded] == [True]
        await at.until_done(1)
        assert at.done == ["s.1"]


# -- long streams ----------------------------------------------------------------------------------------------------


async def test_in_a_long_stream_the_only_message_of_a_subject_is_deleted(
    url: str, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_indexes, "LONG_STREAM", 1)
    monkeypatch.setattr(block_indexes, "SHARE_FOR_EACH", 0.01)
    subject = f"{stream_name}.s"
    async with (
        account_on(url) as account,
        removals(account, stream_name) as asked,
        scene(url, stream_name) as at,
    ):
        await account.publish(f"{stream_name}.other")
        await account.publish(subject)
        at.purger.begin(PurgeSchedule(subject, 2))
        await at.until_done(1)
        assert await account.messages(stream_name, subject) == []
        at.purger.begin(PurgeSchedule(subject, 2))  # somebody else has removed it
        await at.until_done(2)
        await account.publish(subject)
        await account.publish(subject)
        at.purger.begin(PurgeSchedule(subject, 3, None, Version(3, 0)))
        await at.until_done(3)
        left = [message.sequence for message in await account.messages(stream_name, subject)]
        assert left == [4], "the replacement stays"
        assert [kind for kind, _body in asked] == ["MSG", "MSG"]


LONG = 10 * LONG_STREAM


def unread(indexes: BlockIndexes, count: int, now: float, sequence: int = LONG) -> int:
    """Return how many of `count` purges are to be avoided."""
    return sum(indexes.are_unread(sequence, now) for _ in range(count))


def test_a_long_stream_is_purged_if_that_was_done_a_moment_ago() -> None:
    assert unread(BlockIndexes(), 5, 0.0, LONG_STREAM - 1) == 0, "one with few sequences always is"
    indexes = BlockIndexes()
    indexes.note_length(LONG, 1.0)
    assert unread(indexes, 5, 1.0) == 5
    indexes.note_read(2.0)
    assert unread(indexes, 5, 1.9 + KEPT_SECONDS) == 0
    assert unread(indexes, 5, 2.0 + KEPT_SECONDS) == 5


def test_a_stream_of_few_messages_is_looked_at_once_a_minute() -> None:
    indexes = BlockIndexes()
    assert unread(indexes, 5, 0.0) == 5, "nobody knows yet"
    indexes.note_length(100, 0.0)
    assert unread(indexes, 5, KEPT_SECONDS - 1) == 0
    assert unread(indexes, 5, KEPT_SECONDS) == 1
    indexes.note_length(LONG, KEPT_SECONDS)
    assert unread(indexes, 5, KEPT_SECONDS) == 5
