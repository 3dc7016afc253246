"""The checks before every page: the name that the browser asked for, the method, the size, the token; and the headers.

The rules:

- A request for a name that nobody configured is refused, so that no other site can make a browser read the page under
  its own name (DNS rebinding). An IP address cannot be rebound. A name that a trusted proxy forwards has to be one too,
  beside that of the request: a proxy may pass on what a browser wrote there.
- Pages are only read: everything but GET and HEAD is refused, except the forms of the login and of the reader's time
  zone, and the pages that change schedules, where those are on.
- With a token nothing is shown without it, except the login, its style and `/healthz`. It is compared in constant time.
- Who sends wrong tokens has to wait (`web.attempts`), whether a form or a program sends them.
- Who changes schedules has a session of another token, or is named by a trusted proxy. A form is bound to them.
- Every answer carries a Content-Security-Policy that allows what is served here, and nothing inline.

Cost: some microseconds for each request.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nats_scheduler.control.changes import MAX_AUTHOR_CHARS
from nats_scheduler.observe.log import logger
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.web.attempts import Attempts, is_among
from nats_scheduler.web.proxied import Proxied
from nats_scheduler.web.rendering import address

COOKIE = "nats_scheduler_session"
CONTROL_COOKIE = "nats_scheduler_control"
SESSION_SECONDS = 12 * 60 * 60
"""The time for which a login lasts."""

MAX_TARGET_BYTES = 32 * 1024
"""Longest path with its query; the subject of a schedule has at most some 4 KB, three characters a byte."""

LOGIN, ZONE = "/login", "/zone"
CHANGE, EDIT, ADD, CHANGED = "/change", "/edit", "/add", "/changed"
FORM_PATHS = frozenset({CHANGE, EDIT, ADD})
"""The pages that change schedules."""

CONTROL_PATHS = FORM_PATHS | {CHANGED}
"""Those, and the one that shows what was done."""

OPEN_PATHS = frozenset({LOGIN, "/healthz", "/static/style.css", "/static/icon.svg"})
"""The paths that are answered without the token."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none a browser sends `Origin: null`, and not where a form comes from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Sessions:
    """Logins: a cookie carries when it ends, and a proof that the token was known; nothing is stored here."""

    def __init__(self, token: str, now: Callable[[], int], name: str = COOKIE) -> None:
        """Accept `token`, for cookies called `name`; `now` returns the time in ns since the Unix epoch."""
        self.name = name
        self._token = token.encode()
        self._now = now

    def is_token(self, text: str) -> bool:
        """Return whether a text is the token."""
        return hmac.compare_digest(_digest(text.encode("utf-8", "replace")), _digest(self._token))

    def cookie(self) -> str:
        """Return the value of the cookie of a new login, which no other login has."""
        login = f"{self._now() // SECOND + SESSION_SECONDS}.{secrets.token_hex(8)}"
        return f"{login}.{_proof(self._token, login)}"

    def is_cookie(self, text: str) -> bool:
        """Return whether a cookie is of a login that has not ended."""
        login, _, proof = text.rpartition(".")
        ends = login.partition(".")[0]
        is_genuine = hmac.compare_digest(proof.encode("utf-8", "replace"), _proof(self._token, login).encode())
        return is_genuine and ends.isdecimal() and int(ends) * SECOND > self._now()

    def login_of(self, headers: Headers) -> str | None:
        """Return the cookie of a login, or None; one that a program sends as a bearer is "" ."""
        token = bearer_of(headers)
        if token is not None and self.is_token(token):
            return ""
        return self.cookie_of(headers)

    def cookie_of(self, headers: Headers) -> str | None:
        """Return the cookie of a login, or None."""
        # Behind a cookie of another program on this host that is not as it expects, SimpleCookie finds none.
        cookies = "; ".join(headers.getlist("cookie")).encode("latin-1")
        cookie = HTTPConnection({"type": "http", "headers": [(b"cookie", cookies)]}).cookies.get(self.name, "")
        return cookie if self.is_cookie(cookie) else None


