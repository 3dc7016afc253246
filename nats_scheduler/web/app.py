"""The pages of the status page, and what is asked for each.

The rules: a page asks all its questions at once, and shows what is missing beside what is there. The same address
answers with the whole page, or, to a request with the header `X-Fragment`, with the parts that change.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nats_scheduler.version import VERSION
from nats_scheduler.web import answers
from nats_scheduler.web.answers import Answers
from nats_scheduler.web.guard import Guard, Sessions
from nats_scheduler.web.links import query_values
from nats_scheduler.web.rendering import render, templates
from nats_scheduler.web.verdict import totals, verdict

Handler = Callable[[Request], Awaitable[Response]]


class Pages:
    """The handlers of all pages."""

    def __init__(self, source: Answers, sessions: Sessions | None) -> None:
        self._source = source
        self._sessions = sessions
        self._templates = templates()

    async def overview(self, request: Request) -> Response:
        """Show whether all is well, and what happens now and next."""
        return await self._page(request, "overview", "Overview", {})

    async def _page(
        self, request: Request, name: str, title: str, values: dict[str, Any], status: int = 200
    ) -> Response:
        """Render a page, or its parts that change, with the verdict that each page shows."""
        source = self._source
        query = query_values(request.scope["query_string"])
        cursor = query.get("cursor") if name == "overview" else None
        health, streams, instances = await asyncio.gather(
            source.get(answers.HEALTH), source.get(answers.STREAMS, {"cursor": cursor}), source.get(answers.INSTANCES)
        )
        shown = {
            "title": title,
            "page": name,
            "now": source.now(),
            "version": VERSION,
            "server": source.link.server,
            "last_good_at": source.last_good_at,
            "verdict": verdict(health, streams, instances, source.last_good_at),
            "health": health,
            "streams": streams,
            "instances": instances,
            "totals": totals(streams, instances),
            "has_login": self._sessions is not None,
            "layout": "fragment.html" if request.headers.get("x-fragment") else "page.html",
            **values,
        }
        return HTMLResponse(render(self._templates, f"{name}.html", shown), status)


async def healthz(_request: Request) -> Response:
    """Answer that the process works."""
    return PlainTextResponse("ok\n")


def application(source: Answers, hosts: Collection[str], sessions: Sessions | None) -> Starlette:
    """Return the whole status page as an ASGI application."""
    pages = Pages(source, sessions)
    return Starlette(
        routes=[
            Route("/", pages.overview),
            Route("/healthz", healthz),
            Mount("/static", StaticFiles(packages=[("nats_scheduler.web", "static")])),
        ],
        middleware=[Middleware(Guard, hosts=hosts, sessions=sessions)],
    )
