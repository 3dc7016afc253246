"""The status page: which address is which page, and its process with the connection, the pages and the listener."""

import asyncio
from collections.abc import Callable, Collection
from ipaddress import ip_network
from pathlib import Path
from secrets import token_bytes

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.observe.address import bound, is_loopback, url_of
from nats_scheduler.observe.listener import serve
from nats_scheduler.observe.log import logger
from nats_scheduler.service.sidecar_answers import Answers
from nats_scheduler.settings.json_files import read_bounded
from nats_scheduler.settings.problems import SettingsError
from nats_scheduler.settings.sidecar_settings import MIN_WEB_TOKEN_LENGTH, SidecarSettings
from nats_scheduler.web.attempts import Attempts, Proxies
from nats_scheduler.web.change_pages import Asking, Control
from nats_scheduler.web.control_check import report_refusal
from nats_scheduler.web.editing import Editing
from nats_scheduler.web.link import Link, Reader
from nats_scheduler.web.pages import NOT_FOUND, Pages, healthz
from nats_scheduler.web.proxied import Proxied
from nats_scheduler.web.request_checks import CONTROL_COOKIE, LOGIN, ZONE, Controllers, RequestGuard, Sessions


def application(
    link: Asking,
    source: Answers,
    hosts: Collection[str],
    sessions: Sessions | None,
    controllers: Controllers | None = None,
    proxies: Proxies = (),
    prefix: str = "",
    clock: Callable[[], float] | None = None,
) -> Starlette:
    """Return the whole status page; without `controllers` it only reads.

    `proxies` are trusted to say where requests came from and what they were for; browsers reach the page below the path
    `prefix`. `clock` is for `Attempts`.
    """
    attempts = Attempts(proxies, clock)
    pages = Pages(source, sessions, controllers, attempts, prefix)
    control = None if controllers is None else Control(link, source, pages, controllers)
    changing = [] if control is None else [*control.routes(), *Editing(control).routes()]
    return Starlette(
        routes=[
            *(Route("/" if name == "overview" else f"/{name}", page) for name, page in pages.handlers().items()),
            *(Route(path, page, methods=["GET", "POST"]) for path, page in changing),
            Route(LOGIN, pages.login, methods=["GET", "POST"]),
            Route(ZONE, pages.zone, methods=["POST"]),
            Route("/healthz", healthz),
            Mount("/static", StaticFiles(packages=[("nats_scheduler.web", "static")])),
        ],
        middleware=[
            Middleware(
                RequestGuard,
                hosts=hosts,
                sessions=sessions,
                controllers=controllers,
                attempts=attempts,
                proxied=Proxied(proxies, prefix),
            )
        ],
        exception_handlers={NOT_FOUND: pages.missing},
    )


def token_of(settings: SidecarSettings, name: str = "web_token") -> str | None:
    """Return the token of a setting or of its file, None without both; raises `SettingsError`."""
    given: SecretStr | None = getattr(settings, name)
    path: Path | None = getattr(settings, f"{name}_file")
    if given is not None and path is not None:
        raise SettingsError(f"{name} and {name}_file are both set: expected one of them")
    token = None if given is None else given.get_secret_value()
    if path is not None:
        token = _read(path, f"{name}_file")
    if token is None and name == "web_token" and not is_loopback(settings.web_address):
        raise SettingsError(
            f"web_address of {settings.web_address} is not loopback: expected web_token or web_token_file to be set too"
        )
    return token


def _read(path: Path, name: str) -> str:
    try:
        token = read_bounded(path).decode("utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"{name} of '{path}': expected a file with a token ({error})") from None
    if len(token) < MIN_WEB_TOKEN_LENGTH:
        raise SettingsError(f"{name} of '{path}' has {len(token)} characters: expected at least {MIN_WEB_TOKEN_LENGTH}")
    return token


def proxies_of(settings: SidecarSettings) -> Proxies:
    """Return the addresses of the proxies that are trusted."""
    return [*map(ip_network, settings.web_trusted_proxies)]


def controllers_of(settings: SidecarSettings, now: Callable[[], int]) -> Controllers | None:
    """Return who may change schedules, None if the page only reads; raises `SettingsError`."""
    token = token_of(settings, "web_control_token")
    header, proxies = settings.web_user_header or "", proxies_of(settings)
    if header and not proxies:
        raise SettingsError("web_user_header is set: expected web_trusted_proxies to be set too")
    if token is not None and token == token_of(settings):
        raise SettingsError(
            "web_control_token is the same as web_token: expected another one, which readers do not know"
        )
    if token is None and not header:
        return None
    sessions = None if token is None else Sessions(token, now, CONTROL_COOKIE)
    # Readers know their token, and must not be able to make a form for another. So only that of changes is a key.
    return Controllers(token.encode() if token else token_bytes(), sessions, header, proxies, settings.web_control_rule)


async def run(
    settings: SidecarSettings,
    now: Callable[[], int],
    stop: asyncio.Event,
    reader_on: Callable[[Connection], Reader] | None = None,
) -> None:
    """Serve the status page until `stop` is set; raises `SettingsError`.

    Nothing here waits for NATS: the page is served at once, and says what it cannot reach.
    `now` returns the time in ns since the Unix epoch; `reader_on` is for `Link`.
    """
    token = token_of(settings)
    sessions = None if token is None else Sessions(token, now)
    link = Link(settings.connection, settings.web_control_rule, reader_on)
    controllers = controllers_of(settings, now)
    source = Answers(link.ask, now, lambda error: logger().error("request_failed", exc_info=error))
    hosts = {"localhost", settings.web_address, *settings.web_hosts}
    app = application(link, source, hosts, sessions, controllers, proxies_of(settings), settings.web_path_prefix)
    with bound(settings.web_address, settings.web_port, "web") as listening:
        logger().info("web_served", url=url_of(listening))
        async with TaskGroup() as group:
            tasks = [group.create_task(link.keep())]
            if controllers is not None:
                tasks.append(group.create_task(report_refusal(source, controllers.rule)))
            await serve(app, listening, stop)
            await source.close()
            for task in tasks:
                task.cancel()
