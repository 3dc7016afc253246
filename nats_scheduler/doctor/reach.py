"""Which servers can be connected to, and their versions: each of the settings, and those that they name.

Rule: a server that the settings do not name is only asked for its version. That it is not reached proves nothing, since
the addresses that a cluster names may be those of its inner network.
Cost: one connection to each server, all at the same time; a host that does not answer takes `connect_timeout` twice.
"""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

from nats_scheduler.doctor.facts import ServerReach
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.server_urls import masked_url

MAX_NAMED_SERVERS = 32
"""Most servers that are tried because another one named them."""

DENIAL_DEADLINE_SECONDS = 2.0
"""Longest wait for a server to deny a subscription."""


async def reach_servers(settings: ConnectionSettings) -> Sequence[ServerReach]:
    """Connect to each server once; credentials that cannot be used are the failure of each."""
    configured = list(dict.fromkeys(settings.servers))
    attempts = await asyncio.gather(*(_reach(settings, address, is_configured=True) for address in configured))
    known = {urlsplit(address).netloc.rpartition("@")[2] for address in configured}
    named = sorted({address for _reach, addresses in attempts for address in addresses} - known)[:MAX_NAMED_SERVERS]
    scheme = urlsplit(configured[0]).scheme or "nats"
    login = urlsplit(configured[0]).netloc.rpartition("@")[0]
    urls = [f"{scheme}://{login}{'@' if login else ''}{address}" for address in named]
    others = await asyncio.gather(*(_reach(settings, url, is_configured=False) for url in urls))
    return [reach for reach, _addresses in (*attempts, *others)]


async def _reach(settings: ConnectionSettings, url: str, *, is_configured: bool) -> tuple[ServerReach, Sequence[str]]:
    address = masked_url(url)
    try:
        connection = await Dialer(settings.model_copy(update={"servers": (url,)})).dial()
    except JetStreamError as error:
        return ServerReach(address, failure=str(error).removeprefix(f"{address}: "), is_configured=is_configured), ()
    try:
        server = connection.server
        return ServerReach(address, server.version, server.name, "", is_configured), connection.known_addresses
    finally:
        await connection.close()


async def is_inbox_denied(settings: ConnectionSettings) -> bool:
    """Return whether the user may not subscribe to the inboxes on which the answers arrive; raises `JetStreamError`.

    Without them no request is answered, so the denial is the only sign.
    """
    connection = await Dialer(settings).dial()
    denied = asyncio.Event()
    try:
        connection.when_denied(lambda denial: None if denial.publishes else denied.set())
        connection.subscribe(connection.inbox("doctor"), lambda _subject, _reply, _block, _body: None)
        async with asyncio.timeout(DENIAL_DEADLINE_SECONDS):
            await denied.wait()
    except TimeoutError:
        return False
    finally:
        await connection.close()
    return True
