"""A question that has no answer has an error that says why, whatever is there in place of a sidecar."""

from typing import Any

import pytest

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.service.client import (
    NotAnsweredError,
    NotConnectedError,
    NothingSubscribesError,
    QuestionError,
    RequestRefusedError,
    UnreadableError,
    ask,
)
from tests.conftest import StartServer
from tests.harness.account import account_on

pytestmark = pytest.mark.server

ERROR = ((b"Nats-Service-Error", b"no such stream"), (b"Nats-Service-Error-Code", b"404"))


async def fault(connection: Connection, endpoint: str, seconds: float = 5.0, **request: Any) -> tuple[type, str]:
    with pytest.raises(QuestionError) as raised:
        await ask(connection, endpoint, request, seconds, "this test")
    return type(raised.value), str(raised.value)


async def test_each_reason_has_a_class_and_a_sentence(start_server: StartServer) -> None:
    server = await start_server(
        config="authorization { users: [{ user: u, password: p, permissions: { publish: "
        '{ deny: "nats_scheduler.v1.denied" } } }] }\n'
    )
    async with account_on(server.url.replace("://", "://u:p@")) as account:
        connection = account.connection

        def answer(subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
            kind = subject.rpartition(b".")[2]
            if kind == b"error":
                connection.publish(reply.decode(), b"", with_headers(EMPTY_BLOCK, ERROR))
            elif kind != b"silent":
                connection.publish(reply.decode(), b"[]" if kind == b"list" else b'{"ready": true}')

        for name in ("silent", "error", "list", "health"):
            connection.subscribe(f"nats_scheduler.v1.{name}", answer)
        assert await ask(connection, "health", {}, 5.0) == {"ready": True}
        assert await fault(connection, "absent") == (NothingSubscribesError, "nothing subscribes to its requests")
        assert await fault(connection, "silent", 0.2) == (NotAnsweredError, "no sidecar answered within 0 s")
        assert await fault(connection, "error") == (RequestRefusedError, "no such stream")
        assert await fault(connection, "list") == (
            UnreadableError,
            "something answers in place of a sidecar, with what is no JSON object",
        )
        denied = (RequestRefusedError, "this test may not publish to nats_scheduler.v1.denied")
        assert await fault(connection, "denied") == denied
        long = "x" * connection.server.max_payload
        assert await fault(connection, "health", filter=long) == (
            RequestRefusedError,
            "the request is too long for the server",
        )
        await server.stop()
        await connection.lost
        assert (await fault(connection, "health"))[0] is NotConnectedError


async def test_a_request_that_is_repeated_passes_over_a_sidecar_that_is_stopped(start_server: StartServer) -> None:
    """It gets the first request, and another sidecar the second."""
    server = await start_server()
    async with account_on(server.url) as account:
        replies: list[str] = []

        def answer_later(_subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
            replies.append(reply.decode())
            if len(replies) > 1:
                account.connection.publish(replies[-1], b'{"ready": true}')

        account.connection.subscribe("nats_scheduler.v1.health", answer_later)
        assert await ask(account.connection, "health", {}, 60.0) == {"ready": True}
        assert len(set(replies)) == 2
