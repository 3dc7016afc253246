"""Defects of the server's own scheduler, by version, where they concern a stream of the account.

What it gets wrong of one schedule is found with the schedule (`message.schedule_findings`).

Rule: a defect is reported only if the stream has what it needs to happen; a list of all defects of a version helps
no operator. Each one was observed on a server of the versions that are named.
Limit: the version is that of the server that is connected to; others of its cluster may have another.
"""

from collections.abc import Iterator

from nats_scheduler.doctor.facts import AccountFacts, StreamFacts
from nats_scheduler.message.findings import Code, Finding


def check_defects(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find the defects of the server that concern a stream which it schedules on itself."""
    if facts.server is not None and facts.server.schedules_natively and stream.state.is_native:
        for check in (_lost, _copies):
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
