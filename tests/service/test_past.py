"""The endpoints about the past: fires and failures, the same as the commands read from the streams."""

import json
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Account, account_on, sidecar_on
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually
from tests.service.asking import Refusal, answered, ask

PORTABLE = {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-Target": "S.out"}


async def failures(account: Account, count: int, **request: Any) -> list[dict[str, Any]]:
    """Wait until `count` failures are answered, and return them."""

    async def enough() -> list[dict[str, Any]] | None:
        answer = await ask(account.connection, "failures.list", request)
        return answer["failures"] if isinstance(answer, dict) and len(answer["failures"]) >= count else None

    return await eventually(enough, within_seconds=WAIT_SECONDS, describe=f"{count} failures")


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_past_fires_and_failures_are_answered(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S")
        await running.ready("S")
        await account.publish("S.s", PORTABLE)
        stored = await account.wait_for("S", "S.out", 3)
        one = {"stream": "S", "subject": "S.s"}
        answer = await answered(account.connection, "fires.list", one)
        assert [fire["sequence"] for fire in answer["fires"][-3:]] == [message.sequence for message in stored[2::-1]]
        assert (answer["searched"], answer["complete"]) == ("S.out", True)
        assert len((await answered(account.connection, "fires.list", {**one, "limit": 2}))["fires"]) == 2
        later = await answered(account.connection, "fires.list", {**one, "since": "2200-01-01T00:00:00Z"})
        assert later["fires"] == []
        for subject in ("S.a", "S.b"):
            await account.publish(subject, {**PORTABLE, "X-Nats-Schedule": "@every soon"})
        assert {failure["schedule"] for failure in await failures(account, 2)} == {"S.a", "S.b"}
        for request in ({"stream": "S", "subject": "S.b"}, {"subject": "S.b"}, {"subject": "*.b"}):
            found = await answered(account.connection, "failures.list", request)
            assert [failure["schedule"] for failure in found["failures"]] == ["S.b"]
        assert found["kept_in"] == "nats_scheduler_failures"


@pytest.mark.parametrize(
    ("endpoint", "request_", "code", "expected"),
    [
        ("fires.list", {"stream": "T", "subject": "T.s"}, 404, "is not served"),
        ("fires.list", {"stream": "S", "subject": "S.*"}, 400, "without wildcards"),
        ("fires.list", {"stream": "S", "subject": "S.s", "since": "soon"}, 400, "a time such as"),
        ("fires.list", {"stream": "S", "subject": "S.s", "limit": 1_001}, 400, "less than or equal to 1000"),
        ("fires.list", {"stream": "S", "subject": "S.s", "target": "a..b"}, 400, "a subject such as"),
        ("failures.list", {"stream": "S.S"}, 400, "pattern"),
        ("failures.list", {}, 404, "keep_failures is false"),
    ],
)
async def test_what_cannot_be_answered_is_refused_with_what_was_expected(
    start_server: StartServer, endpoint: str, request_: dict[str, Any], code: int, expected: str
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url, keep_failures=False) as running:
        await account.create("S")
        await running.ready("S")
        refused = await ask(account.connection, endpoint, request_)
        assert isinstance(refused, Refusal), refused
        assert refused.code == code
        assert expected in refused.sentence


async def test_an_answer_is_not_longer_than_the_server_takes(start_server: StartServer) -> None:
    server = await start_server(V2_11, config="max_payload: 8192\n")
    async with account_on(server.url) as account, sidecar_on(server.url, failures_per_schedule=100) as running:
        await account.create("S")
        await running.ready("S")
        await eventually(lambda: account.api.stream("nats_scheduler_failures"), within_seconds=WAIT_SECONDS)
        for number in range(60):
            body = {"type": "io.nats_scheduler.advisory.v1.cannot_serve", "stream": "S", "reason": f"{number}" * 100}
            await account.connection.request(
                "nats_scheduler.advisory.cannot_serve.S", json.dumps(body).encode(), deadline=WAIT_SECONDS
            )
        answer = await answered(account.connection, "failures.list", {"limit": 100})
        assert 0 < len(answer["failures"]) < 60
        assert not answer["complete"]
