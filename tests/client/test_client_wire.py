"""The behaviour of nats-py that the client relies on, held on real servers: a release that changes it fails here."""

import asyncio
import gc
import weakref
from typing import Any

import nats
import pytest

from nats_scheduler.client.client_wire import MAX_CONTROL_LINE_BYTES, wire_of
from nats_scheduler.client.jetstream_requests import JetStreamRequests
from nats_scheduler.control.errors import (
    DeadlineError,
    ForbiddenError,
    NoAnswerError,
    NotPossibleError,
    RefusedError,
    StreamNotFoundError,
    UnknownOutcomeError,
)
from nats_scheduler.control.store import publish_message
from nats_scheduler.control.transport import RESEND_INTERVAL_SECONDS
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.message.headers import HEADER_LINE
from nats_scheduler.message.publish_answers import Published
from tests.client.conftest import Connect
from tests.conftest import SharedServer, StartServer
from tests.harness.account import account_on
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

HEADERS = HEADER_LINE + b"A: 1\r\nB: x:\xc3\xbc  y\r\nA: 2\r\na: \r\n\r\n"
"""A name that occurs twice, one that differs in its case, a value with blanks inside, and one without text."""


@pytest.mark.parametrize("version", [V2_10, V2_15])
async def test_a_header_block_arrives_byte_for_byte(
    shared_server: SharedServer, stream_name: str, connect: Connect, version: str
) -> None:
    """nats.java writes no blank behind the colon."""
    server = await shared_server(version)
    async with account_on(server.url) as account:
        await account.create(stream_name)
        wire = wire_of(await connect(server.url))
        subject, body = f"{stream_name}.a", b"\x00\xff\r\n"
        for sent in (HEADERS, HEADERS.replace(b": ", b":"), HEADERS.replace(b": ", b":   ")):
            answer = read_object((await wire.request(subject, body, sent, deadline=30)).body) or {}
            stored = await JetStreamRequests(wire).message(stream_name, seq=answer["seq"])
            assert stored is not None
            assert (stored.subject, stored.block, stored.body) == (subject, HEADERS, body)


@pytest.mark.parametrize(
    "line", [b"A: 1 ", b"A:\t1", b"A: \xff", b"A: \xc2\xa01", b"A: 1\n2", b"A B: 1", b"a/b: 1", b"A"]
)
async def test_a_header_that_nats_py_would_change_is_refused(
    shared_server: SharedServer, connect: Connect, line: bytes
) -> None:
    connection = await connect((await shared_server(V2_11)).url)
    with pytest.raises(NotPossibleError, match="a: nats-py cannot send the header"):
        await wire_of(connection).request("a", b"", HEADER_LINE + line + b"\r\n\r\n", deadline=1)
    assert connection.stats["out_msgs"] == 0


async def test_all_values_of_a_connection_share_one_subscription(shared_server: SharedServer, connect: Connect) -> None:
    connection = await connect((await shared_server(V2_11)).url)
    before = len(connection._subs)
    for _ in range(3):
        with pytest.raises(StreamNotFoundError):
            await JetStreamRequests(wire_of(connection)).stream("NONE")
    assert wire_of(connection) is wire_of(connection)
    assert len(connection._subs) == before + 1
    for name in ("", "*", ">", "A.B", "A B", "A/B", "A\r\nPUB x 0\r\n"):
        with pytest.raises(StreamNotFoundError, match="is no name of a stream"):
            await JetStreamRequests(wire_of(connection)).stream(name)


async def test_a_connection_that_is_not_used_any_more_is_not_kept(
    shared_server: SharedServer, connect: Connect
) -> None:
    url = (await shared_server(V2_11)).url
    kept = await connect(url)
    with pytest.raises(StreamNotFoundError):
        await JetStreamRequests(wire_of(kept)).stream("NONE")
    gc.collect()
    assert wire_of(kept)._inbox != "", "the wire that has subscribed is used again"
    lost = await nats.connect(url)
    with pytest.raises(StreamNotFoundError):
        await JetStreamRequests(wire_of(lost)).stream("NONE")
    gone = weakref.ref(lost)
    await lost.close()
    del lost

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    await eventually(is_gone, describe="the connection is collected")


async def test_only_an_answer_that_is_accepted_counts(shared_server: SharedServer, connect: Connect) -> None:
    url = (await shared_server(V2_11)).url
    answering = await connect(url)

    async def answer(message: Any) -> None:
        for text in (b"not me", b"{}", b'{"stream": "S"}', b'{"stream": "late"}'):
            await message.respond(text)

    await answering.subscribe("asked", cb=answer)
    await answering.flush()

    def names_a_stream(_block: bytes, body: bytes) -> bool:
        return "stream" in (read_object(body) or {})

    reply = await wire_of(await connect(url)).request("asked", deadline=30, accepts=names_a_stream)
    assert reply == (b"", b'{"stream": "S"}')


