"""What the store on a connection does beside the contract of all stores: answers of servers, and what they forbid."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.control.errors import (
    ConflictError,
    ForbiddenError,
    NoAnswerError,
    NotFoundError,
    NotPossibleError,
    RefusedError,
    ScheduleError,
    UnknownOutcomeError,
)
from nats_scheduler.control.port import Published
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.message.stored import StoredMessage
from tests.conftest import SharedServer, StartServer
from tests.control.test_connection_store import store_of
from tests.harness.account import Account, account_on
from tests.harness.blocks import block_to_send
from tests.harness.servers import V2_10, V2_11, V2_15

NEVER = "@at 2200-01-01T00:00:00Z"


def block(pattern: str = NEVER, **more: str) -> bytes:
    """Make the headers of a schedule that no server of the test fires."""
    headers = {"X-Nats-Schedule": pattern, "X-Nats-Schedule-Target": "out"}
    return block_to_send(headers | {name.replace("_", "-"): value for name, value in more.items()})


async def ended(changing: Awaitable[Published | None]) -> type[Exception] | None:
    """Return the kind of error with which a change ended, None for none."""
    try:
        await changing
    except ScheduleError as error:
        return type(error)
    return None


@dataclass
class Edited:
    """A stream with schedules that nobody fires, and its store."""

    account: Account
    name: str
    store: ScheduleStore

    @property
    def subject(self) -> str:
        return f"{self.name}.s"

    async def publish(self, pattern: str = NEVER, *, expected: int | None) -> int:
        """Publish a schedule and return its sequence; the server must take it."""
        return (await self.store.publish(self.name, self.subject, block(pattern), b"body", expected=expected)).sequence

    async def refusal(self, written: bytes, *, expected: int, subject: str = "") -> type[Exception] | None:
        """Return why a block is not stored."""
        return await ended(self.store.publish(self.name, subject or self.subject, written, b"", expected=expected))

    async def at(self, sequence: int) -> StoredMessage:
        message = await self.account.api.message(self.name, seq=sequence)
        assert message is not None
        return message

    async def last(self) -> StoredMessage | None:
        return await self.account.api.message(self.name, last_by_subj=self.subject)

    async def versions(self) -> list[int]:
        return [one.sequence for one in await self.account.messages(self.name, self.subject)]


async def edited(account: Account, name: str, **config: Any) -> Edited:
    await account.create(name, allow_msg_schedules=False, **config)
    return Edited(account, name, await store_of(account))


@pytest.fixture(params=[V2_10, V2_11, V2_15])
async def account(request: pytest.FixtureRequest, shared_server: SharedServer) -> AsyncIterator[Account]:
    async with account_on((await shared_server(request.param)).url) as connected:
        yield connected


@pytest.fixture
async def stream(account: Account, stream_name: str) -> Edited:
    return await edited(account, stream_name)


OUTCOMES: list[tuple[list[int], type[Exception] | None]] = [
    ([10164, 10163, 10063], None),
    ([10164, 10071], ConflictError),
    ([10164] * 9, NoAnswerError),
    ([10008], UnknownOutcomeError),
    ([10158], UnknownOutcomeError),
    ([0], UnknownOutcomeError),
    ([10077], RefusedError),
]
"""The codes of a server's answers, one after the other, and the outcome."""


