"""Purges: sent alone or jointly, each removes what it names and nothing else, and is answered once.

One that is not answered in time is not taken for done. A long stream is purged only where that does not have the server
read all of its indexes for one message.
"""

import asyncio
import math
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import pytest

from nats_scheduler.control.transport import request_json
from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.inputs import Input, PurgeConcluded, SchedulesPurged, Version
from nats_scheduler.jetstream import block_indexes
from nats_scheduler.jetstream.block_indexes import (
    KEPT_SECONDS,
    LONG_STREAM,
    SHARE_FOR_EACH,
    VERY_LONG_STREAM,
    BlockIndexes,
)
from nats_scheduler.jetstream.joint_purge import MIN_JOINT_PURGES, filter_of
from nats_scheduler.jetstream.purge import MAX_PURGES_IN_FLIGHT, Purger, purge_body
from nats_scheduler.jetstream.reach import LeaderReach
from tests.conftest import SharedServer
from tests.contract.conftest import OpenSide
from tests.contract.sides import PortSide, server_side
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_10, V2_11, V2_15
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
    await request_json(account.connection, "$JS.API.INFO")
    yield seen


@asynccontextmanager
async def watched(url: str, stream: str) -> AsyncIterator[tuple[PortSide, list[bytes]]]:
    """Open a side, and watch the purges that are requested."""
    async with server_side(url, stream, {}) as side, account_on(url) as account, removals(account, stream) as seen:
        bodies: list[bytes] = []
        yield side, bodies
        await request_json(account.connection, "$JS.API.INFO")  # answered behind all that was seen
        bodies += [body for _request, body in seen]


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


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_a_burst_of_which_all_is_done_takes_few_requests(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    async with watched((await shared_server(version)).url, stream_name) as (side, bodies):
        requests = await store_burst(side, 2 * NUMBER)
        await purge(side, requests[::-1])  # in whatever order they are done
        assert await side.stored() == []
    assert any(b"*" in body for body in bodies)
    assert len(bodies) < len(requests) // 2


async def test_a_burst_that_cannot_be_purged_jointly_is_purged_one_by_one(url: str, stream_name: str) -> None:
    """One that is not done lies below it."""
    async with watched(url, stream_name) as (side, bodies):
        kept = await store_all(side, ["s.far"])
        requests = await store_burst(side)
        await purge(side, requests)
        assert [sequence for sequence, _name in await side.stored()] == kept
    assert [body for body in bodies if b"*" in body] == []
    assert len(bodies) == len(requests)


async def test_what_is_done_before_what_was_stored_before_it_is_purged_too(url: str, stream_name: str) -> None:
    async with watched(url, stream_name) as (side, bodies):
        requests = await store_burst(side, NUMBER)
        [far] = await store_all(side, ["s.far"])
        requests += await store_burst(side, 100, first=len(requests))
        requests.insert(200, requests.pop(700))
        answers = await purge(side, requests)
        assert {answer.failure for answer in answers} == {None}
        assert await side.stored() == [(far, "s.far")]
    assert any(b"*" in body for body in bodies)
    assert len(bodies) < len(requests) * 2 // 3


async def test_what_fits_into_the_window_is_purged_one_by_one(url: str, stream_name: str) -> None:
    async with watched(url, stream_name) as (side, bodies):
        await purge(side, await store_burst(side, MAX_PURGES_IN_FLIGHT))
        assert await side.stored() == []
    assert len(bodies) == MAX_PURGES_IN_FLIGHT


async def test_what_is_to_be_purged_jointly_is_given_up_at_the_end(url: str, stream_name: str) -> None:
    number = MAX_PURGES_IN_FLIGHT + MIN_JOINT_PURGES
    async with scene(url, stream_name) as at:
        at.purge(*range(number))
        at.purger.begin(PurgeSchedule("rolled.up", 1))
        await one_turn()
        assert at.purger.in_flight == 1, "the roll-up, which is sent alone"
        at.purger.end("the contact ended")
        assert [one.failure for one in at.concluded] == ["the contact ended"] * (number + 1)


async def test_a_purge_up_to_below_what_is_stored_removes_nothing(url: str, stream_name: str) -> None:
    async with server_side(url, stream_name, {}) as side:
        requests = await store_burst(side)
        await purge(side, [one._replace(through=one.through - 1) for one in requests[1:]])
        assert len(await side.stored()) == NUMBER


@pytest.mark.parametrize("number", [3, NUMBER])
async def test_a_stream_that_denies_purges_refuses_each(url: str, stream_name: str, number: int) -> None:
    async with server_side(url, stream_name, {"deny_purge": True, "allow_rollup_hdrs": False}) as side:
        requests = await store_burst(side, number)
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


def test_a_request_names_its_subject_as_json_does() -> None:
    for subject, written in (
        ("a.b", '"a.b"'),
        ('a."', '"a.\\""'),
        ("a.\\", '"a.\\\\"'),
        ("größe", '"gr\\u00f6\\u00dfe"'),
    ):
        assert purge_body(subject, 7) == f'{{"filter":{written},"seq":8}}'.encode()


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
async def scene(url: str, stream: str, *, create: bool = True, **config: Any) -> AsyncIterator[Scene]:
    """Open a purger on a stream that is empty, or not there."""
    made = Scene()
    async with account_on(url) as account:
        if create:
            await account.create(stream, allow_msg_schedules=False, **config)
        async with asyncio.TaskGroup() as tasks:
            reach = LeaderReach(account.api, stream, may_lag=False)
            config = {"name": stream, **config}
            note = made.inputs.append
            made.purger = Purger(account.connection, account.api, config, note, tasks, reach)
            yield made
            made.purger.end("the test is over")


async def test_each_purge_is_sent_in_the_next_turn(url: str, stream_name: str) -> None:
    async with scene(url, stream_name) as at:
        for number in range(1, 4):
            at.purge(number)
            await one_turn()
            assert at.purger.in_flight + len(at.done) == number
        at.purger.begin_at_once([PurgeSchedule("s.4", 4, None, Version(4, 0))])
        assert at.purger.in_flight + len(at.done) == 4
        await at.until_done(4)


async def test_purges_beyond_the_window_wait_for_answers(url: str, stream_name: str) -> None:
    async with scene(url, stream_name, retention="workqueue") as at:
        at.purge(*range(1, 2 * MAX_PURGES_IN_FLIGHT))
        await one_turn()
        assert at.purger.in_flight == MAX_PURGES_IN_FLIGHT
        await at.until_done(2 * MAX_PURGES_IN_FLIGHT - 1)


async def test_one_more_purge_costs_the_same_however_many_wait(url: str, stream_name: str) -> None:
    calls = 0

    def count(_frame: FrameType, event: str, _value: object) -> None:
        nonlocal calls
        calls += event == "call"

    async with scene(url, stream_name) as at:
        at.purge(*range(1, 1_001))
        sys.setprofile(count)
        at.purge(1_001)
        sys.setprofile(None)
        await at.until_done(1_001)
    assert calls < 50


async def test_purges_that_were_not_sent_are_given_up_at_the_end(url: str, stream_name: str) -> None:
    async with scene(url, stream_name) as at:
        at.purge(2)
        at.purger.end("the contact ended")
        at.purge(3)
        assert at.concluded == [PurgeConcluded(f"s.{n}", n, "the contact ended", known=Version(n, 0)) for n in (2, 3)]


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


async def test_a_stream_that_is_gone_refuses(url: str, stream_name: str) -> None:
    async with scene(url, stream_name, create=False) as at:
        at.purge(1)
        await eventually(lambda: bool(at.concluded), within_seconds=30)
        assert [(one.refused, one.denied) for one in at.concluded] == [(True, False)]
        assert "stream not found" in str(at.concluded[0].failure)


# -- long streams ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def long_stream(
    url: str, stream: str, monkeypatch: pytest.MonkeyPatch, **config: Any
) -> AsyncIterator[tuple[Scene, Account, list[tuple[str, bytes]]]]:
    """Open a purger on a stream that is taken for a long one; yields what is asked of the server to remove, too."""
    monkeypatch.setattr(block_indexes, "LONG_STREAM", 1)
    monkeypatch.setattr(block_indexes, "SHARE_FOR_EACH", 0.01)
    async with account_on(url) as account, removals(account, stream) as asked:
        await account.create(stream, allow_msg_schedules=False, **config)
        async with scene(url, stream, create=False) as at:
            yield at, account, asked


