"""Checks of the servers: reached, versions, what their API level means, what could not be examined."""

from collections.abc import Iterator

from nats_scheduler.doctor.codes import Code
from nats_scheduler.doctor.facts import AccountFacts
from nats_scheduler.doctor.finding import Finding
from nats_scheduler.jetstream.capabilities import OLDEST_VERSION, is_too_old
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.native import REPEATING_API_LEVEL

OLDEST = ".".join(map(str, OLDEST_VERSION))


def check_servers(facts: AccountFacts) -> Iterator[Finding]:
    """Find servers that cannot be reached, are too old, or differ."""
    yield from _of_reaches(facts)
    reached = {reach.name: reach.version for reach in facts.reaches if not reach.failure}
    for name, version in sorted(reached.items()):
        if is_too_old(version):
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
    if facts.server.schedules_natively and facts.server.api_level < REPEATING_API_LEVEL:
        what = f"the server is {version}, whose own scheduler accepts only @at"
        yield Finding(Code.AT_ONLY, what, "use X-Nats-Schedule for the others, or upgrade the server to 2.14 or later")


def check_unexamined(facts: AccountFacts) -> Iterator[Finding]:
    """Report what could not be examined."""
    for one in facts.unexamined:
        if one.has_failed:
            yield Finding(Code.NO_ANSWER, f"{one.what}: {one.why}", "nats stream report", one.stream)
            continue
        command = f"nats-scheduler doctor{f' {one.stream}' if one.stream else ''} with a user who may do that"
        yield Finding(Code.NOT_EXAMINED, f"{one.what}: {one.why}", command, one.stream)
