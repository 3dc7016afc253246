"""Odd requests to change schedules: each is answered, none is a defect of the sidecar, and the others are served."""

import asyncio
import random
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.hostile.effort import EFFORT, seeded
from tests.service.controlling import ENDPOINTS, Refused, far, request

KEYS: dict[str, list[Any]] = {
    "stream": ["O", "O", "O", "NONE", "", "*", "a.b", None, 1],
    "subject": ["O.s", "O.s", "O.new", "O.\x7f", "O.é", "O.*", "$JS.API.INFO", "", "O", "O." + "x" * 5_000, "O.a b", 7],
    "author": ["ada", "\x00\x1b[31m", "ü" * 256, "a" * 257, None],
    "reason": ["so", "\n\r\n", "\u2028", 5],
    "dry_run": [True, False, "true", 0, None],
    "expected": [None, 1, 2**63 - 1, 2**63, 0, -1, 1.5, "1", True],
    "drop": [True, False, "no"],
    "fire_time": ["2026-01-01T00:00:00Z", "1700-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "now", "", 5],
    "since": ["2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "", None],
    "until": ["2026-01-01T00:00:01Z", "9999-12-31T23:59:59.999999999Z", [], None],
    "limit": [1, 1_000, 1_001, 0, "1"],
    "headers": [far(), [], [[]], [["a", "b", "c"]], [["", ""]], [["Nats-Schedule", "@every 1s"]], {"a": "b"}, None],
    "set": [[["X-Note", "é"]], [["a\x00", "b"]], [["a", "\x00\x7f"]], [["a", "b"], ["a", "c"]], [["Nats-TTL", "soon"]]],
    "unset": [["Greeting"], ["Nats-Schedule"], [""], ["a:b"], ["é"], "a", None],
    "body": ["text", "", "\x00", "\ufffd" * 1_000, 5, None],
    "body_base64": ["aGVsbG8=", "aGVsbG8", "=", "\x00", "", None],
    "replace": [True, False, 1],
    "more": [1],
}
MORE = [
    [["Nats-Schedule-X-Owner", "a"]],
    far("O.\x7f"),
    [*far(), ["Nats-Msg-Id", "x"]],
    [*far(), ["Nats-Expected-Stream", "Y"]],
]
WANTED = {
    "fire": ["fire_time"],
    "backfill": ["since", "until"],
    "add": ["headers"],
    "edit": ["set"],
    "resume": ["drop"],
}
ROUNDS = 100 * EFFORT


def odd(chance: random.Random, endpoint: str) -> dict[str, Any]:
    """Return a request with keys that may be right, wrong, missing or too many."""
    keys = ["stream", "subject", *WANTED.get(endpoint, []), *chance.sample(list(KEYS), chance.randrange(4))]
    made = {key: chance.choice(KEYS[key]) for key in keys if chance.random() < 0.95}
    if "headers" in made and chance.random() < 0.4:
        made["headers"] = chance.choice(MORE)
    if chance.random() < 0.7:  # what is right in these reaches the operations
        made |= {"stream": "O", "subject": chance.choice(["O.s", "O.new", "O.\x7f", "O.é"])}
    return made


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_odd_requests_are_answered_and_nothing_is_a_defect(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    chance = seeded()
    async with sidecar_on(server.url, allow_control=True) as running, account_on(server.url) as account:
        await account.create("O", allow_msg_ttl=True)
        await running.ready("O")
        await account.publish("O.s", dict(far()))
        codes = set[int]()
        for _ in range(ROUNDS):
            asked = [(name, odd(chance, name)) for name in chance.sample(ENDPOINTS, 4)]
            answers = await asyncio.gather(*(request(account.connection, name, body) for name, body in asked))
            refused = [(one, body) for one, body in zip(answers, asked, strict=True) if isinstance(one, Refused)]
            codes |= {one.code for one, _body in refused}
            assert [(one, body) for one, body in refused if one.code in (500, 503)] == []
        assert {400, 404, 422} <= codes
        for endpoint in ("pause", "resume"):
            await account.publish("O.last", dict(far())) if endpoint == "pause" else None
            answer = await request(account.connection, endpoint, {"stream": "O", "subject": "O.last"})
            assert isinstance(answer, dict), answer
        assert running.told("request_failed") == []