async def test_what_the_server_cannot_say_yet_is_no_change_of_another_client(
    shared_server: SharedServer, stream_name: str
) -> None:
    async with account_on((await shared_server(V2_15)).url) as account:
        answers: list[bytes] = []

        def answer(_subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
            account.connection.write(frame(reply.decode(), "", b"", answers.pop(0)))

        account.connection.subscribe(f"{stream_name}.s", answer)
        store = await store_of(account)
        for codes, outcome in OUTCOMES:
            answers[:] = [*map(refusal, codes), b'{"stream": "ELSEWHERE", "seq": 7}']
            found = await ended(store.publish("ELSEWHERE", f"{stream_name}.s", block(), b"", expected=3))
            assert found is outcome, codes


def refusal(code: int) -> bytes:
    error = {"code": 503 if code == 0 else 400, "err_code": code, "description": "not now"}
    return json.dumps({"error": error, "stream": "ELSEWHERE", "seq": 0}).encode()


async def test_what_cannot_be_stored_there_is_refused(stream: Edited) -> None:
    """A condition that the server would not find, a subject of another stream, and one of no stream."""
    hiding = block(Note="Nats-Expected-Last-Subject-Sequence: 7 Nats-Expected-Stream: x")
    assert await stream.refusal(hiding, expected=5) in (NotPossibleError, ConflictError)
    assert await stream.last() is None
    await stream.account.create(f"{stream.name}-2", allow_msg_schedules=False)
    assert await stream.refusal(block(), expected=0, subject=f"{stream.name}-2.s") is not None
    assert await stream.account.api.message(f"{stream.name}-2", last_by_subj=f"{stream.name}-2.s") is None
    assert await stream.refusal(block(), expected=0, subject="nobody.listens") is NoAnswerError


async def test_what_the_stream_forbids_is_refused_or_done_otherwise(account: Account, stream_name: str) -> None:
    stream = await edited(account, f"{stream_name}-full", max_msg_size=300)
    with pytest.raises(RefusedError) as raised:
        await stream.store.publish(stream.name, stream.subject, block(), bytes(1_000), expected=0)
    assert raised.value.code == 10054
    unpurged = await edited(account, f"{stream_name}-unpurged", deny_purge=True)
    sequence = 0
    for hours in (1, 2, 3):
        sequence = await unpurged.publish(f"@every {hours}h", expected=sequence)
    await unpurged.store.delete(unpurged.name, await unpurged.at(sequence))
    assert await unpurged.versions() == [], "each version is deleted"
    kept = await edited(account, f"{stream_name}-kept", deny_purge=True, deny_delete=True)
    sequence = await kept.publish(expected=0)
    assert await ended(kept.store.delete(kept.name, await kept.at(sequence))) is RefusedError
    assert await kept.versions() == [sequence]


async def test_another_message_under_the_same_sequence_is_not_deleted(stream: Edited) -> None:
    """As after a restore, or if the stream was created anew: the sequences begin again."""
    first = await stream.at(await stream.publish(expected=0))
    earlier, elsewhere = first._replace(stored_at=first.stored_at - 1), first._replace(subject=f"{stream.name}.other")
    assert await ended(stream.store.delete(stream.name, earlier)) is ConflictError
    assert await ended(stream.store.delete(stream.name, elsewhere)) is NotFoundError
    unseen = StoredMessage(stream.subject, 1_000, 1, b"", b"")
    assert await ended(stream.store.delete(stream.name, unseen)) is UnknownOutcomeError, "the leader may be behind"
    assert await stream.versions() == [first.sequence]


async def test_of_a_delete_and_an_edit_at_the_same_time_neither_undoes_the_other(stream: Edited) -> None:
    """Either the edit is stored and stays, or the delete came first and the edit finds its schedule changed."""
    for _ in range(30):
        sequence = await stream.publish(expected=(await stream.versions() or [0])[-1])
        removed, written = await asyncio.gather(
            ended(stream.store.delete(stream.name, await stream.at(sequence))),
            ended(stream.store.publish(stream.name, stream.subject, block("@every 1h"), b"edited", expected=sequence)),
        )
        last = await stream.last()
        if written is None:
            assert last is not None
            assert (last.sequence > sequence, last.body, removed) == (True, b"edited", ConflictError)
        else:
            assert (last, written, removed) == (None, ConflictError, None)


async def test_schedules_of_a_native_server_are_edited_in_the_same_way(
    shared_server: SharedServer, stream_name: str
) -> None:
    async with account_on((await shared_server(V2_15)).url) as account:
        await account.create(stream_name)
        stream = Edited(account, stream_name, await store_of(account))
        headers = block_to_send({"Nats-Schedule": NEVER, "Nats-Schedule-Target": f"{stream_name}.out"})
        first = await stream.store.publish(stream_name, stream.subject, headers, b"", expected=0)
        assert await stream.refusal(headers, expected=0) is ConflictError
        second = await stream.store.publish(stream_name, stream.subject, headers, b"", expected=first.sequence)
        wrong = block_to_send({"Nats-Schedule": "@often", "Nats-Schedule-Target": f"{stream_name}.out"})
        with pytest.raises(RefusedError) as raised:
            await stream.store.publish(stream_name, stream.subject, wrong, b"", expected=second.sequence)
        assert raised.value.code == 10189
        await stream.store.delete(stream_name, await stream.at(second.sequence))
        assert await stream.versions() == []


@pytest.mark.server
async def test_a_user_without_permission_is_refused(start_server: StartServer) -> None:
    config = """
    accounts { A { jetstream: enabled, users [
        { user: all, password: p }
        { user: reader, password: p, permissions { publish { deny: ["S.s", "$JS.API.STREAM.PURGE.>"] } } }
    ] } }"""
    server = await start_server(V2_11, config=config)
    async with account_on(server.url, user="all", password="p") as owner:  # noqa: S106
        stream = await edited(owner, "S")
        sequence = await stream.publish(expected=0)
        stored = await stream.at(sequence)
        async with account_on(server.url, user="reader", password="p") as reader:  # noqa: S106
            store = await store_of(reader)
            assert await ended(store.publish("S", "S.s", block(), b"", expected=sequence)) is ForbiddenError
            assert await ended(store.delete("S", stored)) is ForbiddenError
