"""The address on which pages are served: a socket that listens there, or a sentence about why that is impossible.

The rule: the error names the two settings that the operator has to change.
Cost: none. Limit: of several addresses of a host name, the first one is used.
"""

import contextlib
import ipaddress
import socket

from nats_scheduler.settings.problems import SettingsError

LISTEN_EXPECTATION = "expected an address or host name of this machine, and a port that no other program uses"

BACKLOG = 128
"""Connections that wait to be accepted."""


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address."""
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def bound(address: str, port: int, settings: str) -> socket.socket:
    """Return a socket that listens; raises `SettingsError`, which names `<settings>_address` and `<settings>_port`."""
    try:
        family, *_, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )[0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _listen_error(address, port, settings, error) from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind(where)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise _listen_error(address, port, settings, error) from None
    return found


def _listen_error(address: str, port: int, settings: str, error: Exception) -> SettingsError:
    reason = getattr(error, "strerror", None) or str(error)
    return SettingsError(
        f"cannot listen on {settings}_address {address} with {settings}_port {port}: {reason}; {LISTEN_EXPECTATION}"
    )


def url_of(listening: socket.socket) -> str:
    """Return the URL of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
