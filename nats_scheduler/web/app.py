"""The status page as an ASGI application: which address is which page."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.observe.address import bound, is_loopback, url_of
from nats_scheduler.observe.listener import serve
from nats_scheduler.observe.log import logger
from nats_scheduler.service.answers import Answers
from nats_scheduler.settings.json_files import read_bounded
from nats_scheduler.settings.sidecar import MIN_WEB_TOKEN_LENGTH, SidecarSettings
from nats_scheduler.web.guard import LOGIN, Guard, Sessions
from nats_scheduler.web.link import Link
from nats_scheduler.web.pages import NOT_FOUND, Pages, healthz


def application(source: Answers, hosts: Collection[str], sessions: Sessions | None) -> Starlette:
    """Return the whole status page."""
    pages = Pages(source, sessions)
    return Starlette(
        routes=[
            *(Route("/" if name == "overview" else f"/{name}", page) for name, page in pages.handlers().items()),
            Route(LOGIN, pages.login, methods=["GET", "POST"]),
            Route("/healthz", healthz),
            Mount("/static", StaticFiles(packages=[("nats_scheduler.web", "static")])),
        ],
        middleware=[Middleware(Guard, hosts=hosts, sessions=sessions)],
        exception_handlers={NOT_FOUND: pages.missing},
    )


# The status page as one process: the connection, the pages and the listener, until they are stopped.
#
# The rule: nothing here waits for NATS: the page is served at once, and says what it cannot reach.


class TokenError(Exception):
    """The token is missing, or cannot be used; the operator has to change a setting."""


def token_of(settings: SidecarSettings) -> str | None:
    """Return the token of the settings, None without one; raises `TokenError`."""
    if settings.web_token is not None and settings.web_token_file is not None:
        raise TokenError("web_token and web_token_file are both set: expected one of them")
    token = None if settings.web_token is None else settings.web_token.get_secret_value()
    if settings.web_token_file is not None:
        token = _read(settings.web_token_file)
    if token is None and not is_loopback(settings.web_address):
        raise TokenError(
            f"web_address of {settings.web_address} is not loopback: expected web_token or web_token_file to be set too"
        )
    return token


def _read(path: Path) -> str:
    try:
        token = read_bounded(path).decode("utf-8").strip()
    except (OSError, ValueError) as error:
        raise TokenError(f"web_token_file of '{path}': expected a file with a token ({error})") from None
    if len(token) < MIN_WEB_TOKEN_LENGTH:
        raise TokenError(
            f"web_token_file of '{path}' has {len(token)} characters: expected at least {MIN_WEB_TOKEN_LENGTH}"
        )
    return token


async def run(settings: SidecarSettings, now: Callable[[], int], stop: asyncio.Event) -> None:
    """Serve the status page until `stop` is set; raises `TokenError` and `ListenError`.

    `now` returns the time in ns since the Unix epoch.
    """
    token = token_of(settings)
    sessions = None if token is None else Sessions(token, now)
    link = Link(settings.connection)
    source = Answers(link.ask, now, lambda error: logger().error("request_failed", exc_info=error))
    app = application(source, {"localhost", settings.web_address, *settings.web_hosts}, sessions)
    with bound(settings.web_address, settings.web_port, "web") as listening:
        logger().info("web_served", url=url_of(listening))
        async with TaskGroup() as group:
            connecting = group.create_task(link.keep())
            await serve(app, listening, stop)
            await source.close()
            connecting.cancel()
