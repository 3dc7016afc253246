"""The requests of others as they are received: those of users, or of another sidecar."""

import pytest

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.watch import SIDECAR_INBOX, ConfigRequested, Request, RequestWatch
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually


@pytest.mark.parametrize(("inbox", "by_sidecar"), [("", False), (SIDECAR_INBOX, True)])
async def test_what_another_sidecar_asks_for_is_told_from_what_a_user_does(
    shared_server: SharedServer, stream_name: str, inbox: str, by_sidecar: bool
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        seen: list[Request] = []
        watch = RequestWatch(account.connection, account.api.prefix, seen.append)
        other = await Dialer(ConnectionSettings(servers=(server.url,)), inbox).dial()
        try:
            await account.api.info()  # the server has our subscriptions
            await JetStreamApi(other).create_stream({"name": stream_name, "subjects": [stream_name]})
            await eventually(lambda: seen, within_seconds=30)
        finally:
            watch.end()
            await other.close()
        (request,) = seen
        assert isinstance(request, ConfigRequested)
        assert (request.stream, request.by_sidecar) == (stream_name, by_sidecar)
