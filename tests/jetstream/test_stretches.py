"""A stream is read to its end also where the server counts wrongly."""

import pytest

from nats_scheduler.jetstream.stretches import StretchReader
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import ALL_VERSIONS


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_messages_that_no_consumer_delivers_are_read(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    """Servers do not count messages on subjects with a DEL from a sequence on, and deliver none if no other follows."""
    async with account_on((await shared_server(version)).url) as account:
        await account.create(stream_name, allow_msg_schedules=False)
        for rest in ("a", "\x7f", "b", "\x7f", "\x7f.c"):
            await account.publish(f"{stream_name}.{rest}")
        info = await account.api.stream(stream_name)
        assert info is not None
        reader = StretchReader(account.connection, account.api, info["config"])
        for after in range(6):
            found = [one.sequence async for chunk in reader.forwards(after, 5, lambda _subject: True) for one in chunk]
            assert found == [*range(after + 1, 6)]
