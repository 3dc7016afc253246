"""Answers that are not a sidecar's: any client that may subscribe to the service can answer in its place.

The rule: whatever is answered, each page is made, says what it cannot read, and shows no markup of the answer.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import WAIT_SECONDS, account_on
from tests.harness.servers import V2_11, server_binary
from tests.harness.waiting import eventually
from tests.web.browsing import Browsing, browsing

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

PATHS = (
    "/",
    "/streams",
    "/schedules?stream=X",
    "/schedule?stream=X&subject=X.s",
    "/rejected?stream=X",
    "/fires",
    "/failures",
    "/instances",
    "/findings",
)
UNREAD = ("/rejected?stream=X",)
"""The page about endpoints that are not among the plausible answers."""
MARKUP = "<script>alert(1)</script>\u202e\x00"
TIME = "9999-12-31T23:59:59Z"
AT = {"at": "2026-03-01T12:00:00Z", "instance": MARKUP}
HUGE = 2**63 - 1
FIRE = {"utc": TIME, "local": MARKUP, "nanoseconds": HUGE, "sent": TIME}
STORED = {"stream": MARKUP, "subject": MARKUP, "sequence": -1, "stored": TIME}
SCHEDULE = {
    **STORED,
    **dict.fromkeys(("pattern", "kind", "time_zone", "target", "source", "ttl", "rollup", "dialect"), MARKUP),
    **dict.fromkeys(("mode", "state", "fired_by"), MARKUP),
    "policies": {MARKUP: MARKUP},
    "next_fire": FIRE,
    "failing": {"err_code": HUGE, "description": MARKUP, "since": TIME},
    "ends": {"utc": TIME, "reason": MARKUP},
}
STREAM = {
    **dict.fromkeys(("stream", "mode"), MARKUP),
    **dict.fromkeys(("failing", "rejected", "misnamed"), HUGE),
    "ready": False,
    "unread": MARKUP,
    "schedules": {"total": -HUGE, "states": {"overdue": HUGE}, "kinds": {MARKUP: 1}},
    "next": SCHEDULE,
    "holders": [MARKUP],
}
INSTANCE = {
    **dict.fromkeys(("since", "last_heartbeat"), TIME),
    "id": MARKUP,
    "state": "silent",
    "age_nanoseconds": -HUGE,
    "serves": None,
    "unable": [{"stream": MARKUP, "reason": MARKUP}],
    "holds": [{"stream": MARKUP, "mode": MARKUP, "shards": [HUGE, -1, 3, 3]}],
}
COUNTS = ("fires", "duplicates", "overdue", "refused", "lateness_max_nanoseconds")
MINUTE = {
    "from": TIME,
    **dict.fromkeys(COUNTS, 2**63 - 1),
    "lateness": [2**63 - 1] * (len(LATENESS_BUCKETS_SECONDS) + 1),
}
MINUTES = [MINUTE, {**MINUTE, "from": AT["at"]}, {**MINUTE, "from": "0000-01-01T00:00:00Z"}]
PLAUSIBLE: dict[str, Any] = {
    "health.get": {**AT, "ready": False, "reasons": [MARKUP], "notes": [MARKUP]},
    "streams.list": {**AT, "unanswered": [MARKUP], "cursor": MARKUP, "streams": [STREAM, STREAM]},
    "schedules.list": {
        **AT,
        "stream": MARKUP,
        "mode": MARKUP,
        "read_through": -1,
        "unanswered": [MARKUP],
        "cursor": MARKUP,
        "schedules": [SCHEDULE],
    },
    "schedules.get": {
        **AT,
        "holder": MARKUP,
        "holder_answered": False,
        "schedule": SCHEDULE,
        "flight": {"stage": MARKUP, "attempts": HUGE, "may_be_stored": True},
        "rejected": None,
        "misnamed": {**STORED, "headers": [{"header": MARKUP, "reason": MARKUP}]},
    },
    "schedules.next": {
        **AT,
        "pattern": MARKUP,
        "time_zone": MARKUP,
        "after": TIME,
        "ends": True,
        "error": None,
        "excepted": [{"first": TIME, "last": TIME}],
        "fires": [FIRE, FIRE],
    },
    "instances.list": {**AT, "cursor": MARKUP, "instances": [INSTANCE, INSTANCE]},
    "activity.list": {**AT, "unanswered": [], "bounds_seconds": list(LATENESS_BUCKETS_SECONDS), "minutes": MINUTES},
    "timeline.list": {**AT, "minutes": MINUTES, "complete": False, "soonest": [SCHEDULE]},
    "findings.list": {
        **AT,
        "worst": MARKUP,
        "counts": {"error": HUGE},
        "unlisted": [{"code": MARKUP, "stream": MARKUP, "number": HUGE}],
        "unexamined": [dict.fromkeys(("what", "why", "stream"), MARKUP)],
        "omitted": HUGE,
        "findings": [dict.fromkeys(("severity", "code", "stream", "subject", "what", "why", "command"), MARKUP)],
    },
    "fires.recent": {
        **AT,
        "unanswered": [MARKUP],
        "fires": [
            {
                **dict.fromkeys(("stream", "schedule", "target"), MARKUP),
                **dict.fromkeys(("fire_time", "stored"), TIME),
                "sequence": -HUGE,
                "lateness_nanoseconds": -HUGE,
                "overdue": False,
            }
        ],
    },
    "fires.list": {
        **AT,
        **dict.fromkeys(("stream", "schedule", "searched"), MARKUP),
        "complete": False,
        "oldest_read": TIME,
        "fires": [],
    },
    "explain": {
        **AT,
        **dict.fromkeys(("pattern", "time_zone", "words"), MARKUP),
        "after": TIME,
        "kind": "cron",
        "ends": True,
        "error": None,
        "fires": [{**FIRE, "clock_change": MARKUP, "clock_shift_seconds": -HUGE}],
        "skipped": [dict.fromkeys(("first", "last", "clock_from", "clock_to"), MARKUP)],
    },
    "failures.list": {
        **AT,
        "kept_in": MARKUP,
        "complete": False,
        "failures": [
            {
                **dict.fromkeys(("kind", "stream", "schedule"), MARKUP),
                "stored": TIME,
                "sequence": HUGE,
                "advisory": {"reason": {MARKUP: MARKUP}, "code": [MARKUP]},
            }
        ],
    },
}
ANSWERS: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"<html>",
    "a list": b"[]",
    "another object": b'{"streams": 7, "schedules": {}, "instances": [1], "at": []}',
    "deep": b'{"at": ' + b"[" * 50_000,
    "long": json.dumps({**AT, "ready": True, "reasons": ["x" * 500_000]}).encode(),
    "endless numbers": json.loads(json.dumps(PLAUSIBLE).replace(str(HUGE), "9" * 400)),
    "plausible": PLAUSIBLE,
}


@dataclass
class Impostor:
    """Answers each request in place of a sidecar."""

    connection: Connection
    url: str
    kind: str = "nothing"
    asked: set[str] = field(default_factory=set)

    def answer(self, subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
        endpoint = subject.decode().removeprefix("nats_scheduler.v1.")
        self.asked.add(endpoint)
        given = ANSWERS[self.kind]
        body = json.dumps(given.get(endpoint, {})).encode() if isinstance(given, dict) else given
        self.connection.write(frame(reply.decode(), "", b"", body))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impostor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Impostor]:
    server = EmbeddedServer(server_binary(V2_11), tmp_path_factory.mktemp("impostor"))
    await server.start()
    try:
        async with account_on(server.url) as account:
            found = Impostor(account.connection, server.url)
            account.connection.subscribe("nats_scheduler.v1.>", found.answer)
            await account.connection.request("$JS.API.INFO")  # the subscription is known to the server by now
            yield found
    finally:
        await server.stop()


async def says_so(page: Browsing) -> bool:
    text = await page.get("/streams")
    return "this version cannot read" in text or "what is no JSON object" in text


@pytest.mark.parametrize("kind", ANSWERS)
async def test_each_page_is_made_whatever_is_answered(impostor: Impostor, kind: str) -> None:
    impostor.kind = kind
    async with browsing(impostor.url) as page:
        await page.connected()
        shown = dict(zip(PATHS, await asyncio.gather(*(page.get(path) for path in PATHS)), strict=True))
        # A page does not wait long for its answers: what it says of them may come with the next request.
        if kind == "plausible":
            shown |= {path: await page.shows(path, "&lt;script&gt;alert") for path in PATHS if path not in UNREAD}
            assert not [path for path in PATHS if path not in UNREAD and "cannot read" in shown[path]]
        for path, text in shown.items():
            assert "</html>" in text, path
            assert "<script>alert" not in text
            assert "\u202e" not in text
        if kind in ("no JSON", "a list", "another object", "deep", "endless numbers"):
            await eventually(partial(says_so, page), within_seconds=WAIT_SECONDS, describe="it says so")
    assert impostor.asked >= set(PLAUSIBLE) - ({"explain"} if kind != "plausible" else set())
