"""Make connections: to the servers of the settings and those that the cluster names, one pass at a time.

Each process draws its own order once, as the client libraries do, so that not all sidecars go to the same server when a
host dies. The server that failed last, or was lost last, comes last.
If a server does not answer, the next one is tried beside it.

The rule: what was asked for is what is used. TLS that was asked for and is not offered ends the attempt before any
secret is sent; an address is never printed with its password.
One call is one pass; the runtime decides when to call again.
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from nats.errors import UnexpectedEOF

from nats_scheduler.control.errors import NotConnectedError
from nats_scheduler.jetstream.connection import MAX_OUTSTANDING_PINGS, MAX_OUTSTANDING_PINGS_OF_A_COMMAND, Connection
from nats_scheduler.jetstream.credentials import expiry_of, login_of, tls_of
from nats_scheduler.jetstream.wire import WireClient
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.server_addresses import is_websocket, masked_url

LIBRARY_PING_INTERVAL_SECONDS = 86_400.0
"""The connection pings the server itself (`connection.PING_INTERVAL_SECONDS`)."""

NEXT_SERVER_DELAY_SECONDS = 0.5
"""Wait before the next server is tried beside one that has not answered: a dead host sends nothing. *Live*: 3 s."""

CLOSE_DEADLINE_SECONDS = 0.25
"""Longest wait for a failed connection to close."""


async def dial_for_a_command(settings: ConnectionSettings) -> Connection:
    """Connect for who has no fire to send, and waits longer for a silent server; raises `NotConnectedError`."""
    return await Dialer(settings, max_outstanding_pings=MAX_OUTSTANDING_PINGS_OF_A_COMMAND).dial()


class Dialer:
    """Connects to one of several servers."""

    def __init__(
        self, settings: ConnectionSettings, inbox_name: str = "", max_outstanding_pings: int = MAX_OUTSTANDING_PINGS
    ) -> None:
        """Connect as the settings say; the inboxes begin with the settings' prefix and `inbox_name`."""
        self._inbox_name = inbox_name
        self._max_outstanding_pings = max_outstanding_pings
        self._settings = settings
        self._discovered: list[str] = []
        self._drawn: dict[str, float] = {}
        """The random number of each server, by which they are ordered."""
        self._failures: dict[str, int] = {}
        """The number of the last failure of each server that was not reached since."""
        self._count = 0
        self._reached = ""
        if any(is_websocket(server) for server in settings.servers):
            raise NotConnectedError("ws:// and wss:// are not served by the sidecar: name a nats:// or tls:// address")

    async def dial(self) -> Connection:
        """Try every known server once and return the first connection; raises `NotConnectedError` with each reason.

        Raises `NotConnectedError`, without asking any server, if the credentials cannot be used.
        """
        login = login_of(self._settings)
        if self._reached:
            self._failed(self._reached)
            self._reached = ""
        waiting, dialling, failures = self._servers(), dict[asyncio.Task[Connection], str](), list[str]()
        try:
            while waiting or dialling:
                if waiting:
                    server = waiting.pop(0)
                    dialling[asyncio.create_task(self._dial_one(server, login))] = server
                patience = NEXT_SERVER_DELAY_SECONDS if waiting else None
                done, _ = await asyncio.wait(dialling, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    server = dialling.pop(task)
                    try:
                        return self._reach(server, task.result())
                    except NotConnectedError as error:
                        self._failed(server)
                        failures.append(f"{masked_url(server)}: {error}")
        finally:
            await _ended(list(dialling))
        raise NotConnectedError("; ".join(failures))

    def _servers(self) -> list[str]:
        """Return the servers in the order in which they are tried: those of the settings before the discovered ones."""
        configured = list(dict.fromkeys(self._settings.servers))
        known = configured + [server for server in self._discovered if server not in configured]
        self._drawn = {server: self._drawn.get(server) or random.random() for server in known}  # noqa: S311
        self._failures = {server: number for server, number in self._failures.items() if server in self._drawn}
        return sorted(known, key=lambda one: (self._failures.get(one, 0), one not in configured, self._drawn[one]))

    def _failed(self, server: str) -> None:
        self._count += 1
        self._failures[server] = self._count

    def _reach(self, server: str, connection: Connection) -> Connection:
        self._failures.pop(server, None)
        self._reached = server
        self._discovered = _discovered(connection.known_addresses, server)
        return connection

    async def _dial_one(self, server: str, login: dict[str, Any]) -> Connection:
        client = WireClient()
        errors: list[Exception] = []

        async def remember(error: Exception) -> None:
            errors.append(error)

        options = {**self._options(server), **login}
        client.must_encrypt = options["tls"] is not None
        try:
            async with asyncio.timeout(2 * self._settings.connect_timeout_seconds):
                await client.connect(server, error_cb=remember, **options)
            unique = f"{self._inbox_name}{uuid.uuid4().hex}"
            return Connection(client, self._settings.inbox_prefix, unique, self._max_outstanding_pings)
        except asyncio.CancelledError:
            await _abandon(client)
            raise
        except Exception as error:  # the library raises many types, for instance over unusable files
            await _abandon(client)
            raise NotConnectedError(self._reason(errors[-1] if errors else error, client)) from error

    def _options(self, server: str) -> dict[str, Any]:
        settings = self._settings
        return {
            "name": settings.connection_name,
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": settings.connect_timeout_seconds,
            "ping_interval": LIBRARY_PING_INTERVAL_SECONDS,
            "tls": tls_of(settings, server),
            "tls_handshake_first": settings.tls_first,
            "inbox_prefix": settings.inbox_prefix,
        }

    def _reason(self, error: Exception, client: WireClient) -> str:
        reason = _reason(error, client)
        expiry = expiry_of(self._settings) if client.server_info.get("auth_required") else None
        return f"{reason} (the JWT expires at {expiry})" if expiry else reason


async def _abandon(client: WireClient) -> None:
    """Close a connection that was not completed.

    nats-py never reports a socket closed whose TLS handshake failed, so the wait has a deadline. If the connection was
    not begun, the library raises errors of any type.
    """
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_DEADLINE_SECONDS):
            await client.close()


async def _ended(tasks: Sequence[asyncio.Task[Connection]]) -> None:
    """Cancel the attempts that are not needed any more, and close the connections that they made meanwhile."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Connection):
            await outcome.close()


def _discovered(addresses: Sequence[str], server: str) -> list[str]:
    """Return the servers of the cluster as this server names them; they replace the earlier ones, which may be gone."""
    scheme = urlsplit(server).scheme or "nats"
    return [f"{scheme}://{address}" for address in addresses]


def _reason(error: Exception, client: WireClient) -> str:
    text = (str(error) or type(error).__name__).removeprefix("nats: ")
    hung_up = isinstance(error, ConnectionError | UnexpectedEOF)
    # The server sends its reason and closes; the close may arrive before the reason.
    if hung_up and client.server_info.get("tls_verify"):
        return f"{text} at login: the server asks for a client certificate, and does not accept this one"
    if hung_up and client.server_info.get("auth_required"):
        return (
            f"{text} at login: the server asks for authorization, and does not accept these credentials, "
            "or waited for them in vain"
        )
    return text
