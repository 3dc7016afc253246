"""The checks before every page: the name that the browser asked for, the method, the size, the token; and the headers.

The rules:

- A request for a name that nobody configured is refused, so that no other site can make a browser read the page under
  its own name (DNS rebinding). An IP address cannot be rebound.
- Pages are only read: everything but GET and HEAD is refused, except the form of the login.
- With a token nothing is shown without it, except the login, its style and `/healthz`. It is compared in constant time.
- Every answer carries a Content-Security-Policy that allows what is served here, and nothing inline.

Cost: some microseconds for each request.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Collection
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nats_scheduler.observe.log import logger
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.web.rendering import address

COOKIE = "nats_scheduler_session"
SESSION_SECONDS = 12 * 60 * 60
"""The time for which a login lasts."""

MAX_TARGET_BYTES = 32 * 1024
"""Longest path with its query; the subject of a schedule has at most some 4 KB, three characters a byte."""

LOGIN = "/login"
OPEN_PATHS = frozenset({LOGIN, "/healthz", "/static/style.css", "/static/icon.svg"})
"""The paths that are answered without the token."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Sessions:
    """Logins: a cookie carries when it ends, and a proof that the token was known; nothing is stored here."""

    def __init__(self, token: str, now: Callable[[], int]) -> None:
        """Accept `token`; `now` returns the time in ns since the Unix epoch."""
        self._token = token.encode()
        self._now = now

    def is_token(self, text: str) -> bool:
        """Return whether a text is the token."""
        return hmac.compare_digest(_digest(text.encode("utf-8", "replace")), _digest(self._token))

    def cookie(self) -> str:
        """Return the value of the cookie of a new login."""
        ends = str(self._now() // SECOND + SESSION_SECONDS)
        return f"{ends}.{self._proof(ends)}"

    def is_cookie(self, text: str) -> bool:
        """Return whether a cookie is of a login that has not ended."""
        ends, _, proof = text.partition(".")
        is_genuine = hmac.compare_digest(proof.encode("utf-8", "replace"), self._proof(ends).encode())
        return is_genuine and ends.isdecimal() and int(ends) * SECOND > self._now()

    def _proof(self, ends: str) -> str:
        return hmac.new(
            self._token, b"nats-scheduler web " + ends.encode("utf-8", "replace"), hashlib.sha256
        ).hexdigest()


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


class Guard:
    """The ASGI application before all others."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], sessions: Sessions | None) -> None:
        """Pass requests for one of `hosts` on; with `sessions` only those that have a login."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        is_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            answer = self._refusal(scope) or self._app
            await answer(scope, receive, send_with_headers)
        except Exception as error:
            logger().error("page_failed", exc_info=error, path=scope["path"][:80])
            if not is_begun:
                failed = PlainTextResponse("internal error; see the log of nats-scheduler web\n", 500)
                await failed(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that no page gets; None for any other."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        if not self._accepts_host(headers):
            expected = "a name of this page is expected: add it to web_hosts"
            return PlainTextResponse(f"unknown host; {expected}\n", 421)
        if len(scope["raw_path"] or b"") + len(scope["query_string"]) > MAX_TARGET_BYTES:
            return PlainTextResponse("the address is too long\n", 414)
        if method not in ("GET", "HEAD") and not (method == "POST" and path == LOGIN and self._sessions):
            return PlainTextResponse("pages are only read\n", 405, {"Allow": "GET, HEAD"})
        if method == "POST" and not _is_from_here(headers):
            return PlainTextResponse("a form of this page is expected\n", 403)
        if self._sessions is None or path in OPEN_PATHS or self._has_login(headers, self._sessions):
            return None
        if headers.get("x-fragment") or "text/html" not in headers.get("accept", ""):
            return PlainTextResponse("a token is expected\n", 401, {"WWW-Authenticate": "Bearer"})
        query = scope["query_string"].decode("latin-1")
        return RedirectResponse(address(LOGIN, next=f"{path}?{query}" if query else path), 303)

    def _accepts_host(self, headers: Headers) -> bool:
        values = headers.getlist("host")
        if len(values) != 1:
            return False
        name = values[0].lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.rpartition(":")[0] or name
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    @staticmethod
    def _has_login(headers: Headers, sessions: Sessions) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and sessions.is_token(token.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and sessions.is_cookie(cookie.value)


def _is_from_here(headers: Headers) -> bool:
    """Return whether a form was sent by a page of this origin, or by no browser."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin", "")
    return origin in ("", "null") or origin.partition("://")[2] == headers.get("host")
