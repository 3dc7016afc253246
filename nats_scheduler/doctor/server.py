"""Checks of the servers: reached, versions, what their API level means, what could not be examined."""

import asyncio
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from nats_scheduler.doctor.facts import AccountFacts, ServerReach, StreamFacts
from nats_scheduler.doctor.finding import Code, Finding
from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.message.capabilities import OLDEST, capabilities_of
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.native import Quirk, quirk_of
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.server_addresses import masked_url
from nats_scheduler.settings.sidecar import MIN_BUCKET_BYTES


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


# Which servers can be connected to, and their versions: each of the settings, and those that they name.
#
# Rule: a server that the settings do not name is only asked for its version. That it is not reached proves nothing,
# since the addresses that a cluster names may be those of its inner network. Cost: one connection to each server, all
# at the same time; a host that does not answer takes `connect_timeout` twice.

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


# Defects of the server's own scheduler, by version, where they concern a stream of the account.
#
# Rule: a defect is reported only if the stream has what it needs to happen; a list of all defects of a version helps
# no operator. Each one was observed on a server of the versions that are named. Limit: the version is that of the
# server that is connected to; others of its cluster may have another.

OF_QUIRKS = {
    Quirk.FAR: (Code.DEFECT_FAR_TIME, "lies beyond the server's 64 bits of nanoseconds"),
    Quirk.GAP: (Code.DEFECT_ZONE_GAP, "is in a zone whose clock skips a midnight or half an hour within five years"),
    Quirk.ROUNDED: (Code.DEFECT_INTERVAL_ROUNDED, "has a fraction of a second"),
}


def check_defects(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find the defects of the server that concern a stream which it schedules on itself."""
    if facts.server is not None and facts.server.schedules_natively and stream.state.is_native:
        for check in (_lost, _copies, _quirks, _transformed):
            yield from check(facts, stream)


def _lost(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find streams that the server, or the next patch release, refuses to load."""
    assert facts.server is not None
    if stream.config.get("sealed") is True:
        when = f"at the next start {'of the server' if facts.server.refuses_discard_new else 'after an upgrade'}"
        what = f"{stream.name} is sealed and carries allow_msg_schedules: the server does not load it {when}"
        yield Finding(Code.DEFECT_STREAM_LOST, what, f"nats stream backup {stream.name} FOLDER", stream.name)
    elif stream.config.get("discard") == "new":
        what = f"{stream.name} has discard: new and allow_msg_schedules: later releases do not load it"
        command = f"nats stream edit {stream.name} --discard old, before you upgrade"
        yield Finding(Code.DEFECT_STREAM_LOST, what, command, stream.name)


def _copies(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    assert facts.server is not None
    for kind, name, _filters in facts.copies.get(stream.name, ()):
        if not facts.server.schedules_all:
            what = f"stream {name} is a {kind} of {stream.name}, and {facts.server.version} does not copy schedules"
            yield Finding(Code.DEFECT_COPIES_STALL, what, "upgrade the server to 2.14 or later", stream.name)
        if stream.retention == "workqueue" and facts.server.empties_queues:
            what = f"stream {name} is a {kind} of {stream.name}, a work queue"
            command = f"upgrade the server to 2.14.6 or later, or remove the {kind} from {name}"
            yield Finding(Code.DEFECT_QUEUE_EMPTIED, what, command, stream.name)


def _quirks(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    for listed in stream.schedules:
        if listed.fired_by is not FiredBy.SERVER:
            continue
        quirk = quirk_of(listed.pattern, stream.at)
        if quirk is not None:
            code, text = OF_QUIRKS[quirk]
            what = f"the pattern {listed.pattern.text} of {listed.subject} {text}"
            command = "publish it with X-Nats-Schedule, which a sidecar fires as it is written"
            yield Finding(code, what, command, stream.name, listed.subject)


def _transformed(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    if not stream.state.rules.moves_subjects:
        return
    for listed in stream.schedules:
        if listed.fired_by is FiredBy.SERVER and listed.terms.source is not None:
            what = f"{stream.name} transforms subjects, and {listed.subject} has the source {listed.terms.source}"
            command = "publish it with X-Nats-Schedule, or remove the subject transform"
            yield Finding(Code.DEFECT_SOURCE_TRANSFORMED, what, command, stream.name, listed.subject)
