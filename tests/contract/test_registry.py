"""A lost compare-and-set is expected, whatever code the server uses for it; any other refusal raises its own error."""

import pytest

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import ApiError
from nats_scheduler.jetstream.registry import Registry
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import V2_11


def refuse(connection: Connection, subject: str, code: int) -> None:
    """Answer writes on a subject with a refusal, as the leader of a stream does."""
    answer = b'{"error":{"code":400,"err_code":%d,"description":"refused"}}' % code
    connection.subscribe(
        subject, lambda _subject, reply, _block, _body: _sent(connection.publish(reply.decode(), answer))
    )


def _sent(is_sent: bool) -> None:
    assert is_sent


@pytest.mark.parametrize("code", [10071, 10164])
async def test_a_write_that_came_second_is_no_error(shared_server: SharedServer, stream_name: str, code: int) -> None:
    async with account_on((await shared_server(V2_11)).url) as account:
        registry = Registry(account.connection, account.api, stream_name)
        refuse(account.connection, f"$KV.{stream_name}.lease", code)
        assert await registry.swap("lease", {}, 7) is None


async def test_a_write_that_is_refused_is_one(shared_server: SharedServer, stream_name: str) -> None:
    async with account_on((await shared_server(V2_11)).url) as account:
        registry = Registry(account.connection, account.api, stream_name)
        refuse(account.connection, f"$KV.{stream_name}.lease", 10077)
        with pytest.raises(ApiError, match="10077"):
            await registry.swap("lease", {}, 7)


async def test_of_two_writes_in_place_of_one_revision_one_is_stored(
    shared_server: SharedServer, stream_name: str
) -> None:
    async with account_on((await shared_server(V2_11)).url) as account:
        registry = Registry(account.connection, account.api, stream_name)
        assert await registry.open()
        first = await registry.swap("lease", {"by": "a"}, 0)
        assert first is not None
        assert await registry.swap("lease", {"by": "b"}, 0) is None
        assert await registry.revised("lease") == ({"by": "a"}, first)
