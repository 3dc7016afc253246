"""What the user of a connection may do is known where its server lists it."""

from nats_scheduler.jetstream.own_permissions import USER_INFO, OwnPermissions
from nats_scheduler.message.foreign_json import inner
from tests.conftest import SharedServer, StartServer
from tests.harness.account import account_on
from tests.harness.servers import V2_10, V2_15

USERS = """accounts {{ A {{ jetstream: enabled, users: [
  {{ user: some, password: some, permissions: {{ publish: {{ allow: [{allowed}] }} }} }}
] }} }}
"""


async def test_the_permissions_are_those_that_the_server_lists(start_server: StartServer) -> None:
    for version in (V2_10, V2_15):
        server = await start_server(version, config=USERS.format(allowed=f'"orders.>", "$JS.API.>", "{USER_INFO}"'))
        async with account_on(server.url.replace("nats://", "nats://some:some@")) as account:
            listed = await account.connection.one(OwnPermissions).listed()
            assert listed is not None
            publish = inner(listed["publish"])
            assert publish.keys() == {"allow"}
            assert sorted(publish["allow"]) == sorted(["orders.>", "$JS.API.>", USER_INFO]), "a server has no order"


async def test_a_user_who_may_not_ask_is_asked_for_once(start_server: StartServer) -> None:
    server = await start_server(V2_15, config=USERS.format(allowed='"$JS.API.>"'))
    async with account_on(server.url.replace("nats://", "nats://some:some@")) as account:
        for _ in range(3):
            assert await account.connection.one(OwnPermissions).listed() is None
        await account.api.info()
    assert server.log.read_text("utf-8").count(USER_INFO) == 1


async def test_a_user_without_restrictions_has_none(shared_server: SharedServer) -> None:
    async with account_on((await shared_server(V2_15)).url) as account:
        assert await account.connection.one(OwnPermissions).listed() == {}
