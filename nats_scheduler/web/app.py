"""The status page as an ASGI application: which address is which page."""

from collections.abc import Collection

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nats_scheduler.web.answers import Answers
from nats_scheduler.web.guard import LOGIN, Guard, Sessions
from nats_scheduler.web.pages import NOT_FOUND, Pages, healthz


def application(source: Answers, hosts: Collection[str], sessions: Sessions | None) -> Starlette:
    """Return the whole status page."""
    pages = Pages(source, sessions)
    return Starlette(
        routes=[
            Route("/", pages.overview),
            Route("/schedules", pages.schedules),
            Route("/schedule", pages.schedule),
            Route("/streams", pages.streams),
            Route("/fires", pages.fires),
            Route("/failures", pages.failures),
            Route("/instances", pages.instances),
            Route("/findings", pages.findings),
            Route("/rejected", pages.rejected),
            Route(LOGIN, pages.login, methods=["GET", "POST"]),
            Route("/healthz", healthz),
            Mount("/static", StaticFiles(packages=[("nats_scheduler.web", "static")])),
        ],
        middleware=[Middleware(Guard, hosts=hosts, sessions=sessions)],
        exception_handlers={NOT_FOUND: pages.missing},
    )
