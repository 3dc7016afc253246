"""Answers that are not a sidecar's: any client that may subscribe to the service can answer in its place.

The rule: whatever is answered, each page is made, says what it cannot read, and shows no markup of the answer.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, get_args, get_origin

import pytest
import pytest_asyncio
from typing_extensions import get_type_hints, is_typeddict

from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.observe.documents import Count, Time
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.service import sidecar_answers
from nats_scheduler.service.change_endpoints import ChangeAnswer
from tests.harness.account import account_on, flushed
from tests.harness.servers import V2_11, server_binary
from tests.harness.waiting import eventually
from tests.web.browsing import Browsing, browsing, fields_of
from tests.web.test_request_checks import CONTROL_TOKEN, controllers

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

CONTROL_PATHS = (
    *("/change?do=pause&stream=X", "/change?do=pause&stream=X&subject=X.s"),
    *("/edit?stream=X&subject=X.s", "/add?stream=X"),
)
PATHS = (
    *("/", "/streams", "/schedules?stream=X", "/schedule?stream=X&subject=X.s", "/rejected?stream=X"),
    *("/history?stream=X&subject=X.s", "/fires", "/failures", "/changes", "/instances", "/findings", "/calendars"),
    *("/content?stream=X&subject=X.s", "/content?stream=X&subject=X.s&fire=7"),
)
QUESTIONS = [one for one in vars(sidecar_answers).values() if isinstance(one, sidecar_answers.EndpointQuestion)]
FIELD_VALUE = re.compile(r'value="[^"]*"|<textarea[^>]*>[^<]*')
"""What is in the fields of a form, which is sent back as it is."""
MARKUP = "<script>alert(1)</script>\u202e\x00"
HUGE = 2**63 - 1
NUMBERS = len(LATENESS_BUCKETS_SECONDS) + 1
"""The length of a list of numbers: that of the counts of lateness, which is fixed."""


def hostile(form: Any, number: int, time: str) -> Any:
    """Return what a model allows: in each place for a text markup, with this number and this time in theirs."""
    inner = partial(hostile, number=number, time=time)
    origin, arguments = get_origin(form), get_args(form)
    if is_typeddict(form):
        return {key: inner(kind) for key, kind in get_type_hints(form, include_extras=True).items()}
    if form in (Time, Count):
        return time if form == Time else abs(number)
    if origin is Literal:
        return arguments[0]
    if origin is list and float in arguments:
        return list(LATENESS_BUCKETS_SECONDS)
    if origin is list:
        return [inner(arguments[0])] * (NUMBERS if int in (arguments[0], *get_args(arguments[0])) else 2)
    if origin is dict:
        return {MARKUP: inner(arguments[1])}
    if origin in (Annotated, NotRequired) or type(None) in arguments:
        return inner(arguments[0])
    return {str: MARKUP, int: number, bool: False}.get(form, {MARKUP: [MARKUP]})


LATE: dict[str, Any] = {one.endpoint: hostile(one.form, HUGE, "9999-12-31T23:59:59Z") for one in QUESTIONS}
EARLY = {one.endpoint: hostile(one.form, -HUGE, "0000-01-01T00:00:00Z") for one in QUESTIONS}
for answered in (LATE, EARLY):
    change = hostile(ChangeAnswer, HUGE if answered is LATE else 0, "9999-12-31T23:59:59Z")
    answered |= {f"schedules.{operation}": change for operation in ("add", "edit", "pause")}
LATE["explain"]["error"] = LATE["schedules.next"]["error"] = LATE["schedules.get"]["rejected"] = None
ANSWERS: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"<html>",
    "a list": b"[]",
    "another object": b'{"streams": 7, "schedules": {}, "instances": [1], "at": []}',
    "deep": b'{"at": ' + b"[" * 50_000,
    "long": json.dumps({"at": "2026-03-01T12:00:00Z", "ready": True, "reasons": ["x" * 500_000]}).encode(),
    "endless numbers": json.loads(json.dumps(LATE).replace(str(HUGE), "9" * 400)),
    "plausible, late and large": LATE,
    "plausible, early and negative": EARLY,
}
PLAUSIBLE = [kind for kind in ANSWERS if kind.startswith("plausible")]


@dataclass
class Impostor:
    """Answers each request in place of a sidecar."""

    connection: Connection
    url: str
    kind: str = "nothing"
    asked: set[str] = field(default_factory=set)

    def answer(self, subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
        endpoint = subject.decode().removeprefix("nats_scheduler.v1.").removeprefix("nats_scheduler.control.v1.")
        endpoint = "health.get" if endpoint.startswith("health.get.") else endpoint  # that of one instance
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
            account.connection.subscribe("nats_scheduler.control.v1.>", found.answer)
            await flushed(account.connection)
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
        if kind in PLAUSIBLE:
            shown |= {path: await page.shows(path, "&lt;script&gt;alert") for path in PATHS}
            assert [path for path in PATHS if "cannot read" in shown[path]] == []
        for path, text in shown.items():
            assert "</html>" in text, path
            assert "<script>alert" not in text
            assert "\u202e" not in text
        if kind in ("no JSON", "a list", "another object", "deep", "endless numbers"):
            await eventually(partial(says_so, page), describe="it says so")
        later = {"schedules.next", "explain"} if kind in PLAUSIBLE else set()
        asked = {one.endpoint for one in QUESTIONS} - {"schedules.next", "explain"} | later
        await eventually(lambda: impostor.asked >= asked, describe=lambda: f"{asked - impostor.asked}")


@pytest.mark.parametrize("kind", ["no JSON", "plausible, late and large"])
async def test_each_page_that_changes_something_is_made_whatever_is_answered(impostor: Impostor, kind: str) -> None:
    impostor.kind = kind
    async with browsing(impostor.url, controllers=controllers()) as page:
        await page.connected()
        await page.client.post("/login", data={"token": CONTROL_TOKEN})
        for path in CONTROL_PATHS:
            answer = await page.client.get(path)
            assert answer.status_code in (200, 404, 503), path
            assert "</html>" in answer.text, path
            assert "<script>alert" not in answer.text, path
            assert "\u202e" not in FIELD_VALUE.sub("", answer.text), path
            if kind in PLAUSIBLE and not path.startswith("/add"):
                assert "&lt;script&gt;alert" in answer.text, path
        fields = dict(fields_of(await page.get("/add?stream=X")))
        sent = {**fields, "subject": "X.s", "author": "Ada", "reason": "why", "step": "store"}
        added = await page.client.post("/add", data=sent, follow_redirects=True)
        assert "<script>alert" not in added.text
        assert "\u202e" not in FIELD_VALUE.sub("", added.text)
