"""The addresses of NATS servers: parsed as the `nats` CLI parses them, printed without their secrets.

The text between `//` and `@`, and all that follows the host and port, never appears in a log line, a repr or an error:
a server takes no secret from there, but people write one there. Addresses are plain strings and of no URL class,
because the client takes strings; code that prints one calls `masked_url`.

Limit: plain TCP and TLS; the sidecar does not support websockets.
"""

import re
from urllib.parse import urlsplit

SCHEMES = ("nats", "tls")
DEFAULT_PORT = 4222
"""The port of an address without one."""

ADDRESS_MASK = "***"
"""The text that is shown for a secret in an address."""

EXPECTED_URL = "an address such as 'nats://127.0.0.1:4222' (nats or tls, no websocket; a port from 1 to 65535)"

_NEXT_ADDRESS = re.compile(r",(?=\s*[A-Za-z][\w+.-]*://)")
_ENDS_WITH_SCHEME = re.compile(r"(?:^|\s)[A-Za-z][\w+.-]*\Z")
_MARK = re.compile(r"[/?#]")
"""The characters that end a host and its port."""

_BARE = re.compile(r"[^/?#\s]*[?#]|[^/?#\s]*:\d+/|\w+:/+[^/?#]*[/?#]")
"""The beginning of an address without a scheme, or with a wrong one, up to what may hold a secret; of no path."""


def split_servers(text: str) -> tuple[str, ...]:
    """Split a comma-separated list as `nats --server` does, without the blanks around each part."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_server(text: str) -> str | None:
    """Return the address with its scheme and port filled in; None if the text is not an address."""
    url = text.strip() if "://" in text else f"nats://{text.strip()}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or re.search(r"\s", url):
        return None
    if port is None:
        netloc = parts.netloc.removesuffix(":")
        return parts._replace(netloc=f"{netloc}:{DEFAULT_PORT}").geturl()
    return url


def is_websocket(url: str) -> bool:
    """Return whether an address is that of a websocket."""
    return url.partition("://")[0] in ("ws", "wss")


def masked_url(text: str) -> str:
    """Return an address, or a comma-separated list, with its password or token replaced by `***`.

    A user without a password is a token for the server, so it is masked too; and so is a path, a query or a fragment.
    A secret may contain anything, also blanks, commas and marks: what may be a part of one is masked.
    """
    return ",".join(map(_masked_address, _NEXT_ADDRESS.split(text)))


def _masked_address(text: str) -> str:
    before, separator, address = text.partition("://")
    if separator:
        return before + separator + _masked(address) if _ENDS_WITH_SCHEME.search(before) else ADDRESS_MASK
    if "@" in text:
        return _masked(text)
    bare = _BARE.match(text)
    return text if bare is None or bare.end() == len(text) else bare[0] + ADDRESS_MASK


def _masked(address: str) -> str:
    """Return an address without a scheme, masked."""
    userinfo, at, host = address.rpartition("@")
    if _MARK.search(userinfo):
        return ADDRESS_MASK  # a password with a mark, or a query with an `@`: nothing shows where the host is
    mark = _MARK.search(host)
    if mark is not None and mark.end() < len(host):
        host = host[: mark.end()] + ADDRESS_MASK
    user, colon, _password = userinfo.partition(":")
    return (f"{user}:" if colon else "") + (ADDRESS_MASK + at if at else "") + host
