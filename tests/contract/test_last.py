"""The last message on a subject is found, also if a server up to 2.11 answers that there is none."""

from collections.abc import AsyncIterator

import pytest

from nats_scheduler.jetstream.lookups import last_on
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_10, V2_11, V2_15


@pytest.fixture(params=[V2_10, V2_11, V2_15])
async def account(request: pytest.FixtureRequest, shared_server: SharedServer) -> AsyncIterator[Account]:
    async with account_on((await shared_server(request.param)).url) as account:
        yield account


async def delete(account: Account, stream: str, *sequences: int) -> None:
    for sequence in sequences:
        assert await account.api.delete_message(stream, sequence)


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("deleted", [(5,), (5, 4), (3, 5), (1, 5), (3, 4, 5), (5, 1)])
async def test_what_lies_under_a_deleted_message_is_found(
    account: Account, stream_name: str, storage: str, deleted: tuple[int, ...]
) -> None:
    await account.create(stream_name, storage=storage, allow_msg_schedules=False)
    subject = f"{stream_name}.a"
    for number in range(1, 6):
        await account.publish(subject, body=b"%d" % number)
        await account.publish(f"{stream_name}.others")
    await delete(account, stream_name, *(2 * number - 1 for number in deleted))
    left = max({1, 2, 3, 4, 5} - set(deleted))
    found = await last_on(account.api, stream_name, subject)
    assert found is not None
    assert (found.sequence, found.body) == (2 * left - 1, b"%d" % left)


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_where_nothing_is_left_nothing_is_found(account: Account, stream_name: str, storage: str) -> None:
    await account.create(stream_name, storage=storage, allow_msg_schedules=False)
    await account.publish(f"{stream_name}.a")
    await account.publish(f"{stream_name}.others")
    await delete(account, stream_name, 1)
    assert await last_on(account.api, stream_name, f"{stream_name}.a") is None
    assert await last_on(account.api, stream_name, f"{stream_name}.never") is None


async def test_a_message_that_comes_after_a_deletion_is_the_last_one(account: Account, stream_name: str) -> None:
    await account.create(stream_name, allow_msg_schedules=False)
    subject = f"{stream_name}.a"
    for body in (b"1", b"2"):
        await account.publish(subject, body=body)
    await delete(account, stream_name, 2)
    await account.publish(subject, body=b"3")
    found = await last_on(account.api, stream_name, subject)
    assert found is not None
    assert found.body == b"3"


async def test_the_guard_knows_it_too_from_then_on(account: Account, stream_name: str) -> None:
    await account.create(stream_name, allow_msg_schedules=False)
    subject = f"{stream_name}.a"
    for body in (b"1", b"2"):
        await account.publish(subject, body=body)
    await delete(account, stream_name, 2)
    assert await last_on(account.api, stream_name, subject) is not None
    guard = {"Nats-Expected-Last-Subject-Sequence": "1", "Nats-Expected-Last-Subject-Sequence-Subject": subject}
    if not account.connection.server.version.startswith("2.10."):  # which has none
        await account.publish(f"{stream_name}.out", guard)
