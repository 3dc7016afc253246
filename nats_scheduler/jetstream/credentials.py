"""The credentials of the sidecar, read from their files at each connect, so that a secret can be rotated at runtime.

The rules: an error about a file that cannot be used names the file and what was expected in it, before any server is
asked; a server only answers that it does not accept the credentials. No error contains anything of what a file holds.
What reads seeds is imported only if there is one, since it takes 1 MB.
Limit: only the server knows whether it accepts a key, or has revoked it.
"""

import base64
import binascii
import json
import re
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nats_scheduler.control.errors import NotConnectedError
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.connection_settings import ConnectionSettings

MAX_CREDENTIALS_FILE_BYTES = 1024 * 1024
"""Largest file that is read; bundles of certificate authorities are the largest ones in use."""

SEED_LINE = re.compile(rb"^\s*(S[A-Z2-7]{50,80})\s*$", re.M)
JWT_LINE = re.compile(rb"^\s*([\w-]+\.[\w-]+\.[\w-]+)\s*$", re.M)
"""A JWT on a line of its own."""

EXPECTED_SEED = "expected the seed of a user's NKey (SU…)"
EXPECTED_CREDS_FILE = "expected a creds file with a user's JWT and seed, as `nsc generate creds` writes it"


def login_of(settings: ConnectionSettings) -> dict[str, Any]:
    """Return the options with which nats-py logs in; raises `NotConnectedError`."""
    if settings.creds is not None:
        text = _read(settings.creds, "creds")
        token, seed = JWT_LINE.search(text), SEED_LINE.search(text)
        if token is None or seed is None:
            raise NotConnectedError(f"creds {settings.creds} holds {_what_of(token, seed)}: {EXPECTED_CREDS_FILE}")
        return _by_token(token[1], seed[1], f"creds {settings.creds}")
    if settings.nkey is not None:
        found = SEED_LINE.search(_read(settings.nkey, "nkey"))
        if found is None:
            raise NotConnectedError(f"nkey {settings.nkey} holds no seed: {EXPECTED_SEED}")
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
    """Return how to encrypt the connection to a server, None for no encryption; raises `NotConnectedError`."""
    asked = settings.tls_first or settings.tls_ca or settings.tls_cert or urlsplit(server).scheme == "tls"
    if not asked:
        return None
    for file, kind in ((settings.tls_ca, "tls_ca"), (settings.tls_cert, "tls_cert"), (settings.tls_key, "tls_key")):
        if file is not None:
            _read(file, kind)
    try:
        context = ssl.create_default_context(cafile=str(settings.tls_ca) if settings.tls_ca else None)
    except (OSError, ValueError) as error:
        raise NotConnectedError(f"tls_ca {settings.tls_ca} holds no certificate: {_brief(error)}") from None
    if settings.tls_cert is not None and settings.tls_key is not None:
        try:
            # Without a password here, Python asks for that of an encrypted key on the terminal.
            context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
        except (OSError, ValueError) as error:
            files = f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key}"
            reason = f"are not a certificate and its key, without a passphrase: {_brief(error)}"
            raise NotConnectedError(f"{files} {reason}") from None
    return context


def check_credentials(settings: ConnectionSettings) -> None:
    """Read every credentials file that the settings name, and raise `NotConnectedError` if one cannot be used."""
    login_of(settings)
    tls_of(settings, settings.servers[0])


def expiry_of(settings: ConnectionSettings) -> str | None:
    """Return when the JWT of the login expires, None if there is none or it does not expire."""
    try:
        callback = login_of(settings).get("user_jwt_cb")
    except NotConnectedError:
        return None
    claims = _claims(bytes(callback())) if callback is not None else None
    expires = (claims or {}).get("exp")
    return format_rfc3339(expires * SECOND) if type(expires) is int and 0 < expires < 1 << 40 else None


def _by_token(token: bytes, seed: bytes, where: str) -> dict[str, Any]:
    """Return the callbacks that log in with a JWT; the seed has to be that of the JWT's user."""
    claims = _claims(token)
    if claims is None or not str(claims.get("sub", "")).startswith("U"):
        raise NotConnectedError(f"{where}: expected the JWT of a user, and this is none, or is cut short")
    if _checked(seed, where) != claims["sub"]:
        raise NotConnectedError(f"{where}: the seed is not that of the JWT's user")

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
    raise NotConnectedError(f"{where}: the seed is damaged, or cut short: {EXPECTED_SEED}")


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
            raise NotConnectedError(f"{kind} {path} is a folder: expected a file")
        if path.exists() and not path.is_file():
            raise NotConnectedError(f"{kind} {path} is not an ordinary file")
        with path.open("rb") as file:
            text = file.read(MAX_CREDENTIALS_FILE_BYTES + 1)
    except OSError as error:
        raise NotConnectedError(f"{kind} {path} cannot be read: {error.strerror or error}") from None
    if len(text) > MAX_CREDENTIALS_FILE_BYTES:
        raise NotConnectedError(f"{kind} {path} is larger than {MAX_CREDENTIALS_FILE_BYTES} bytes")
    if not text.strip():
        raise NotConnectedError(f"{kind} {path} is empty")
    return text


def _what_of(token: object, seed: object) -> str:
    return "neither JWT nor seed" if token is None and seed is None else "no JWT" if token is None else "no seed"


def _brief(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
