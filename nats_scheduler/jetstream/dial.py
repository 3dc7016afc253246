"""Make connections: the settings' servers and those the cluster told us about, one pass at a time.

The rule: what was asked for is what is used. TLS that was asked for and is not offered ends the attempt before anything
secret is sent; an address is never printed with its password.
Whoever wants to try again calls again: waiting between passes is the runtime's business.
"""

import asyncio
import base64
import contextlib
import random
import ssl
import uuid
from typing import Any
from urllib.parse import urlsplit

import nkeys
from nats.errors import UnexpectedEOF

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import ConnectError
from nats_scheduler.jetstream.wire import WireClient
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.server_urls import is_websocket, masked_url

PING_INTERVAL_SECONDS = 0.5
"""How often the server is asked for a sign of life; any bytes of it are one."""

MAX_OUTSTANDING_PINGS = 3
"""A connection that stays silent over so many is dead at the next, after 2 s: *Live* leaves 3 s."""

ABANDON_SECONDS = 0.25
"""Longest wait for the end of a connection that failed."""


class Dialer:
    """Connects to one of several servers."""

    def __init__(self, settings: ConnectionSettings, inbox_name: str = "") -> None:
        """Connect as the settings say; the inboxes begin with `inbox_name`, behind the settings' prefix."""
        self._inbox_name = inbox_name
        self._settings = settings
        self._discovered: list[str] = []
        if any(is_websocket(server) for server in settings.servers):
            raise ConnectError("ws:// and wss:// are not served by the sidecar: name a nats:// or tls:// address")

    async def dial(self) -> Connection:
        """Try every known server once and return the first connection; raises `ConnectError` with each reason."""
        failures = []
        for server in self._servers():
            try:
                return await self._dial_one(server)
            except ConnectError as error:
                failures.append(f"{masked_url(server)}: {error}")
        raise ConnectError("; ".join(failures))

    def _servers(self) -> list[str]:
        configured = list(self._settings.servers)
        others = [server for server in self._discovered if server not in configured]
        random.shuffle(others)
        return configured + others

    async def _dial_one(self, server: str) -> Connection:
        client = WireClient()
        errors: list[Exception] = []

        async def remember(error: Exception) -> None:
            errors.append(error)

        options = self._options(server)
        client.must_encrypt = options["tls"] is not None
        try:
            async with asyncio.timeout(2 * self._settings.connect_timeout_seconds):
                await client.connect(server, error_cb=remember, **options)
        except Exception as error:  # what the library raises over files that hold something else is beyond listing
            await _abandon(client)
            raise ConnectError(_reason(errors[-1] if errors else error, client)) from error
        self._discovered = _discovered(client, server)
        return Connection(client, self._settings.inbox_prefix, f"{self._inbox_name}{uuid.uuid4().hex}")

    def _options(self, server: str) -> dict[str, Any]:
        settings = self._settings
        options: dict[str, Any] = {
            "name": settings.connection_name,
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": settings.connect_timeout_seconds,
            "ping_interval": PING_INTERVAL_SECONDS,
            "max_outstanding_pings": MAX_OUTSTANDING_PINGS,
            "tls": self._tls(server),
            "tls_handshake_first": settings.tls_first,
            "inbox_prefix": settings.inbox_prefix,
            "user": settings.user,
            "password": settings.password.get_secret_value() if settings.password else None,
            "token": settings.token.get_secret_value() if settings.token else None,
            "user_credentials": str(settings.creds) if settings.creds else None,
            "nkeys_seed": str(settings.nkey) if settings.nkey else None,
        }
        if settings.user_jwt is not None:
            options |= _jwt_callbacks(settings)
        return options

    def _tls(self, server: str) -> ssl.SSLContext | None:
        settings = self._settings
        asked = settings.tls_first or settings.tls_ca or settings.tls_cert or urlsplit(server).scheme == "tls"
        if not asked:
            return None
        try:
            context = ssl.create_default_context(cafile=str(settings.tls_ca) if settings.tls_ca else None)
            if settings.tls_cert is not None and settings.tls_key is not None:
                context.load_cert_chain(settings.tls_cert, settings.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise ConnectError(f"the TLS files cannot be used: {error}") from error
        return context


async def _abandon(client: WireClient) -> None:
    """Let go of a connection that never came to be.

    A socket whose TLS handshake failed is never reported closed, so that waiting for it has to end.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ABANDON_SECONDS):
            await client.close()


def _jwt_callbacks(settings: ConnectionSettings) -> dict[str, Any]:
    assert settings.user_jwt is not None
    token = settings.user_jwt.get_secret_value()
    seed = settings.user_seed.get_secret_value() if settings.user_seed else ""

    def sign(nonce: str) -> bytes:
        pair = nkeys.from_seed(bytearray(seed.encode()))
        return base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=")

    return {"user_jwt_cb": lambda: bytearray(token.encode()), "signature_cb": sign}


def _discovered(client: WireClient, server: str) -> list[str]:
    """Return what the server says of its cluster, in place of what was known before, so that the dead are forgotten."""
    scheme = urlsplit(server).scheme or "nats"
    return [f"{scheme}://{address}" for address in client.server_info.get("connect_urls") or []]


def _reason(error: Exception, client: WireClient) -> str:
    text = (str(error) or type(error).__name__).removeprefix("nats: ")
    hung_up = isinstance(error, ConnectionError | UnexpectedEOF)
    # The server says what it minds and hangs up; which of the two arrives first is a matter of luck.
    if hung_up and client.server_info.get("tls_verify"):
        return f"{text} at login: the server asks for a certificate of the client, and does not accept ours"
    if hung_up and client.server_info.get("auth_required"):
        return f"{text} at login: the server asks for authorization, and does not accept ours"
    if isinstance(error, TypeError | IndexError):
        return f"the file of credentials holds none ({text})"
    return text
