"""What a running sidecar answers to a command is what reading the stream gives."""

from typing import Any

import pytest

from nats_scheduler.cli.session import Session, open_session
from nats_scheduler.engine.outlook import Kind
from nats_scheduler.engine.view import Query
from nats_scheduler.runtime.checkpoints import read_checkpoint
from nats_scheduler.runtime.snapshot import Snapshot, take_snapshot
from nats_scheduler.service import client
from nats_scheduler.service.client import Answered, ask_for_schedules
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import CLOCK, WAIT_SECONDS, Account, account_on, in_seconds, sidecar_on
from tests.harness.waiting import eventually
from tests.service.asking import Refusal, ask

MESSAGES: dict[str, dict[str, str]] = {
    "at": {"Nats-Schedule": f"@at {in_seconds(7200)}", "Nats-Schedule-Target": "O.out", "Nats-Schedule-TTL": "5m"},
    "every": {"Nats-Schedule": "@every 90m", "Nats-Schedule-Target": "O.out", "Nats-Schedule-Source": "O.src"},
    "cron": {
        "Nats-Schedule": "0 30 9 * * mon-fri",
        "Nats-Schedule-Time-Zone": "Europe/Berlin",
        "Nats-Schedule-Target": "O.one",
        "Nats-Schedule-Rollup": "sub",
    },
    "portable": {"X-Nats-Schedule": "@daily", "X-Nats-Schedule-Target": "O.out"},
    "expiring": {"Nats-Schedule": f"@at {in_seconds(9000)}", "Nats-Schedule-Target": "O.out", "Nats-TTL": "2h"},
    "invalid": {"Nats-Schedule": "@every soon", "Nats-Schedule-Target": "O.out"},
    "misnamed": {"Nats-Schedul": "@every 1s"},
}


async def read(session: Session, query: Query) -> Snapshot:
    """Read the stream as a command does."""
    one = await session.served_stream("O")
    checkpoints = await read_checkpoint(session.registry, session.api, "O", one.mode, CLOCK.now())
    given: dict[str, Any] = {"query": query, "removes_expired": False}
    return await take_snapshot(
        session.connection, session.api, one.state, one.mode, checkpoints or (), CLOCK.now, **given
    )


async def store(account: Account) -> None:
    """Store the messages, and wait until the sidecar that answers holds them."""
    for name, headers in MESSAGES.items():
        await account.publish(f"O.{name}", headers)

    async def held() -> bool:
        answer = await ask(account.connection, "misnamed.list", {"stream": "O"})
        return not isinstance(answer, Refusal) and len(answer["misnamed"]) == 1

    await eventually(held, within_seconds=WAIT_SECONDS, describe="the last message is read")


async def test_a_sidecar_answers_what_reading_the_stream_gives(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server()
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,)))
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("O", allow_msg_ttl=True, allow_rollup_hdrs=True)
        await running.ready("O")
        await store(account)
        async with open_session(settings) as session:
            for query in (Query(), Query(subject="O.*y"), Query(target="O.out"), Query(kinds=frozenset({Kind.CRON}))):
                answered, snapshot = await ask_for_schedules(session.connection, "O", query), await read(session, query)
                assert answered == Answered(snapshot.schedules, snapshot.rejected, snapshot.misnamed)
            assert await ask_for_schedules(session.connection, "NONE", Query()) is None
            monkeypatch.setattr(client, "MAX_PAGE_LENGTH", 2)
            paged = await ask_for_schedules(session.connection, "O", Query())
            assert paged is not None
            assert [one.subject for one in paged.schedules] == [
                one.subject for one in (await read(session, Query())).schedules
            ]
            monkeypatch.setattr(client, "MAX_PAGES", 2)
            assert await ask_for_schedules(session.connection, "O", Query()) is None, "too many pages"


async def test_nothing_is_known_where_no_sidecar_answers(start_server: StartServer) -> None:
    server = await start_server()
    async with account_on(server.url) as account:
        assert await ask_for_schedules(account.connection, "O", Query()) is None


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b'{"schedules": 1}', b'{"schedules": [{}], "cursor": null}', b"[]", b"x"]
)
async def test_an_answer_of_another_kind_counts_as_none(start_server: StartServer, answer: bytes) -> None:
    server = await start_server()
    async with account_on(server.url) as account, account_on(server.url) as other:

        def reply(_subject: bytes, to: bytes, _block: bytes, _body: bytes) -> None:
            other.connection.publish(to.decode(), answer)

        other.connection.subscribe("nats_scheduler.v1.>", reply)
        await other.api.info()  # the server has taken the subscription
        assert await ask_for_schedules(account.connection, "O", Query()) is None
