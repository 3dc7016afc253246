"""Checks of the servers: reached, versions, what their API level means, the bucket, what could not be examined."""

import asyncio
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.doctor.facts import AccountFacts, ServerReach
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.message.capabilities import OLDEST, capabilities_of
from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.server_addresses import masked_url
from nats_scheduler.settings.sidecar_settings import MIN_BUCKET_BYTES


def check_servers(facts: AccountFacts) -> Iterator[Finding]:
    """Find servers that cannot be reached, are too old, or differ."""
    yield from _of_reaches(facts)
    reached = {reach.name: reach.version for reach in facts.reaches if not reach.failure}
    for name, version in sorted(reached.items()):
        if capabilities_of(version).is_too_old:
            what = f"server {name} is version {version}, and schedules need {OLDEST} or later"
            yield Finding(Code.SERVER_TOO_OLD, what, f"upgrade {name} to {OLDEST} or later")
    if len(set(reached.values())) > 1:
        listed = ", ".join(f"{name} is {version}" for name, version in sorted(reached.items()))
        command = "upgrade all servers of the cluster to one version before you change a stream"
        yield Finding(Code.VERSIONS_DIFFER, listed, command)
    if facts.jetstream_failure:
        what = f"JetStream does not answer: {facts.jetstream_failure}"
        yield Finding(Code.JETSTREAM_UNAVAILABLE, what, "nats account info")


def _of_reaches(facts: AccountFacts) -> Iterator[Finding]:
    configured = [reach for reach in facts.reaches if reach.is_configured]
    failed = [reach for reach in configured if reach.failure]
    code = Code.NO_SERVER if len(failed) == len(configured) else Code.SERVER_UNREACHABLE
    for reach in failed:
        command = f"nats server check connection --server {reach.address}"
        yield Finding(code, f"{reach.address} is not reached: {reach.failure}", command)


def check_level(facts: AccountFacts) -> Iterator[Finding]:
    """Find what the API level of the server leaves out."""
    if facts.server is None:
        return
    version = facts.server.version
    modes = {stream.mode for stream in facts.streams}
    if Mode.EMULATED in modes and not facts.server.has_guard:
        what = f"the server is {version}, which does not check whether a fire's schedule is still there"
        yield Finding(Code.NO_GUARD, what, "upgrade the server to 2.11 or later")
    if facts.server.schedules_at_only:
        what = f"the server is {version}, whose own scheduler accepts only @at"
        yield Finding(Code.AT_ONLY, what, "use X-Nats-Schedule for the others, or upgrade the server to 2.14 or later")


OWN_STREAMS = 3
"""The streams of the sidecar's own that share what an account has left: two buckets, and the failures."""

FULL_PERCENT = 90
"""From this share of its maximum size on the bucket counts as full: what is written there is replaced all the time."""


def check_bucket(facts: AccountFacts) -> Iterator[Finding]:
    """Find a bucket that the account has no room for, or that is full."""
    bucket = facts.bucket
    if bucket is None:
        return
    if bucket.used is None and not bucket.room.takes(bucket.size):
        left = f"{bucket.room.most_left} bytes left for a stream in {bucket.storage}"
        what = f"{bucket.stream} would have a size of {bucket.size} bytes, and the account has {left}"
        share = bucket.room.most_left // OWN_STREAMS
        command = f"nats-scheduler run --bucket-max-bytes {share} --failures-max-bytes {share}"
        if share < MIN_BUCKET_BYTES:
            command = "nats account info, and give the account more room"
        yield Finding(Code.BUCKET_DOES_NOT_FIT, what, command)
    if bucket.used is not None and bucket.size and bucket.used * 100 >= bucket.size * FULL_PERCENT:
        what = f"{bucket.stream} holds {bucket.used} of at most {bucket.size} bytes"
        yield Finding(Code.BUCKET_FULL, what, f"nats stream edit {bucket.stream} --max-bytes {2 * bucket.size}")


def check_unexamined(facts: AccountFacts) -> Iterator[Finding]:
    """Report what could not be examined."""
    for one in facts.unexamined:
        if one.has_failed:
            yield Finding(Code.NO_ANSWER, f"{one.what}: {one.why}", "nats stream report", one.stream)
            continue
        command = f"nats-scheduler doctor{f' {one.stream}' if one.stream else ''} with a user who may do that"
        yield Finding(Code.NOT_EXAMINED, f"{one.what}: {one.why}", command, one.stream)


MAX_NAMED_SERVERS = 32
"""Most servers that are tried because another one named them."""

DENIAL_DEADLINE_SECONDS = 2.0
"""Longest wait for a server to deny a subscription."""


async def reach_servers(settings: ConnectionSettings) -> Sequence[ServerReach]:
    """Connect to each server once, those of the settings and those that they name, to learn their versions.

    That a server which the settings do not name is not reached proves nothing: the addresses that a cluster names may
    be those of its inner network. Credentials that cannot be used are the failure of each.
    """
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
    except SchedulerError as error:
        return ServerReach(address, failure=str(error).removeprefix(f"{address}: "), is_configured=is_configured), ()
    try:
        server = connection.server
        return ServerReach(address, server.version, server.name, "", is_configured), connection.known_addresses
    finally:
        await connection.close()


async def is_inbox_denied(settings: ConnectionSettings) -> bool:
    """Return whether the user may not subscribe to the inboxes on which the answers arrive; raises `SchedulerError`.

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
