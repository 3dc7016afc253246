"""Wrong tokens: who sends them has to wait, and each is logged with the address that it came from, not with the token.

The rules:

- An address has `FREE_ATTEMPTS` wrong tokens; after that it waits before each further one, twice as long each time.
  What it sends meanwhile is not compared, so a right token does not open anything either. Other addresses do not wait,
  nor does who is logged in.
- If there are many wrong tokens from all addresses together, each is answered late. A right one is answered at once.
- The address is that of the connection; if that is one of the trusted proxies, it is the last one in `X-Forwarded-For`
  that is none of them. From anybody else that header is ignored.
- Of IPv6 the first 64 bits count: who has one such address has all of them.

Cost: some microseconds for each token. Memory: `MAX_ADDRESSES` numbers; the address with the oldest wrong token is
forgotten first.
"""

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any

from nats_scheduler.observe.log import Allowance, logger

FREE_ATTEMPTS = 10
"""Wrong tokens of an address after which it has to wait."""

FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 1.0, 300.0
"""The wait after that, which doubles with each further one, and its limit."""

FORGOTTEN_AFTER_SECONDS = 900.0
"""An address without a wrong token for so long begins anew."""

MAX_ADDRESSES = 4_096
"""Addresses that are remembered."""

FREE_ATTEMPTS_OF_ALL, ATTEMPTS_OF_ALL_PER_SECOND = 100.0, 1.0
"""Wrong tokens of all addresses after which their answers are late, and how many of them are forgotten in a second."""

LATE_SECONDS = 2.0
"""How late they are: with the 128 connections of the listener, at most 64 wrong tokens are tried in a second."""

MAX_FORWARDED = 16
"""Addresses of `X-Forwarded-For` that are read, from the last one on."""

MAX_SHOWN_CHARS = 64

Proxies = Collection[IPv4Network | IPv6Network]

Scope = Mapping[str, Any]
"""A request, as ASGI describes it."""


@dataclass(slots=True)
class _Address:
    """The wrong tokens of one address."""

    failures: int = 0
    last: float = 0.0
    """When the last one came (s); until `free_at` (s) it has to wait."""
    free_at: float = 0.0
    refused: int = 0
    """What it has sent meanwhile, since the last line about it."""


class Attempts:
    """The wrong tokens of all addresses."""

    def __init__(self, proxies: Proxies = (), clock: Callable[[], float] | None = None) -> None:
        """Trust these proxies; `clock` returns the time in s, that of the event loop unless given."""
        self._proxies = proxies
        self._clock = clock
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._of_all, self._of_all_at = 0.0, 0.0
        self._allowance = Allowance(_left_out)

    def seconds(self, scope: Scope) -> int:
        """Return how long (s) the sender of a request has to wait before a token is compared; count it if so."""
        found = self._addresses.get(address_of(scope, self._proxies))
        left = 0.0 if found is None else found.free_at - self._now()
        if found is None or left <= 0:
            return 0
        found.refused += 1
        return int(left) + 1

    async def failed(self, scope: Scope) -> None:
        """Note a wrong token, and log it; return late if there are too many."""
        now, address = self._now(), address_of(scope, self._proxies)
        found = self._addresses.setdefault(address, _Address())
        self._addresses.move_to_end(address)
        if len(self._addresses) > MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        if now > max(found.last, found.free_at) + FORGOTTEN_AFTER_SECONDS:
            found.failures = 0
        found.failures += 1
        found.last = now
        if found.failures >= FREE_ATTEMPTS:
            doubled = FIRST_WAIT_SECONDS * 2.0 ** min(found.failures - FREE_ATTEMPTS, 16)
            found.free_at = now + min(doubled, MAX_WAIT_SECONDS)
        self._of_all = max(0.0, self._of_all - (now - self._of_all_at) * ATTEMPTS_OF_ALL_PER_SECOND) + 1
        self._of_all_at = now
        if self._allowance.grants("login_failed", ""):
            wait = max(0, int(found.free_at - now))
            logger().warning(
                "login_failed", address=address, failures=found.failures, refused=found.refused, wait_seconds=wait
            )
            found.refused = 0
        if self._of_all > FREE_ATTEMPTS_OF_ALL:
            await asyncio.sleep(LATE_SECONDS)

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()


def _left_out(kind: str, _stream: str, count: int) -> None:
    logger().warning("lines_suppressed", kind=kind, count=count)


def address_of(scope: Scope, proxies: Proxies) -> str:
    """Return the address that a request came from, with the proxies that are trusted left out."""
    peer = (scope["client"] or ["unknown"])[0]
    if not is_among(peer, proxies):
        return _counted(peer)
    forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").decode("latin-1")
    for one in forwarded.split(",")[-MAX_FORWARDED:][::-1]:
        given = one.strip().strip('"').removeprefix("[").partition("]")[0]
        if not is_among(given, proxies):
            return _counted(given) if _read(given) else _counted(peer)
    return _counted(peer)


def is_among(text: str, networks: Proxies) -> bool:
    """Return whether an address is in one of the networks."""
    address = _read(text)
    return address is not None and any(address in network for network in networks)


def _read(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address  # on a socket for both, 10.1.0.7 is ::ffff:10.1.0.7


def _counted(text: str) -> str:
    """Return what counts as one address."""
    address = _read(text)
    if isinstance(address, IPv6Address):
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return text[:MAX_SHOWN_CHARS] if address is None else str(address)
