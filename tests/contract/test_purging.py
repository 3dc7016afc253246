"""Many purges at once remove what each names and nothing else, in whatever way they are sent, and each is answered."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.inputs import PurgeConcluded
from nats_scheduler.engine.sharing.shards import shard_of
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.purge import MIN_JOINT_PURGES, filter_of
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import SharedServer, StartServer
from tests.contract.conftest import OpenSide
from tests.contract.sides import PortSide, server_side
from tests.harness.servers import V2_10, V2_11, V2_15

NUMBER = MIN_JOINT_PURGES + 700
"""Enough to be purged jointly, in more than one request."""
STORED_AT_ONCE = 256


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
    return [PurgeSchedule(side.subject(name), at) for name, at in zip(names, sequences, strict=True)]


async def purge(side: PortSide, requests: list[PurgeSchedule]) -> list[PurgeConcluded]:
    """Order purges, wait for their answers, and check that each has one."""
    for request in requests:
        side.contact.purge(request)
    answers = await side.hears(PurgeConcluded, len(requests))
    answered = Counter((answer.schedule, answer.through) for answer in answers)
    assert answered == Counter((request.schedule, request.through) for request in requests)
    return answers


class Purged:
    """The filters of the purges that the stream's server receives."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self.bodies: list[bytes] = []
        connection.subscribe(f"$JS.API.STREAM.PURGE.{stream}", lambda _to, _reply, _block, body: self.add(body))

    def add(self, body: bytes) -> None:
        self.bodies.append(body)

    @property
    def joint(self) -> list[bytes]:
        """Those with a wildcard."""
        return [body for body in self.bodies if b"*" in body]


@asynccontextmanager
async def watched(url: str, stream: str) -> AsyncIterator[Purged]:
    """Watch the purges that are requested of a stream."""
    connection = await Dialer(ConnectionSettings(servers=(url,))).dial()
    try:
        seen = Purged(connection, stream)
        await connection.request_json("$JS.API.INFO")
        yield seen
    finally:
        await connection.close()


async def test_a_burst_is_purged_and_what_else_lies_there_stays(open_side: OpenSide) -> None:
    async with open_side() as side:
        [older] = await store_all(side, ["s.5"])
        requests = await store_burst(side)
        kept = await store_all(side, ["s.5", "other", "s.more", "s.7.more"])
        answers = await purge(side, requests)
        assert [answer for answer in answers if answer.failure is not None] == []
        assert older < requests[5].through
        assert await side.stored() == list(zip(kept, ["s.5", "other", "s.more", "s.7.more"], strict=True))


async def test_a_schedule_that_is_not_done_stays_wherever_it_lies(open_side: OpenSide) -> None:
    async with open_side() as side:
        requests = await store_burst(side, 1_000)
        kept = await store_all(side, ["s.far"])
        requests += await store_burst(side, NUMBER - 1_000, first=1_000)
        await purge(side, requests)
        assert await side.stored() == [(kept[0], "s.far")]


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_a_burst_of_which_all_is_done_takes_few_requests(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    server = await shared_server(version)
    async with server_side(server.url, stream_name, {}) as side, watched(server.url, stream_name) as seen:
        requests = await store_burst(side, 2 * NUMBER)
        await purge(side, requests[::-1])  # in whatever order they are done
        assert await side.stored() == []
        assert seen.joint
        assert len(seen.bodies) < len(requests) // 2


async def test_a_schedule_that_is_not_done_below_a_burst_keeps_each_request_to_one_subject(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    async with server_side(server.url, stream_name, {}) as side, watched(server.url, stream_name) as seen:
        await side.store("s.far")
        requests = await store_burst(side)
        await purge(side, requests)
        assert await side.stored() == [(1, "s.far")]
        assert (seen.joint, len(seen.bodies)) == ([], len(requests))


async def test_an_instance_that_holds_some_of_the_shards_purges_each_alone(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    async with server_side(server.url, stream_name, {}) as side, watched(server.url, stream_name) as seen:
        names = [f"s.{n}" for n in range(NUMBER + 100) if shard_of(side.subject(f"s.{n}")) != 7]
        sequences = await store_all(side, names)
        await purge(side, [PurgeSchedule(side.subject(one), at) for one, at in zip(names, sequences, strict=True)])
        assert await side.stored() == []
        assert (seen.joint, len(seen.bodies)) == ([], len(names))


async def test_a_purge_up_to_below_what_is_stored_removes_nothing(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    async with server_side(server.url, stream_name, {}) as side:
        requests = await store_burst(side)
        await purge(side, [one._replace(through=one.through - 1) for one in requests[1:]])
        assert len(await side.stored()) == NUMBER


async def test_two_purges_of_one_subject_are_both_answered(open_side: OpenSide) -> None:
    async with open_side() as side:
        requests = await store_burst(side)
        twice = [requests[3]._replace(through=1), requests[3]]
        await purge(side, [*requests, *twice])
        assert await side.stored() == []


@pytest.mark.parametrize("number", [3, NUMBER])
async def test_a_stream_that_denies_purges_refuses_each(
    shared_server: SharedServer, stream_name: str, number: int
) -> None:
    server = await shared_server(V2_11)
    async with server_side(server.url, stream_name, {"deny_purge": True, "allow_rollup_hdrs": False}) as side:
        requests = await store_burst(side, number)
        answers = await purge(side, requests)
        assert {(answer.refused, answer.denied) for answer in answers} == {(True, False)}
        assert "stream purge not permitted" in str(answers[0].failure)


async def test_where_the_user_may_not_purge_each_is_denied(start_server: StartServer, stream_name: str) -> None:
    permissions = "permissions: { publish: { deny: [ '$JS.API.STREAM.PURGE.>' ] } }"
    users = f"users: [ {{ user: a, password: b, {permissions} }} ]"
    server = await start_server(V2_11, config=f"accounts {{ A: {{ jetstream: enabled, {users} }} }}\nno_auth_user: a\n")
    async with server_side(server.url, stream_name, {}) as side:
        requests = await store_burst(side, 300)
        answers = await purge(side, requests)
        assert {(answer.refused, answer.denied) for answer in answers} == {(False, True)}


async def test_subjects_that_json_spells_in_another_way_are_purged(open_side: OpenSide) -> None:
    names = ['quo"te', "back\\slash", "größe", "🙂", "</script>", "tab\\t", "\x01"]
    async with open_side() as side:
        sequences = await store_all(side, names)
        requests = [PurgeSchedule(side.subject(name), at) for name, at in zip(names, sequences, strict=True)]
        await purge(side, requests)
        assert await side.stored() == []


@pytest.mark.parametrize(
    ("subjects", "wanted"),
    [
        (["a.b.1", "a.b.2"], "a.b.*"),
        (["a.1.x", "a.2.x", "a.3.x"], "a.*.x"),
        (["a.b"], "a.b"),
        (["a.1", "b.2"], None),
        (["a.1", "a.1.2"], None),
        ([], None),
    ],
)
def test_a_filter_has_a_wildcard_where_subjects_differ(subjects: list[str], wanted: Any) -> None:
    assert filter_of(subjects) == wanted
