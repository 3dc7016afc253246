"""The status page in the test's process: its handlers, asked by a client as a browser would, beside a real sidecar."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from nats_scheduler.service.sidecar_answers import Answers
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.web.app import application
from nats_scheduler.web.attempts import Proxies
from nats_scheduler.web.link import Link
from nats_scheduler.web.request_checks import Controllers, Sessions
from tests.harness.account import CLOCK
from tests.harness.waiting import eventually

TOKEN = "-".join(["nobody", "guesses", "this"])


class _Fields(HTMLParser):
    """Collects the fields of a page's forms as a browser would send them, without its buttons."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: list[tuple[str, str]] = []
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name"), given.get("value") or ""
        if tag == "option" and self.names and (self.names[-1] not in dict(self.fields) or "selected" in given):
            self.fields = [
                *((one, text) for one, text in self.fields if one != self.names[-1]),
                (self.names[-1], value),
            ]
        if not name:
            return
        if tag == "input" and (given.get("type") != "checkbox" or "checked" in given):
            self.fields.append((name, value))
        if tag in ("select", "textarea"):
            self.names.append(name)

    def handle_data(self, data: str) -> None:
        if self.names and self.lasttag == "textarea":
            self.fields.append((self.names[-1], data.removeprefix("\n")))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("select", "textarea"):
            self.names.clear()


def fields_of(text: str) -> list[tuple[str, str]]:
    """Return the fields of the form that changes something, as a browser would send them."""
    parser = _Fields()
    parser.feed(text.partition('<main id="main"')[2])
    return parser.fields


@dataclass
class Browsing:
    """A client of the page, and the page's connection."""

    client: httpx.AsyncClient
    link: Link

    async def get(self, path: str, status: int = 200, **headers: str) -> str:
        """Return the text of a page."""
        answer = await self.client.get(path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        assert answer.status_code == status, (answer.status_code, answer.text[:500])
        return answer.text.replace("<wbr>", "")  # where a subject may be broken

    async def shows(self, path: str, *texts: str) -> str:
        """Wait until a page shows all texts, and return it."""
        last = ""

        async def shown() -> bool:
            nonlocal last
            last = await self.get(path)
            return all(text in last for text in texts)

        await eventually(shown, describe=lambda: f"{texts} on {path}: {last}")
        return last

    async def connected(self) -> None:
        """Wait until the page has a connection."""
        await eventually(lambda: self.link.server, describe="the page is connected")


@asynccontextmanager
async def browsing(
    url: str,
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    controllers: Controllers | None = None,
    proxies: Proxies = (),
    prefix: str = "",
    clock: Callable[[], float] | None = None,
    **settings: Any,
) -> AsyncIterator[Browsing]:
    """Serve the page to a client; its connection is to `url`, and may never come about.

    `clock` (s) is that of waits after wrong tokens.
    """
    connection_settings = ConnectionSettings(servers=(url,), **settings)
    link = Link(connection_settings)
    sessions = None if token is None else Sessions(token, CLOCK.now)
    source = Answers(link.ask, CLOCK.now, lambda error: pytest.fail(repr(error)))
    app = application(link, source, {"localhost", *hosts}, sessions, controllers, proxies, prefix, clock)
    keeping = asyncio.create_task(link.keep())
    transport = httpx.ASGITransport(app)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8225") as client:
            yield Browsing(client, link)
    finally:
        await source.close()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