def kinds(asked: list[tuple[str, bytes]]) -> list[str]:
    return [kind for kind, _body in asked]


async def left(account: Account, stream: str) -> list[int]:
    return [message.sequence for message in await account.messages(stream, f"{stream}.s")]


async def test_in_a_long_stream_the_only_message_of_a_subject_is_deleted(
    url: str, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with long_stream(url, stream_name, monkeypatch) as (at, account, asked):
        subject = f"{stream_name}.s"
        await account.publish(f"{stream_name}.other")
        await account.publish(subject)
        at.purger.begin(PurgeSchedule(subject, 2))
        await at.until_done(1)
        assert (await left(account, stream_name), kinds(asked)) == ([], ["MSG"])
        at.purger.begin(PurgeSchedule(subject, 2))  # somebody else has removed it
        await at.until_done(2)
        await account.publish(subject)
        await account.publish(subject)
        at.purger.begin(PurgeSchedule(subject, 3, None, Version(3, 0)))
        await at.until_done(3)
        assert (await left(account, stream_name), kinds(asked)) == ([4], ["MSG", "MSG"]), "the replacement stays"


async def test_a_message_with_the_sequence_of_a_lost_schedule_stays(
    url: str, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with long_stream(url, stream_name, monkeypatch) as (at, account, asked):
        await account.publish(f"{stream_name}.s")
        await account.publish(f"{stream_name}.other")
        at.purger.begin(PurgeSchedule(f"{stream_name}.s", 2, None, Version(2, 0)))
        await at.until_done(1)
        assert (await left(account, stream_name), kinds(asked)) == ([], ["PURGE"])
        assert [one.sequence for one in await account.messages(stream_name, f"{stream_name}.other")] == [2]


@pytest.mark.parametrize("config", [{}, {"deny_delete": True}])
async def test_in_a_long_stream_what_is_more_than_one_message_is_purged(
    url: str, stream_name: str, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    async with long_stream(url, stream_name, monkeypatch, **config) as (at, account, asked):
        subject = f"{stream_name}.s"
        for _ in range(1 if config else 2):
            through = await account.publish(subject)
        at.purger.begin(PurgeSchedule(subject, through))
        await at.until_done(1)
        assert (await left(account, stream_name), kinds(asked)[-1]) == ([], "PURGE")
        await account.publish(subject)
        at.purger.begin(PurgeSchedule(subject, through + 1))
        await at.until_done(2)
        assert (await left(account, stream_name), kinds(asked)[-2:]) == ([], ["PURGE", "PURGE"]), "it costs little now"


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


def test_many_purges_are_sent_in_a_long_stream_and_none_in_a_longer() -> None:
    indexes, most = BlockIndexes(), LONG // SHARE_FOR_EACH
    indexes.note_length(LONG, 0.0)
    assert unread(indexes, most + 100, 0.0) == most
    assert unread(indexes, 100, KEPT_SECONDS) == 100, "they count for a minute"
    indexes.note_length(VERY_LONG_STREAM + 1, KEPT_SECONDS)
    assert unread(indexes, 2 * most, KEPT_SECONDS) == 2 * most


def test_a_stream_of_few_messages_is_looked_at_once_a_minute() -> None:
    indexes = BlockIndexes()
    assert unread(indexes, 5, 0.0) == 5, "nobody knows yet"
    indexes.note_length(100, 0.0)
    assert unread(indexes, 5, KEPT_SECONDS - 1) == 0
    assert unread(indexes, 5, KEPT_SECONDS) == 1
    indexes.note_length(LONG, KEPT_SECONDS)
    assert unread(indexes, 5, KEPT_SECONDS) == 5
