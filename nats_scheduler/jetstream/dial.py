"""Make connections: to the servers of the settings and those that the cluster names, one pass at a time.

Each process draws its own order once, as the client libraries do, so that not all sidecars go to the same server when a
host dies. The server that failed last, or was lost last, comes last.
If a server does not answer, the next one is tried beside it.

The rule: what was asked for is what is used. TLS that was asked for and is not offered ends the attempt before any
secret is sent; an address is never printed with its password.
One call is one pass; the runtime decides when to call again.
"""

import asyncio
import base64
import binascii
import contextlib
import json
import random
import re
import ssl
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nats.errors import UnexpectedEOF

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import ConnectError, CredentialsError
from nats_scheduler.jetstream.wire import WireClient
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.server_addresses import is_websocket, masked_url

# The credentials of the sidecar, read from their files at each connect, so that a secret can be rotated at runtime.
#
# The rule: an error about a file that cannot be used names the file and what was expected in it, before any server is
# asked; a server only answers that it does not accept the credentials. No error contains anything of what a file
# holds. Cost: what reads seeds is imported if there is one, since it takes 1 MB. Limit: only the server knows whether
# it accepts a key, or has revoked it.

MAX_CREDENTIALS_FILE_BYTES = 1024 * 1024
"""Largest file that is read; bundles of certificate authorities are the largest ones in use."""

SEED_LINE = re.compile(rb"^\s*(S[A-Z2-7]{50,80})\s*$", re.M)
JWT_LINE = re.compile(rb"^\s*([\w-]+\.[\w-]+\.[\w-]+)\s*$", re.M)
"""A JWT on a line of its own."""

EXPECTED_SEED = "expected the seed of a user's NKey (SU…)"
EXPECTED_CREDS_FILE = "expected a creds file with a user's JWT and seed, as `nsc generate creds` writes it"


def login_of(settings: ConnectionSettings) -> dict[str, Any]:
    """Return the options with which nats-py logs in; raises `CredentialsError`."""
    if settings.creds is not None:
        text = _read(settings.creds, "creds")
        token, seed = JWT_LINE.search(text), SEED_LINE.search(text)
        if token is None or seed is None:
            raise CredentialsError(f"creds {settings.creds} holds {_what_of(token, seed)}: {EXPECTED_CREDS_FILE}")
        return _by_token(token[1], seed[1], f"creds {settings.creds}")
    if settings.nkey is not None:
        found = SEED_LINE.search(_read(settings.nkey, "nkey"))
        if found is None:
            raise CredentialsError(f"nkey {settings.nkey} holds no seed: {EXPECTED_SEED}")
        _checked(found[1], f"nkey {settings.nkey}")
        return {"nkeys_seed_str": found[1].decode()}
    if settings.user_jwt is not None:
        seed_text = settings.user_seed.get_secret_value() if settings.user_seed else ""
        return _by_token(settings.user_jwt.get_secret_value().encode(), seed_text.encode(), "user_jwt and user_seed")
    return {
        "user": settings.user,
        "password": settings.password.get_secret_value() if settings.password else None,
        "token": settings.token.get_secret_value() if settings.token else None,
    }


def tls_of(settings: ConnectionSettings, server: str) -> ssl.SSLContext | None:
    """Return how to encrypt the connection to a server, None for no encryption; raises `CredentialsError`."""
    asked = settings.tls_first or settings.tls_ca or settings.tls_cert or urlsplit(server).scheme == "tls"
    if not asked:
        return None
    for file, kind in ((settings.tls_ca, "tls_ca"), (settings.tls_cert, "tls_cert"), (settings.tls_key, "tls_key")):
        if file is not None:
            _read(file, kind)
    try:
        context = ssl.create_default_context(cafile=str(settings.tls_ca) if settings.tls_ca else None)
    except (OSError, ValueError) as error:
        raise CredentialsError(f"tls_ca {settings.tls_ca} holds no certificate: {_brief(error)}") from None
    if settings.tls_cert is not None and settings.tls_key is not None:
        try:
            # Without a password here, Python asks for that of an encrypted key on the terminal.
            context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
        except (OSError, ValueError) as error:
            files = f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key}"
            reason = f"are not a certificate and its key, without a passphrase: {_brief(error)}"
            raise CredentialsError(f"{files} {reason}") from None
    return context


def check_credentials(settings: ConnectionSettings) -> None:
    """Read every credentials file that the settings name, and raise `CredentialsError` if one cannot be used."""
    login_of(settings)
    tls_of(settings, settings.servers[0])


def expiry_of(settings: ConnectionSettings) -> str | None:
    """Return when the JWT of the login expires, None if there is none or it does not expire."""
    try:
        callback = login_of(settings).get("user_jwt_cb")
    except CredentialsError:
        return None
    claims = _claims(bytes(callback())) if callback is not None else None
    expires = (claims or {}).get("exp")
    return format_rfc3339(expires * SECOND) if type(expires) is int and 0 < expires < 1 << 40 else None


