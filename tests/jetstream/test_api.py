"""The JetStream API: how the client reads a list and an answer, and how it sees what others ask."""

import json
from typing import Any

import pytest

from nats_scheduler.control.errors import NoAnswerError, RefusedError
from nats_scheduler.control.transport import Reply
from nats_scheduler.jetstream.api import JetStreamApi, stored_sequence
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.request_watch import SIDECAR_INBOX, ConfigRequested, Request, RequestWatch
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually


class DeadNodes(Connection):
    """Lists four streams in pages of two; the leader of the second one is dead, so only its name is listed."""

    NAMES = ("A", "B", "C", "D")
    PAGE = 2

    def __init__(self) -> None:
        self.offsets: list[int] = []

    async def request(self, subject: str, body: bytes = b"", *_more: Any, **_options: Any) -> Reply:
        """Return a page."""
        offset = json.loads(body)["offset"]
        self.offsets.append(offset)
        names = self.NAMES[offset : offset + self.PAGE]
        infos = [{"config": {"name": name}, "state": {}} for name in names if name != "B"]
        page = {"total": len(self.NAMES), "streams": infos, "missing": [name for name in names if name == "B"]}
        return Reply(b"", json.dumps(page).encode())


async def test_a_stream_without_a_leader_is_passed_over() -> None:
    connection = DeadNodes()
    listed = [info["config"]["name"] async for info in JetStreamApi(connection).streams()]
    assert (listed, connection.offsets) == (["A", "C", "D"], [0, 2])


async def test_what_another_sidecar_asks_for_is_told_from_what_a_user_does(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        seen: list[Request] = []
        watch = RequestWatch(account.connection, account.api.prefix, seen.append)
        await account.api.info()  # the server has our subscriptions
        for inbox in ("", SIDECAR_INBOX):
            other = await Dialer(ConnectionSettings(servers=(server.url,)), inbox).dial()
            await JetStreamApi(other).create_stream({"name": stream_name, "subjects": [stream_name]})
            await other.close()
        await eventually(lambda: len(seen) == 2)
        watch.end()
    requests = [request for request in seen if isinstance(request, ConfigRequested)]
    assert [(request.stream, request.by_sidecar) for request in requests] == [(stream_name, False), (stream_name, True)]


def test_only_stream_and_sequence_say_that_it_is_stored() -> None:
    assert stored_sequence(Reply(b"", b'{"stream":"S", "seq":7}'), "S", "put") == 7
    assert stored_sequence(Reply(b"", b'{"stream":"S", "seq":7,"duplicate": true}'), "S", "put") == 7
    for unreadable in (
        b"thanks",
        b'{"stream":"S","seq":0,"duplicate":true}',
        b'{"stream":"T","seq":7}',
        b'{"seq":7}',
    ):
        with pytest.raises(NoAnswerError, match="put: stream S names no sequence"):
            stored_sequence(Reply(b"", unreadable), "S", "put")
    with pytest.raises(RefusedError, match="no room"):
        stored_sequence(Reply(b"", b'{"error":{"code":503,"err_code":10077,"description":"no room"}}'), "S", "put")


async def test_a_message_that_was_not_asked_for_is_no_answer() -> None:
    class Answering(Connection):
        def __init__(self) -> None:
            """Have no server."""

        async def request(self, *_arguments: Any, **_more: Any) -> Reply:
            return Reply(b"", b'{"message": {"subject": "s", "seq": 7, "time": "2026-01-01T00:00:00Z"}}')

    api = JetStreamApi(Answering())
    for asked in ({"seq": 7}, {"seq": 5, "next_by_subj": ">"}, {"last_by_subj": "s"}):
        found = await api.message("S", **asked)
        assert found is not None
        assert found.sequence == 7
    for asked in ({"seq": 8}, {"seq": 6}, {"seq": 8, "next_by_subj": ">"}):
        with pytest.raises(NoAnswerError, match="7 was not asked for"):
            await api.message("S", **asked)
