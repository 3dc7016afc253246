"""The creation of a replicated stream is passed on when the server has had time to answer it, all else at once."""

from collections.abc import AsyncIterator

import pytest

from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.creations import LEADER_ELECTED, CreationHold
from nats_scheduler.jetstream.watch import ConfigRequested, Request, StreamDeletionRequested
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

REPLICATED = ConfigRequested("R", {"name": "R", "num_replicas": 3}, creates=True)
SINGLE = ConfigRequested("S", {"name": "S"}, creates=True)


@pytest.fixture
async def account(shared_server: SharedServer) -> AsyncIterator[Account]:
    async with account_on((await shared_server(V2_11)).url) as connected:
        yield connected


@pytest.mark.parametrize("announced", [True, False])
async def test_a_replicated_stream_is_told_of_later_whether_or_not_its_leader_is_announced(
    account: Account, announced: bool
) -> None:
    seen: list[Request] = []
    hold = CreationHold(account.connection, seen.append)
    for request in (REPLICATED, SINGLE):
        hold.take(request)
    assert seen == [SINGLE]
    if announced:
        account.connection.write(frame(f"{LEADER_ELECTED}.R", "", b"", b"{}"))
    await eventually(lambda: seen == [SINGLE, REPLICATED], within_seconds=30, describe=lambda: str(seen))
    hold.end()


async def test_what_follows_a_held_request_releases_it_first(account: Account) -> None:
    seen: list[Request] = []
    hold = CreationHold(account.connection, seen.append)
    following = (ConfigRequested("R", {"num_replicas": 3}, creates=False), StreamDeletionRequested("R"))
    for request in (REPLICATED, *following, REPLICATED):
        hold.take(request)
    assert seen == [REPLICATED, *following]
    hold.end()
