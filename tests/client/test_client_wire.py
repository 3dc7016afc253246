"""The behaviour of nats-py that the client relies on, held on real servers: a release that changes it fails here."""

import asyncio
from typing import Any

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


async def test_a_header_that_nats_py_would_change_is_refused(shared_server: SharedServer, connect: Connect) -> None:
    connection = await connect((await shared_server(V2_11)).url)
    for line in (b"A: 1 ", b"A:\t1", b"A: \xff", b"A: \xc2\xa01", b"A: 1\n2", b"A B: 1", b"A"):
        with pytest.raises(NotPossibleError, match="a: nats-py cannot send the header"):
            await wire_of(connection).request("a", b"", HEADER_LINE + line + b"\r\n\r\n", deadline=1)
    assert connection.stats["out_msgs"] == 0


async def test_what_is_no_name_of_a_stream_is_not_asked_for(shared_server: SharedServer, connect: Connect) -> None:
    requests = JetStreamRequests(wire_of(await connect((await shared_server(V2_11)).url)))
    for name in ("", "*", ">", "A.B", "A B", "A/B", "A\r\nPUB x 0\r\n"):
        with pytest.raises(StreamNotFoundError, match="is no name of a stream"):
            await requests.stream(name)


async def test_only_an_answer_of_the_server_counts(shared_server: SharedServer, connect: Connect) -> None:
    """A cluster of 2.10 answers with the sequence 0 while it is storing a message with the same identity."""
    url = (await shared_server(V2_11)).url
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
        (b"not me", None),
        (b'{"stream":"S","seq":0}', None),
        (b'{"stream":"S","seq":6}', {"Nats-Stream": "ANY"}),
        (b'{"stream":"S","seq":8}', None),
    ]
    assert await publish_message(requests, "S", "asked", b"", b"") == Published(8)
    said[:] = [(b'{"streams":["S"]}', {"Nats-Stream": "ANY"}), (b'{"streams":["T"]}', None)]
    below = JetStreamRequests(wire_of(await connect(url)), "asked.API")
    await answering.subscribe("asked.API.STREAM.NAMES", cb=answer)
    await answering.flush()
    assert await below.stream_of("any") == "T"


async def test_only_what_may_be_repeated_is_sent_again(shared_server: SharedServer, connect: Connect) -> None:
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


async def test_what_would_end_the_connection_is_not_sent(shared_server: SharedServer, connect: Connect) -> None:
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
