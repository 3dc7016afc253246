"""Purges are sent in groups, each is answered once, and one that is not answered in time is not taken for done."""

import asyncio
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.inputs import Input, PurgeConcluded, SchedulesPurged, Version
from nats_scheduler.jetstream import purge as block_indexes
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.purge import MAX_GROUPED_PURGES, Purger, purge_body
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

LONG_SECONDS = 600.0
"""Longer than any test takes: nothing is sent because of it."""


class Scene:
    """A purger, and what it said."""

    def __init__(self) -> None:
        self.purger: Purger
        self.inputs: list[Input] = []

    def purge(self, *numbers: int) -> None:
        for number in numbers:
            self.purger.begin(PurgeSchedule(f"s.{number}", number))

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


async def a_turn() -> None:
    """Let the event loop make one turn."""
    turned = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turned.set_result, None)
    await turned


@asynccontextmanager
async def scene(
    url: str, stream: str, seconds: float = LONG_SECONDS, *, create: bool = True, **config: Any
) -> AsyncIterator[Scene]:
    """Open a purger on a stream that is empty, or not there."""
    connection = await Dialer(ConnectionSettings(servers=(url,))).dial()
    api = JetStreamApi(connection)
    made = Scene()
    try:
        if create:
            await api.create_stream({"name": stream, "subjects": [f"{stream}.>"], **config})
        async with asyncio.TaskGroup() as tasks:
            reach = LeaderReach(api, stream, tasks, may_lag=False)
            made.purger = Purger(connection, api, {"name": stream, **config}, made.inputs.append, tasks, reach, seconds)
            yield made
            made.purger.end("the test is over")
    finally:
        await connection.close()


@pytest.fixture
async def url(shared_server: SharedServer) -> str:
    return (await shared_server(V2_11)).url


async def test_the_first_is_sent_at_once_and_those_that_follow_wait_for_each_other(url: str, stream_name: str) -> None:
    async with scene(url, stream_name) as at:
        at.purge(1)
        await at.until_done(1)
        at.purge(*range(2, MAX_GROUPED_PURGES + 1))
        await a_turn()
        assert at.purger.in_flight == 0
        at.purge(MAX_GROUPED_PURGES + 1)  # they are as many as need not wait
        await at.until_done(MAX_GROUPED_PURGES + 1)
        assert len(at.done) == MAX_GROUPED_PURGES + 1


@pytest.mark.parametrize("config", [{"retention": "workqueue"}, {"retention": "interest"}, {"max_consumers": 1}])
async def test_where_consumers_may_remove_fires_none_waits(url: str, stream_name: str, config: dict[str, Any]) -> None:
    async with scene(url, stream_name, **config) as at:
        for number in (1, 2, 3):
            at.purge(number)
            await at.until_done(number)


async def test_one_more_costs_the_same_however_many_wait(url: str, stream_name: str) -> None:
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


async def test_what_waits_is_sent_when_its_time_has_come(url: str, stream_name: str) -> None:
    async with scene(url, stream_name, 0.05) as at:
        at.purge(1)
        await at.until_done(1)
        at.purge(2, 3)
        await at.until_done(3)


async def test_what_waits_for_its_group_is_given_up_at_the_end(url: str, stream_name: str) -> None:
    async with scene(url, stream_name) as at:
        at.purge(1)
        await at.until_done(1)
        at.purge(2)
        at.purger.end("the contact ended")
        at.purge(3)
        assert at.concluded[-2:] == [PurgeConcluded(f"s.{n}", n, "the contact ended") for n in (2, 3)]


async def test_one_without_an_answer_is_not_done_and_a_late_answer_says_nothing(url: str, stream_name: str) -> None:
    async with scene(url, stream_name) as at:
        at.purge(1)
        await a_turn()
        assert at.purger.in_flight == 1
        at.purger.conclude_late(math.inf)
        said = len(at.inputs)
        at.purge(*range(2, MAX_GROUPED_PURGES + 2))
        await at.until_done(MAX_GROUPED_PURGES)
        assert [(one.schedule, one.failure) for one in at.concluded if one.failure] == [
            ("s.1", f"$JS.API.STREAM.PURGE.{stream_name}: no answer within 5.0 s")
        ]
        assert said == 1
        assert "s.1" not in at.done


async def test_a_stream_that_is_gone_refuses(url: str, stream_name: str) -> None:
    async with scene(url, stream_name, create=False) as at:
        at.purge(1)
        await eventually(lambda: bool(at.concluded), within_seconds=30)
        assert [(one.refused, one.denied) for one in at.concluded] == [(True, False)]
        assert "stream not found" in str(at.concluded[0].failure)


@asynccontextmanager
async def long_stream(
    url: str, stream: str, monkeypatch: pytest.MonkeyPatch, **config: Any
) -> AsyncIterator[tuple[Scene, Account, list[str]]]:
    """Open a purger on a stream that is taken for a long one; yields what is asked of the server to remove, too."""
    monkeypatch.setattr(block_indexes, "LONG_STREAM", 1)
    monkeypatch.setattr(block_indexes, "SHARE_FOR_EACH", 0.01)
    asked: list[str] = []
    async with account_on(url) as account:
        await account.api.create_stream({"name": stream, "subjects": [f"{stream}.>"], **config})
        for subject in (f"$JS.API.STREAM.PURGE.{stream}", f"$JS.API.STREAM.MSG.DELETE.{stream}"):
            account.connection.subscribe(subject, lambda subject, *_more: asked.append(subject.decode().split(".")[3]))
        async with scene(url, stream, 0.05, create=False) as at:
            yield at, account, asked


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
        assert (await left(account, stream_name), asked) == ([], ["MSG"])
        at.purger.begin(PurgeSchedule(subject, 2))  # somebody else has removed it
        await at.until_done(2)
        await account.publish(subject)
        await account.publish(subject)
        at.purger.begin(PurgeSchedule(subject, 3, None, Version(3, 0)))
        await at.until_done(3)
        assert (await left(account, stream_name), asked) == ([4], ["MSG", "MSG"]), "the replacement stays"


async def test_in_a_long_stream_what_has_the_sequence_of_a_lost_schedule_stays(
    url: str, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with long_stream(url, stream_name, monkeypatch) as (at, account, asked):
        await account.publish(f"{stream_name}.s")
        await account.publish(f"{stream_name}.other")
        at.purger.begin(PurgeSchedule(f"{stream_name}.s", 2, None, Version(2, 0)))
        await at.until_done(1)
        assert (await left(account, stream_name), asked) == ([], ["PURGE"])
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
        assert (await left(account, stream_name), asked[-1]) == ([], "PURGE")
        await account.publish(subject)
        at.purger.begin(PurgeSchedule(subject, through + 1))
        await at.until_done(2)
        assert (await left(account, stream_name), asked[-2:]) == ([], ["PURGE", "PURGE"]), "it costs little now"


@pytest.mark.parametrize(
    ("subject", "written"),
    [("a.b", '"a.b"'), ('a."', '"a.\\""'), ("a.\\", '"a.\\\\"'), ("größe", '"gr\\u00f6\\u00dfe"')],
)
def test_a_request_names_its_subject_as_json_does(subject: str, written: str) -> None:
    assert purge_body(subject, 7) == f'{{"filter":{written},"seq":8}}'.encode()
