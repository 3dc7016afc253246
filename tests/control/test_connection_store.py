"""The store on a connection keeps the contract of all stores, and reports what servers answer and what they forbid.

It tests `control/requests.py` too.
"""

import json
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from typing import Any

import pytest

from nats_scheduler.control.changes import Kind
from nats_scheduler.control.edits import add, remove
from nats_scheduler.control.errors import (
    ConflictError,
    NoAnswerError,
    NoRespondersError,
    NotFoundError,
    NotPossibleError,
    RefusedError,
    SchedulerError,
    UnknownOutcomeError,
)
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.message.capabilities import capabilities
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.publish_answers import Published
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.schedule_store import connection_store
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import SharedServer
from tests.control.contract import NEVER, StoreContract
from tests.control.server_side import ServerSide, account_with
from tests.control.world import fire_block, instant
from tests.harness.account import CLOCK, Account, account_on
from tests.harness.servers import ALL_VERSIONS, V2_15


async def store_of(account: Account, *portable: str) -> ScheduleStore:
    """Return the store of an account; `portable` are the streams that the settings name."""
    greeting = account.connection.server
    server = capabilities(await account.api.info(), greeting.version, greeting.max_payload)
    access = Access.through(account.connection, SidecarSettings(portable_streams=portable))
    return connection_store(replace(access, server=server), ServerClock(CLOCK))


@pytest.fixture(params=ALL_VERSIONS)
async def side(
    request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str
) -> AsyncIterator[ServerSide]:
    async with account_with((await shared_server(request.param)).url, stream_name) as account:
        yield ServerSide(account, await store_of(account, stream_name), stream_name)


class TestConnectionStore(StoreContract):
    """On a plain stream with portable headers, which every version has."""


async def side_with(side: ServerSide, more: str, **config: Any) -> ServerSide:
    """Create another stream beside that of a side."""
    name = f"{side.stream}-{more}"
    await side.account.create(name, allow_msg_schedules=False, **config)
    return ServerSide(side.account, await store_of(side.account, name), name)


async def put(side: ServerSide, pattern: str = NEVER, *, expected: int = 0) -> StoredMessage:
    """Publish a schedule through the store; the server must take it."""
    stored = await side.store.publish(side.stream, side.subject(), side.block(pattern), b"body", expected=expected)
    message = await side.account.api.message(side.stream, seq=stored.sequence)
    assert message is not None
    return message


async def ended(changing: Awaitable[Published | None]) -> type[Exception] | None:
    """Return the kind of error with which a change ended, None for none."""
    try:
        await changing
    except SchedulerError as error:
        return type(error)
    return None


async def sequences(side: ServerSide) -> list[int]:
    return [one.sequence for one in await side.messages(side.subject())]


async def test_acknowledged_but_not_stored_is_not_reported_as_stored(side: ServerSide) -> None:
    other = await side_with(side, "interest", retention="interest")
    with pytest.raises(NotPossibleError, match="needs a consumer of its subject"):
        await add(other.store, other.stream, other.subject(), other.block(), b"")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    wanted = {"stream_name": other.stream, "config": config}
    await side.account.api.call(f"CONSUMER.DURABLE.CREATE.{other.stream}.c", wanted)
    assert (await add(other.store, other.stream, other.subject(), other.block(), b"")).kind is Kind.ADDED


PAST_NS = instant("2026-01-01T00:00:00Z")
PAST = "@at 2026-01-01T00:00:00Z"


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_a_schedule_whose_last_fire_is_stored_counts_as_absent(side: ServerSide, retention: str) -> None:
    other = await side_with(side, retention, retention=retention)
    for number, subject in enumerate((other.subject("a"), other.subject("b"))):
        sequence = await other.publish(subject, other.block(PAST))
        for _ in range(3 * number):  # the fire is not the last message on the target
            await other.publish(other.subject("out"), b"")
        identity = fire_identity(subject, sequence, PAST_NS)
        await other.publish(other.subject("out"), fire_block(identity, schedule=subject, prefix="X-"))
        await other.publish(other.subject("out"), b"")
        with pytest.raises(NotFoundError, match="has fired"):
            await remove(other.store, other.stream, subject)
        change = await add(other.store, other.stream, subject, other.block(), b"next")
        assert (change.kind, change.before) == (Kind.ADDED, sequence)
        last = await other.store.last(other.stream, subject)
        assert (last and last.body) == b"next"


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
            found = await ended(store.publish("ELSEWHERE", f"{stream_name}.s", b"", b"", expected=3))
            assert found is outcome, codes


def refusal(code: int) -> bytes:
    error = {"code": 503 if code == 0 else 400, "err_code": code, "description": "not now"}
    return json.dumps({"error": error, "stream": "ELSEWHERE", "seq": 0}).encode()


async def test_what_cannot_be_stored_there_is_refused(side: ServerSide) -> None:
    """A condition that the server would not find, a subject of another stream, and one of no stream."""
    store, stream, block = side.store, side.stream, side.block()
    hiding = side.block(Note="Nats-Expected-Last-Subject-Sequence: 7 Nats-Expected-Stream: x")
    hidden = await ended(store.publish(stream, side.subject(), hiding, b"", expected=5))
    assert hidden in (NotPossibleError, ConflictError)
    assert await side.messages(side.subject()) == []
    elsewhere = f"{side.unserved}.s"
    assert await ended(store.publish(stream, elsewhere, block, b"", expected=0)) is not None
    assert await side.account.api.message(side.unserved, last_by_subj=elsewhere) is None
    assert await ended(store.publish(stream, "nobody.listens", block, b"", expected=0)) is NoRespondersError


async def test_another_message_under_the_same_sequence_is_not_deleted(side: ServerSide) -> None:
    """As after a restore, or if the stream was created anew: the sequences begin again."""
    first, store = await put(side), side.store
    earlier, elsewhere = first._replace(stored_at=first.stored_at - 1), first._replace(subject=side.subject("other"))
    assert await ended(store.delete(side.stream, earlier)) is ConflictError
    assert await ended(store.delete(side.stream, elsewhere)) is NotFoundError
    unseen = first._replace(sequence=1_000)
    assert await ended(store.delete(side.stream, unseen)) is UnknownOutcomeError, "the leader may be behind"
    assert await sequences(side) == [first.sequence]