@pytest.mark.parametrize("version", [V2_10, V2_11])
async def test_only_a_sequence_says_that_a_message_is_stored(
    shared_server: SharedServer, connect: Connect, version: str
) -> None:
    """A server of 2.10 answers with the sequence 0 while it is storing a message with the same identity, or refused it.

    In a cluster; here somebody says what it says.
    """
    url = (await shared_server(version)).url
    answering = await connect(url)
    said = list[tuple[bytes, dict[str, str] | None]]()

    async def answer(message: Any) -> None:
        for body, headers in said:
            await answering.publish(message.reply, body, headers=headers)

    await answering.subscribe("asked", cb=answer)
    await answering.flush()
    requests = JetStreamRequests(wire_of(await connect(url)))
    said[:] = [(b'{"stream":"S", "seq":0,"duplicate": true}', None)]
    with pytest.raises(UnknownOutcomeError, match="in process"):
        await publish_message(requests, "S", "asked", b"", b"")
    said[:] = [
        (b'{"stream":"S"}', None),
        (b'{"stream":"S","seq":0}', None),
        (b'{"stream":"S","seq":"7"}', None),
        (b'{"stream":"S","seq":-7,"duplicate":true}', None),
        (b'{"stream":"S","seq":6}', {"Nats-Stream": "ANY"}),
        (b'{"stream":"S","seq":8}', None),
    ]
    assert await publish_message(requests, "S", "asked", b"", b"") == Published(8)
    said[:] = [(b'{"streams":["S"]}', {"Nats-Stream": "ANY"}), (b'{"streams":["T"]}', None)]
    below = JetStreamRequests(wire_of(await connect(url)), "asked.API")
    await answering.subscribe("asked.API.STREAM.NAMES", cb=answer)
    await answering.flush()
    assert await below.stream_of("any") == "T"


async def test_only_what_may_be_repeated_is_sent_again_while_no_answer_comes(
    shared_server: SharedServer, connect: Connect
) -> None:
    url = (await shared_server(V2_11)).url
    answering, asked = await connect(url), list[str]()

    async def answer(message: Any) -> None:
        asked.append(message.subject)
        if asked.count(message.subject) == 2:
            await message.respond(b"{}")

    for subject in ("change", "question"):
        await answering.subscribe(subject, cb=answer)
    await answering.flush()
    wire = wire_of(await connect(url))
    change = asyncio.create_task(wire.request("change", deadline=3 * RESEND_INTERVAL_SECONDS))
    assert await wire.request("question", deadline=30, is_repeatable=True) == (b"", b"{}")
    with pytest.raises(DeadlineError):
        await change
    assert sorted(asked) == ["change", "question", "question"]


async def test_a_reply_subject_is_that_of_one_request_and_shows_no_other(
    shared_server: SharedServer, connect: Connect
) -> None:
    url = (await shared_server(V2_11)).url
    answering, replies = await connect(url), list[str]()

    async def answer(message: Any) -> None:
        replies.append(message.reply)
        await message.respond(b"{}")

    await answering.subscribe("asked", cb=answer)
    await answering.flush()
    wire = wire_of(await connect(url))
    for _ in range(3):
        await wire.request("asked", deadline=30)
    tokens = [reply.rpartition(".")[2] for reply in replies]
    assert (len(set(tokens)), {len(token) for token in tokens}) == (3, {24})
    assert len({token[:8] for token in tokens}) == 3


async def test_what_a_server_would_close_the_connection_for_is_not_sent(
    shared_server: SharedServer, connect: Connect
) -> None:
    connection = await connect((await shared_server(V2_11)).url)
    wire = wire_of(connection)
    large = b"x" * (connection.max_payload - len(HEADERS) + 1)
    with pytest.raises(RefusedError) as refused:
        await wire.request("a", large, HEADERS, deadline=1)
    assert refused.value.code == 10054
    with pytest.raises(NotPossibleError):
        await wire.request("a" * MAX_CONTROL_LINE_BYTES, deadline=1)
    for subject in ("a b", "a\r\nPUB c 0\r\n", "", "\udcff"):
        for block in (b"", HEADERS):
            with pytest.raises(NotPossibleError):
                await wire.request(subject, b"", block, deadline=1)
    assert connection.is_connected


async def test_no_answer_and_no_connection_are_errors(start_server: StartServer, connect: Connect) -> None:
    server = await start_server(V2_11)
    connection = await connect(server.url, allow_reconnect=False)
    await connection.subscribe("silent")
    await connection.flush()
    wire = wire_of(connection)
    with pytest.raises(NoAnswerError, match=r"silent: no answer within 0.05 s"):
        await wire.request("silent", deadline=0.05)
    await server.stop()
    await eventually(lambda: connection.is_closed, describe="the connection is lost")
    with pytest.raises(NoAnswerError, match="no connection"):
        await wire.request("silent", deadline=30)


async def test_repeating_at_once_lets_the_connection_come_back(start_server: StartServer, connect: Connect) -> None:
    """Without a turn of the loop in each request nothing else would run, nats-py's own attempts to connect included."""
    server = await start_server(V2_11)
    connection = await connect(server.url, reconnect_time_wait=0.01)
    wire = wire_of(connection)
    await server.stop()
    await eventually(lambda: not connection.is_connected, describe="it is disconnected")
    loop, turns = asyncio.get_running_loop(), 0

    def turn() -> None:
        nonlocal turns
        turns += 1

    for _ in range(100):
        loop.call_soon(turn)
        with pytest.raises(NoAnswerError, match="no connection"):
            await wire.request("a", deadline=1)
    assert turns == 100


DENYING = """
authorization { users: [
  { user: publish, password: p, permissions: { publish: { allow: ["allowed"] } } }
  { user: subscribe, password: p, permissions: { subscribe: { allow: ["nothing"] } } }
] }
"""


async def test_a_missing_permission_is_noticed_before_the_wait_ends(
    start_server: StartServer, connect: Connect
) -> None:
    """The wait is longer than the test may take."""
    server = await start_server(V2_11, config=DENYING)
    for user, text in (("publish", "publish to denied"), ("subscribe", "subscribe to its inbox")):
        wire = wire_of(await connect(server.url, user=user, password="p"))  # noqa: S106
        for _ in range(2):
            with pytest.raises(ForbiddenError, match=text):
                await wire.request("denied", deadline=3_600, accepts=lambda *_reply: False)
