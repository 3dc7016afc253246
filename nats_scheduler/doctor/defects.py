"""Defects of the server's own scheduler, by version, where they concern a stream of the account.

Rule: a defect is reported only if the stream has what it needs to happen; a list of all defects of a version helps no
operator. Each one was observed on a server of the versions that are named.
Limit: the version is that of the server that is connected to; others of its cluster may have another.
"""

from collections.abc import Callable, Iterator, Sequence

from nats_scheduler.doctor.codes import Code
from nats_scheduler.doctor.facts import AccountFacts, StreamFacts
from nats_scheduler.doctor.finding import Finding
from nats_scheduler.engine.view import FiredBy
from nats_scheduler.schedule.native import REPEATING_API_LEVEL, Quirk, quirk_of

Version = tuple[int, int, int]

DISCARD_NEW_REFUSED_FROM = ((2, 12, 10), (2, 14, 2))
"""From these patch releases on, each of its line, `discard: new` and schedules exclude each other, also at start."""

QUEUES_EMPTIED = (2, 14, 0), (2, 14, 6)
"""From the first release on, until the second mended it, a copy of a work queue removes what its filter leaves out."""

OF_QUIRKS = {
    Quirk.FAR: (Code.DEFECT_FAR_TIME, "lies beyond the server's 64 bits of nanoseconds"),
    Quirk.GAP: (Code.DEFECT_ZONE_GAP, "is in a zone whose clock skips a midnight or half an hour within five years"),
    Quirk.ROUNDED: (Code.DEFECT_INTERVAL_ROUNDED, "has a fraction of a second"),
}


def check_defects(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find the defects of the server that concern a stream which it schedules on itself."""
    if facts.server is not None and facts.server.schedules_natively and stream.state.is_native:
        for check in DEFECTS:
            yield from check(facts, stream)


def _lost(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find streams that the server, or the next patch release, refuses to load."""
    assert facts.server is not None
    version = version_of(facts.server.version)
    refuses = version is not None and refuses_discard_new(version)
    if stream.config.get("sealed") is True:
        when = "at the next start of the server" if refuses else "at the next start after an upgrade"
        what = f"{stream.name} is sealed and carries allow_msg_schedules: the server does not load it {when}"
        yield Finding(Code.DEFECT_STREAM_LOST, what, f"nats stream backup {stream.name} FOLDER", stream.name)
    elif stream.config.get("discard") == "new":
        what = f"{stream.name} has discard: new and allow_msg_schedules: later releases do not load it"
        command = f"nats stream edit {stream.name} --discard old, before you upgrade"
        yield Finding(Code.DEFECT_STREAM_LOST, what, command, stream.name)


def version_of(text: str) -> Version | None:
    """Return the three numbers of a version, None if they are not numbers."""
    parts = text.partition("-")[0].split(".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def empties_queues(version: Version) -> bool:
    """Return whether a copy of a work queue removes messages there that its filter leaves out."""
    return QUEUES_EMPTIED[0] <= version < QUEUES_EMPTIED[1]


def refuses_discard_new(version: Version) -> bool:
    """Return whether a server refuses schedules together with `discard: new`, and so does not load such a stream."""
    of_line = [first for first in DISCARD_NEW_REFUSED_FROM if first[:2] == version[:2]]
    return version >= of_line[0] if of_line else version > DISCARD_NEW_REFUSED_FROM[-1]


def _copies(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    assert facts.server is not None
    for kind, name, _filters in facts.copies.get(stream.name, ()):
        if facts.server.api_level < REPEATING_API_LEVEL:
            what = f"stream {name} is a {kind} of {stream.name}, and {facts.server.version} does not copy schedules"
            yield Finding(Code.DEFECT_COPIES_STALL, what, "upgrade the server to 2.14 or later", stream.name)
        version = version_of(facts.server.version)
        if stream.retention == "workqueue" and version is not None and empties_queues(version):
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


DEFECTS: Sequence[Callable[[AccountFacts, StreamFacts], Iterator[Finding]]] = (_lost, _copies, _quirks, _transformed)