def bearer_of(headers: Headers) -> str | None:
    """Return the token that a program sends, None if it sends none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


@dataclass(frozen=True, slots=True)
class Controller:
    """One who may change schedules."""

    login: str
    """What their forms are bound to."""
    name: str
    """As a proxy names them; "" if they have to give their name."""


@dataclass(frozen=True, slots=True)
class Controllers:
    """Who may change schedules: those with a login of the token for it, and those whom a trusted proxy names."""

    key: bytes
    """What forms are proven with."""
    sessions: Sessions | None = None
    header: str = ""
    """The header in which a proxy names its user; "" if none does."""
    proxies: Collection[IPv4Network | IPv6Network] = ()
    rule: str | None = None
    """The rule of the sidecars under which changes are asked for; None for all schedules."""

    def who(self, scope: Scope) -> Controller | None:
        """Return who sends a request, None if they may only read.

        A proxy's header counts if it is there once: a browser may have sent one too.
        """
        if named := self.named(scope):
            return named
        login = None if self.sessions is None else self.sessions.login_of(Headers(scope=scope))
        return None if login is None else Controller(f"login {login}", "")

    def named(self, scope: Scope) -> Controller | None:
        """Return whom a proxy names, None if none does."""
        names = [
            one.encode("latin-1").decode("utf-8", "replace").strip()
            for one in Headers(scope=scope).getlist(self.header)
        ]
        if len(names) == 1 and names[0] and is_among((scope["client"] or [""])[0], self.proxies):
            return Controller(f"user {names[0]}", names[0][:MAX_AUTHOR_CHARS])
        return None

    def why_not(self, scope: Scope) -> str:
        """Return what is expected of one who may only read, as a sentence."""
        expected = [] if self.sessions is None else ["a login with the token of web_control_token"]
        if self.header:
            peer = (scope["client"] or ["unknown"])[0]
            expected.append(f"one header {self.header} from an address of web_trusted_proxies (this came from {peer})")
        return f"changes of schedules need {', or '.join(expected)}; the token of readers is not enough"

    def form_proof(self, who: Controller) -> str:
        """Return the text that a form contains: no other site knows it, and nobody else's forms have it."""
        return _proof(self.key, f"form {who.login}")

    def is_form_proof(self, who: Controller, text: str) -> bool:
        """Return whether a form is one that was made for this person."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.form_proof(who).encode())


def _proof(key: bytes, text: str) -> str:
    return hmac.new(key, b"nats-scheduler web " + text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


class RequestGuard:
    """The ASGI application before all others."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        sessions: Sessions | None,
        controllers: Controllers | None,
        attempts: Attempts,
        proxied: Proxied,
    ) -> None:
        """Pass requests for one of `hosts` on; with `sessions` only those that have a login.

        Without `controllers` nothing can be changed.
        """
        self._attempts = attempts
        self._proxied = proxied
        by_token = None if controllers is None else controllers.sessions
        self._all_sessions = [one for one in (sessions, by_token) if one is not None]
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._sessions = sessions
        self._controllers = controllers
        self._posts = {ZONE} | (FORM_PATHS if controllers else frozenset[str]())
        if sessions or (controllers and controllers.sessions):
            self._posts |= {LOGIN}

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
                if headers.get("location", "").startswith("/"):
                    headers["location"] = f"{self._proxied.prefix}{headers['location']}"
            await send(message)

        host = self._proxied.restore(scope)
        try:
            answer = await self._wrong_bearer(scope) or self._refusal(scope, host) or self._app
            await answer(scope, receive, send_with_headers)
        except Exception as error:
            logger().error("page_failed", exc_info=error, path=scope["path"][:80])
            if not is_begun:
                failed = PlainTextResponse("internal error; see the log of nats-scheduler web\n", 500)
                await failed(scope, receive, send_with_headers)

    async def _wrong_bearer(self, scope: Scope) -> Response | None:
        """Return the answer to a program that has sent too many wrong tokens; count one that is wrong."""
        headers = Headers(scope=scope)
        token = bearer_of(headers)
        closed = [one for one in self._all_sessions if one.cookie_of(headers) is None]
        if token is None or not closed or (self._controllers is not None and self._controllers.named(scope)):
            return None  # a proxy that knows its users may send a token of its own with each request
        if wait := self._attempts.seconds(scope):
            if len(closed) < len(self._all_sessions):  # who is logged in goes on reading
                scope["headers"] = [one for one in scope["headers"] if one[0] != b"authorization"]
                return None
            return PlainTextResponse(f"{too_many_attempts(wait)}\n", 429, {"Retry-After": str(wait)})
        if not any(one.is_token(token) for one in self._all_sessions):
            await self._attempts.failed(scope)
        return None

    def _refusal(self, scope: Scope, forwarded_host: str | None) -> Response | None:
        """Return the answer to a request that no page gets; None for any other."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        hosts = headers.getlist("host")
        asked_for = hosts[:1] if forwarded_host is None else [*hosts, forwarded_host]
        if len(hosts) != 1 or not all(map(self._accepts_host, asked_for)):
            expected = "a name of this page is expected: add it to web_hosts"
            return PlainTextResponse(f"unknown host; {expected}\n", 421)
        if len(scope["raw_path"] or b"") + len(scope["query_string"]) > MAX_TARGET_BYTES:
            return PlainTextResponse("the address is too long\n", 414)
        if method not in ("GET", "HEAD") and not (method == "POST" and path in self._posts):
            return PlainTextResponse("pages are only read\n", 405, {"Allow": "GET, HEAD"})
        if method == "POST" and not _is_from_here(headers, asked_for[-1]):
            return PlainTextResponse(
                "a form of this page is expected: this one was sent by another site, or a proxy has changed its Host\n",
                403,
            )
        who = None if self._controllers is None else self._controllers.who(scope)
        scope.setdefault("state", {})["who"] = who
        if who is None and self._controllers is not None and path in CONTROL_PATHS:
            if method == "POST" or self._controllers.sessions is None:
                return PlainTextResponse(f"{self._controllers.why_not(scope)}\n", 403)
        elif who or self._sessions is None or path in OPEN_PATHS or self._sessions.login_of(headers) is not None:
            return None
        if headers.get("x-fragment") or "text/html" not in headers.get("accept", ""):
            return PlainTextResponse("a token is expected\n", 401, {"WWW-Authenticate": "Bearer"})
        query = scope["query_string"].decode("latin-1")
        return RedirectResponse(address(LOGIN, next=f"{path}?{query}" if query else path), 303)

    def _accepts_host(self, host: str) -> bool:
        name = host.lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.rpartition(":")[0] or name
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def too_many_attempts(wait: int) -> str:
    """Return why a token is not compared now, with the wait in seconds."""
    return f"too many wrong tokens came from this address: try again in {wait} s"


def _is_from_here(headers: Headers, host: str) -> bool:
    """Return whether a form was sent by a page of this host, or by no browser.

    What a browser says of the sender itself counts first: no page can forge it, and a proxy may have changed `Host`.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site in ("same-origin", "none")
    return origin is None or origin.partition("://")[2] == host
