"""Defects of the server's own scheduler, by version, where they concern a stream of the account.

Rule: a defect is reported only if the stream has what it needs to happen; a list of all defects of a version helps
no operator. Each one was observed on a server of the versions that are named.
Limit: the version is that of the server that is connected to; others of its cluster may have another.
"""

from collections.abc import Iterator

from nats_scheduler.doctor.facts import AccountFacts, StreamFacts
from nats_scheduler.doctor.finding import Finding
from nats_scheduler.doctor.finding_codes import Code
from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.schedule.native import Quirk, quirk_of

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
