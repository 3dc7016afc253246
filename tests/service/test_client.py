"""The answer of a running sidecar to a command is what reading the stream gives."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from nats_scheduler.cli.reading import StoredSource
from nats_scheduler.cli.session import Session, open_session
from nats_scheduler.control.past import FireQuery
from nats_scheduler.engine.views.figures import ScheduleKind
from nats_scheduler.engine.views.view import Query
from nats_scheduler.jetstream.errors import JetStreamError, NotPermittedError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.service import client
from nats_scheduler.service.advisories import AdvisoryQuery
from nats_scheduler.service.client import Listed, QuestionError, ServiceClient
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Account, account_on, in_seconds, sidecar_on
from tests.harness.waiting import eventually
from tests.service.asking import Refusal, ask

T = TypeVar("T")

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


def client_on(account: Account) -> ServiceClient:
    """Return a client to which the instances of any registry count."""
    return ServiceClient(account.connection, always)


async def always(_instance: str) -> bool:
    return True


async def found(asking: Awaitable[T]) -> T | None:
    """Return an answer; None if there is none."""
    try:
        return await asking
    except (QuestionError, JetStreamError, ValueError, LookupError):
        return None


async def read(session: Session, state: StreamState, query: Query) -> Listed:
    """Read the stream as a command does."""
    return await StoredSource(session).schedules(state, query)


NONE = StreamState({"name": "NONE"}, "", 0, 0)
EMPTY_STREAM = StreamState({"name": "O"}, "", 0, 0)


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
            state = (await session.served_stream("O")).state
            for query in (
                Query(),
                Query(subject="O.*y"),
                Query(target="O.out"),
                Query(kinds=frozenset({ScheduleKind.CRON})),
            ):
                answered, listing = await session.service.schedules(state, query), await read(session, state, query)
                assert answered == replace(listing, names_failing=True)
            assert await found(session.service.schedules(NONE, Query())) is None
            monkeypatch.setattr(client, "MAX_PAGE_LENGTH", 2)
            paged = await session.service.schedules(state, Query())
            assert paged.schedules == (await read(session, state, Query())).schedules
            monkeypatch.setattr(client, "MAX_PAGES", 2)
            assert await found(session.service.schedules(state, Query())) is None, "too many pages"


Question = Callable[[ServiceClient], Awaitable[object]]

QUESTIONS: dict[str, Question] = {
    "schedules": lambda client: found(client.schedules(EMPTY_STREAM, Query())),
    "fires": lambda client: found(client.fires("O", FireQuery("O.s", 20))),
    "failures": lambda client: found(client.failures("nats_scheduler_failures", AdvisoryQuery())),
    "instances": lambda client: found(client.instances()),
    "modes": lambda client: found(client.modes()),
}


@pytest.fixture(params=QUESTIONS)
def question(request: pytest.FixtureRequest) -> Question:
    return QUESTIONS[request.param]


@asynccontextmanager
async def stand_in(url: str, answer: Callable[[str], bytes | None]) -> AsyncIterator[list[str]]:
    """Answer in place of a sidecar, and return the endpoints that were asked; None is no answer."""
    asked: list[str] = []
    async with account_on(url) as other:

        def reply(subject: bytes, to: bytes, _block: bytes, _body: bytes) -> None:
            asked.append(subject.decode().removeprefix("nats_scheduler.v1."))
            answered = answer(asked[-1])
            if answered is not None:
                other.connection.publish(to.decode(), answered)

        other.connection.subscribe("nats_scheduler.v1.>", reply)
        await other.api.info()  # the server has taken the subscription
        yield asked


async def test_nothing_is_known_where_no_sidecar_answers(start_server: StartServer, question: Question) -> None:
    server = await start_server()
    async with account_on(server.url) as account:
        assert await question(client_on(account)) is None


HEAD = {"at": "2026-01-31T09:00:00Z", "instance": "abc", "stream": "O", "schedule": "O.s", "mode": "emulated"}
EMPTY: dict[str, Any] = {
    **HEAD,
    "read_through": 0,
    "unanswered": [],
    "cursor": None,
    "complete": True,
    "searched": "O.out",
    "oldest_read": None,
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


async def test_an_answer_of_another_kind_counts_as_none(start_server: StartServer, question: Question) -> None:
    server = await start_server()
    given = [b""]
    async with account_on(server.url) as account, stand_in(server.url, lambda _endpoint: given[0]) as asked:
        for number, (kind, given[0]) in enumerate(WRONG.items(), start=1):
            assert await question(client_on(account)) is None, kind
            assert len(asked) >= number, kind


async def test_an_answer_counts_only_from_an_instance_of_the_registry(
    start_server: StartServer, question: Question
) -> None:
    async def never(_instance: str) -> bool:
        return False

    async def not_known(_instance: str) -> bool:
        raise NotPermittedError("$JS.API.STREAM.MSG.GET.KV_nats_scheduler")

    server = await start_server()
    answer = json.dumps(EMPTY).encode()
    async with account_on(server.url) as account, stand_in(server.url, lambda _endpoint: answer):
        assert await question(client_on(account)) is not None
        for is_ours in (never, not_known):
            assert await question(ServiceClient(account.connection, is_ours)) is None


@pytest.mark.parametrize(
    ("question_", "change"),
    [("fires", {"complete": False}), ("failures", {"complete": False}), ("failures", {"kept_in": "another"})],
)
async def test_an_answer_with_less_than_the_command_reads_counts_as_none(
    start_server: StartServer, question_: str, change: dict[str, Any]
) -> None:
    server = await start_server()
    answer = json.dumps(EMPTY | change).encode()
    async with account_on(server.url) as account, stand_in(server.url, lambda _endpoint: answer):
        assert await QUESTIONS[question_](client_on(account)) is None


async def test_after_a_request_without_an_answer_nothing_is_asked(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.1)
    server = await start_server()
    async with account_on(server.url) as account, stand_in(server.url, lambda _endpoint: None) as asked:
        asking = client_on(account)
        for one in QUESTIONS.values():
            assert await one(asking) is None
        await eventually(lambda: asked, within_seconds=WAIT_SECONDS, describe="the first request arrives")
        await account.api.info()  # what else was sent would have arrived
        assert len(asked) == 1


async def test_nothing_is_asked_where_sidecars_do_not_answer(start_server: StartServer) -> None:
    server = await start_server()
    async with (
        account_on(server.url, inbox_prefix="INBOX") as account,
        stand_in(server.url, lambda _endpoint: json.dumps(EMPTY).encode()) as asked,
    ):
        assert await QUESTIONS["modes"](client_on(account)) is None
        assert asked == []
