"""What several servers answer counts for the server that says it."""

import json
from contextlib import suppress

import pytest

from nats_scheduler.control.errors import DeadlineError, NoRespondersError
from nats_scheduler.jetstream import system_requests
from nats_scheduler.jetstream.own_permissions import USER_INFO
from nats_scheduler.jetstream.system_requests import cluster_answers, own_answer, server_answers
from nats_scheduler.message.findings import Code
from nats_scheduler.runtime.embedded import EmbeddedServer, free_port
from tests.conftest import SharedServer, StartServer
from tests.doctor.examined import facts_on, findings_on, of
from tests.harness.account import Account, account_on
from tests.harness.flagged import FLAGGED, FlaggedStream
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

ATTEMPTS = 12
"""Times that the doctor is asked beside a leaf node: the other server's answer was the first one of about 12."""


async def answering(account: Account, subject: str, *servers: str) -> None:
    """Answer requests on a subject as these servers would, one after the other."""
    connection = account.connection

    def answer(_subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
        for server in servers:
            body = {"server": {"id": server}, "data": {"asked": server}}
            connection.publish(reply.decode(), json.dumps(body).encode())

    connection.subscribe(subject, answer)
    await account.api.info()  # the server has the subscription


async def test_the_first_answer_does_not_count_if_another_server_gives_it(
    shared_server: SharedServer, stream_name: str
) -> None:
    async with account_on((await shared_server(V2_11)).url) as account:
        ours = account.connection.server.id
        assert ours
        await answering(account, f"{stream_name}.asked", "another", ours, "a third one")
        assert await own_answer(account.connection, f"{stream_name}.asked") == {"asked": ours}
        whole = await cluster_answers(account.connection, f"{stream_name}.asked", b"")
        assert whole[:2] == [{"asked": "another"}, {"asked": ours}]


async def test_the_answers_of_other_servers_alone_are_no_answer(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_requests, "ANSWER_DEADLINE_SECONDS", 0.1)
    async with account_on((await shared_server(V2_11)).url) as account:
        await answering(account, f"{stream_name}.asked", "another")
        with pytest.raises(DeadlineError, match="1 of the servers answered within"):
            await own_answer(account.connection, f"{stream_name}.asked")
        with pytest.raises(NoRespondersError, match="nothing answers there"):
            await own_answer(account.connection, f"{stream_name}.nobody")


async def hub_and_leaf(start_server: StartServer, version: str) -> tuple[EmbeddedServer, EmbeddedServer]:
    """Start a hub, and a leaf node with a JetStream of its own."""
    port = free_port()
    hub = await start_server(version, config=f'jetstream {{ domain: hub }}\nleafnodes {{ listen: "127.0.0.1:{port}" }}')
    remote = f'leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}\n'
    return hub, await start_server(version, config=f"jetstream {{ domain: leaf }}\n{remote}")


@pytest.mark.parametrize("version", [V2_10, V2_15])
async def test_no_permission_is_missing_beside_a_leaf_node(start_server: StartServer, version: str) -> None:
    hub, leaf = await hub_and_leaf(start_server, version)
    async with account_on(hub.url) as at_hub, account_on(leaf.url) as at_leaf:

        async def both_answer() -> bool:
            with suppress(DeadlineError):
                return bool(await server_answers(at_hub.connection, USER_INFO, b"", lambda found: len(found) > 1))
            return False

        await eventually(both_answer, describe="the servers are connected")
        for account in (at_hub, at_leaf):
            await account.create("ORDERS", metadata=FLAGGED)
            await FlaggedStream(account, "ORDERS").schedule_soon("s", "@every 1h")
    for server in (hub, leaf):
        assert of(await findings_on(server), Code.PERMISSION_MISSING) == []
        for _ in range(ATTEMPTS):
            assert [need.subject for need in (await facts_on(server)).missing] == []
