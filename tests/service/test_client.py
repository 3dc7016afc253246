"""A client of the service: a sidecar answers what reading the stream gives, and anything else counts as no answer.

It tests `service/read_back.py` too.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from nats_scheduler.cli.session import open_session
from nats_scheduler.cli.without_sidecar import StoredSource
from nats_scheduler.control.errors import (
    SchedulerError,
)
from nats_scheduler.control.past import FireQuery
from nats_scheduler.engine.views.view import Query
from nats_scheduler.jetstream.denials import forbidden
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.service import client
from nats_scheduler.service.client import ServiceClient
from nats_scheduler.service.stored_advisories import AdvisoryQuery
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import SharedServer, StartServer
from tests.harness.account import Account, account_on, in_seconds, sidecar_on
from tests.harness.servers import V2_11
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


async def test_a_sidecar_answers_what_reading_the_stream_gives(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server()
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,)))
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("O", allow_msg_ttl=True, allow_rollup_hdrs=True)
        await running.ready("O")
        for name, headers in MESSAGES.items():
            await account.publish(f"O.{name}", headers)

        async def held() -> bool:
            answer = await ask(account.connection, "misnamed.list", {"stream": "O"})
            return not isinstance(answer, Refusal) and len(answer["misnamed"]) == 1

        await eventually(held, describe="the last message is read")
        async with open_session(settings) as session:
            state = (await session.served_stream("O")).state
            stored = StoredSource(session)
            for query in (Query(), Query(kinds=frozenset({PatternKind.CRON}))):
                answered = await session.service.schedules(state, query)
                assert answered == replace(await stored.schedules(state, query), names_failing=True)
            none = StreamState({"name": "NONE"}, "", 0, 0)
            assert await found(session.service.schedules(none, Query())) is None
            monkeypatch.setattr(client, "MAX_PAGE_LENGTH", 2)
            paged = await session.service.schedules(state, Query())
            assert paged.schedules == (await stored.schedules(state, Query())).schedules
            monkeypatch.setattr(client, "MAX_PAGES", 2)
            assert await found(session.service.schedules(state, Query())) is None, "too many pages"


# -- other answers ----------------------------------------------------------------------------------------------------


async def found(asking: Awaitable[object]) -> object:
    """Return an answer; None if there is none."""
    try:
        return await asking
    except (SchedulerError, ValueError, LookupError):
        return None


async def always(_instance: str) -> bool:
    return True


EMPTY_STREAM = StreamState({"name": "O"}, "", 0, 0)
QUESTIONS: dict[str, Callable[[ServiceClient], Awaitable[object]]] = {
    "schedules": lambda client: found(client.schedules(EMPTY_STREAM, Query())),
    "fires": lambda client: found(client.fires("O", FireQuery("O.s", 20))),
    "failures": lambda client: found(client.failures("nats_scheduler_failures", AdvisoryQuery())),
    "instances": lambda client: found(client.instances()),
    "modes": lambda client: found(client.modes()),
}
HEAD = {"at": "2026-01-31T09:00:00Z", "instance": "abc", "stream": "O", "schedule": "O.s", "mode": "emulated"}
EMPTY: dict[str, Any] = {
    **HEAD,
    "read_through": 0,
    "unanswered": [],
    "total": None,
    "cursor": None,
    "complete": True,
    "searched": "O.out",
    "oldest_read": None,
    "older": None,
    "kept_in": "nats_scheduler_failures",
    **{key: [] for key in ("schedules", "rejected", "misnamed", "fires", "failures", "instances", "streams")},
}
"""An answer to every question: there is nothing."""

WRONG: dict[str, bytes] = {
    "nothing": b"",
    "no object": b"[]",
    "no JSON": b"x",
    "no keys": b"{}",
    "items of another kind": json.dumps(EMPTY | {key: [{}] for key, value in EMPTY.items() if value == []}).encode(),
    "no lists": json.dumps({key: 1 if value == [] else value for key, value in EMPTY.items()}).encode(),
    "a shortened item": json.dumps(EMPTY | {"streams": [{"shortened": True}]}).encode(),
    "a part": json.dumps(EMPTY | {"unanswered": ["xyz"]}).encode(),
    "no instance": json.dumps({key: value for key, value in EMPTY.items() if key != "instance"}).encode(),
}
LESS: list[tuple[str, dict[str, Any]]] = [
    ("fires", {"complete": False}),
    ("failures", {"complete": False}),
    ("failures", {"kept_in": "another"}),
]


class StandIn:
    """Something that answers in place of a sidecar, and keeps which endpoints were asked."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.answer: bytes | None = json.dumps(EMPTY).encode()
        self.asked: list[str] = []
        account.connection.subscribe("nats_scheduler.v1.>", self._reply)

    def _reply(self, subject: bytes, to: bytes, _block: bytes, _body: bytes) -> None:
        self.asked.append(subject.decode().removeprefix("nats_scheduler.v1."))
        if self.answer is not None:
            self.account.connection.publish(to.decode(), self.answer)

    async def answers(self, *, is_ours: bool = True) -> list[str]:
        """Return which questions have an answer, with an instance of the registry or another one."""

        async def is_instance(_instance: str) -> bool:
            return is_ours

        asking = ServiceClient(self.account.connection, is_instance)
        return [name for name, one in QUESTIONS.items() if await one(asking) is not None]


@asynccontextmanager
async def stand_in(url: str) -> AsyncIterator[StandIn]:
    async with account_on(url) as account:
        yield StandIn(account)


async def test_an_answer_counts_if_its_instance_is_registered(shared_server: SharedServer) -> None:
    async def not_known(_instance: str) -> bool:
        raise forbidden("$JS.API.STREAM.MSG.GET.KV_nats_scheduler")

    async with stand_in((await shared_server(V2_11)).url) as sidecar:
        assert await sidecar.answers() == list(QUESTIONS)
        assert await sidecar.answers(is_ours=False) == []
        unsure = ServiceClient(sidecar.account.connection, not_known)
        assert [await one(unsure) for one in QUESTIONS.values()] == [None] * len(QUESTIONS)
        sidecar.asked.clear()
        for kind, wrong in WRONG.items():
            sidecar.answer = wrong
            assert await sidecar.answers() == [], kind
        assert len(sidecar.asked) >= len(WRONG) * len(QUESTIONS), "each of them was asked"
        for question, less in LESS:
            sidecar.answer = json.dumps(EMPTY | less).encode()
            assert question not in await sidecar.answers(), less


async def test_after_a_request_without_an_answer_nothing_is_asked(
    shared_server: SharedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.1)
    url = (await shared_server(V2_11)).url
    async with account_on(url) as account:
        assert await found(ServiceClient(account.connection, always).modes()) is None, "nobody is there"
    async with stand_in(url) as sidecar:
        sidecar.answer = None
        assert await sidecar.answers() == []
        await eventually(lambda: sidecar.asked, describe="the first request arrives")
        await sidecar.account.api.info()  # what else was sent would have arrived
        assert len(sidecar.asked) == 1
    async with stand_in(url) as sidecar, account_on(url, inbox_prefix="INBOX") as account:
        assert await found(ServiceClient(account.connection, always).modes()) is None
        assert sidecar.asked == [], "sidecars do not answer to such an inbox"