def _by_token(token: bytes, seed: bytes, where: str) -> dict[str, Any]:
    """Return the callbacks that log in with a JWT; the seed has to be that of the JWT's user."""
    claims = _claims(token)
    if claims is None or not str(claims.get("sub", "")).startswith("U"):
        raise CredentialsError(f"{where}: expected the JWT of a user, and this is none, or is cut short")
    if _checked(seed, where) != claims["sub"]:
        raise CredentialsError(f"{where}: the seed is not that of the JWT's user")

    def sign(nonce: str) -> bytes:
        import nkeys

        return base64.urlsafe_b64encode(nkeys.from_seed(bytearray(seed)).sign(nonce.encode())).rstrip(b"=")

    return {"user_jwt_cb": lambda: bytearray(token), "signature_cb": sign}


def _checked(seed: bytes, where: str) -> str:
    """Return the public key of a user's seed."""
    import nkeys

    try:
        prefix, raw = nkeys.decode_seed(seed)
        is_whole = prefix == nkeys.PREFIX_BYTE_USER and nkeys.encode_seed(bytes(raw), prefix) == seed
        if is_whole:
            return str(nkeys.from_seed(bytearray(seed)).public_key.decode())
    except Exception:  # noqa: S110 - whatever the library raises, this is not a seed
        pass
    raise CredentialsError(f"{where}: the seed is damaged, or cut short: {EXPECTED_SEED}")


def _claims(token: bytes) -> dict[str, Any] | None:
    parts = token.split(b".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
        signature = base64.urlsafe_b64decode(parts[2] + b"=" * (-len(parts[2]) % 4))
    except (IndexError, ValueError, RecursionError, binascii.Error):
        return None
    return claims if isinstance(claims, dict) and len(signature) == SIGNATURE_BYTES else None


SIGNATURE_BYTES = 64


def _read(path: Path, kind: str) -> bytes:
    """Return what a file holds; only an ordinary file is opened, since a pipe would block."""
    try:
        if path.is_dir():
            raise CredentialsError(f"{kind} {path} is a folder: expected a file")
        if path.exists() and not path.is_file():
            raise CredentialsError(f"{kind} {path} is not an ordinary file")
        with path.open("rb") as file:
            text = file.read(MAX_CREDENTIALS_FILE_BYTES + 1)
    except OSError as error:
        raise CredentialsError(f"{kind} {path} cannot be read: {error.strerror or error}") from None
    if len(text) > MAX_CREDENTIALS_FILE_BYTES:
        raise CredentialsError(f"{kind} {path} is larger than {MAX_CREDENTIALS_FILE_BYTES} bytes")
    if not text.strip():
        raise CredentialsError(f"{kind} {path} is empty")
    return text


def _what_of(token: object, seed: object) -> str:
    return "neither JWT nor seed" if token is None and seed is None else "no JWT" if token is None else "no seed"


def _brief(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)


LIBRARY_PING_INTERVAL_SECONDS = 86_400.0
"""The connection pings the server itself (`connection.PING_INTERVAL_SECONDS`)."""

NEXT_SERVER_DELAY_SECONDS = 0.5
"""Wait before the next server is tried beside one that has not answered: a dead host sends nothing. *Live*: 3 s."""

CLOSE_DEADLINE_SECONDS = 0.25
"""Longest wait for a failed connection to close."""


class Dialer:
    """Connects to one of several servers."""

    def __init__(self, settings: ConnectionSettings, inbox_name: str = "") -> None:
        """Connect as the settings say; the inboxes begin with the settings' prefix and `inbox_name`."""
        self._inbox_name = inbox_name
        self._settings = settings
        self._discovered: list[str] = []
        self._drawn: dict[str, float] = {}
        """The random number of each server, by which they are ordered."""
        self._failures: dict[str, int] = {}
        """The number of the last failure of each server that was not reached since."""
        self._count = 0
        self._reached = ""
        if any(is_websocket(server) for server in settings.servers):
            raise ConnectError("ws:// and wss:// are not served by the sidecar: name a nats:// or tls:// address")

    async def dial(self) -> Connection:
        """Try every known server once and return the first connection; raises `ConnectError` with each reason.

        Raises `CredentialsError`, without asking any server, if the credentials cannot be used.
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
                    except ConnectError as error:
                        self._failed(server)
                        failures.append(f"{masked_url(server)}: {error}")
        finally:
            await _ended(list(dialling))
        raise ConnectError("; ".join(failures))

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
            return Connection(client, self._settings.inbox_prefix, f"{self._inbox_name}{uuid.uuid4().hex}")
        except asyncio.CancelledError:
            await _abandon(client)
            raise
        except Exception as error:  # the library raises many types, for instance over unusable files
            await _abandon(client)
            raise ConnectError(self._reason(errors[-1] if errors else error, client)) from error

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
        return f"{text} at login: the server asks for authorization, and does not accept these credentials"
    return text
