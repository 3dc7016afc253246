"""Checks of the schedules: of each one (`message.schedule_findings`), and of their targets, fires and graduation."""

from collections.abc import Iterator
from dataclasses import replace

from nats_scheduler.doctor.facts import AccountFacts, StreamFacts, targets_here
from nats_scheduler.doctor.stream_checks import new_consumer
from nats_scheduler.engine.handover import BLOCKING_KINDS, Cause, GraduationFinding
from nats_scheduler.engine.holding.held import NO_EXPIRY
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.message.findings import Code, Finding, typed
from nats_scheduler.message.foreign_json import integer
from nats_scheduler.message.schedule_findings import header_misnamed, schedule_findings, schedule_rejected
from nats_scheduler.message.silence import Silence, is_silent
from nats_scheduler.message.stream_findings import ANNOUNCED, announced
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.runtime.consumption import unconsumed
from nats_scheduler.schedule.rfc3339 import format_rfc3339


def check_each(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find what is wrong with single schedules."""
    for listed in stream.schedules:
        judged = replace(listed, failing=stream.failing.get(listed.sequence))
        for finding in schedule_findings(judged.known(stream.state.rules, facts.server, stream.at)):
            yield finding.of(stream.name, listed.subject)


def check_rejections(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules that are invalid, and headers that are none."""
    for rejected in stream.rejected:
        yield schedule_rejected(rejected.rejection).of(stream.name, rejected.subject)
    for noted in stream.misnamed:
        yield header_misnamed(noted.headers).of(stream.name, noted.subject)


def check_failures(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find that the server refuses fires of schedules that are known by their number alone."""
    if stream.failing_unlisted:
        what = f"fires of {stream.failing_unlisted} more schedules are refused"
        yield Finding(Code.FIRE_REFUSED, what, f"nats-scheduler ls {stream.name} --invalid", stream.name)


def check_targets(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find targets that no consumer, no subscriber, no copy and no schedule reads, or not for a day."""
    if stream.consumers is None or facts.subscriptions is None or stream.config.get("republish"):
        return
    copied = [one for _kind, _name, taken in facts.copies.get(stream.name, ()) for one in taken]
    sampled = {listed.terms.source for listed in stream.schedules if listed.terms.source}
    others = {*facts.subscriptions, *copied, *sampled}
    for target, idle in unconsumed(targets_here(stream), stream.consumers, stream.idle_consumers, others):
        if not idle:
            what = f"no consumer of {stream.name} and no subscriber receives the target {target}"
            command = new_consumer(stream.name, target)
            yield Finding(Code.TARGET_UNREAD, what, command, stream.name, target)
        else:
            what = f"messages on the target {target} wait, and consumer {idle} has delivered nothing for a day"
            yield Finding(Code.TARGET_UNCONSUMED, what, f"nats consumer info {stream.name} {idle}", stream.name, target)


def check_targets_elsewhere(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find targets in other streams that no stream has."""
    if facts.stored_subjects is None:
        return
    reported = set()
    for listed in stream.schedules:
        target = listed.terms.policies.target_stream
        if target is None or target in reported or is_covered(target, facts.stored_subjects):
            continue
        reported.add(target)
        what = f"no stream has the target {target} of {listed.subject} as one of its subjects"
        add = typed("nats", "stream", "add", "NAME", "--subjects", target, "--defaults")
        command = f"{add}, or publish {listed.subject} again with another X-Target"
        yield Finding(Code.TARGET_WITHOUT_STREAM, what, command, stream.name, listed.subject)


def check_equal(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules that fire the same at the same times."""
    for group in stream.equal:
        first, second = group[0], group[1]
        others = "" if len(group) == 2 else f" and {len(group) - 2} more"
        what = (
            f"{first.subject}, {second.subject}{others} have the same target {first.terms.target}, "
            f"pattern {first.pattern.text} and body"
        )
        purge = typed("nats", "stream", "purge", stream.name, "--subject", second.subject)
        command = f"{purge}, if one of them is enough"
        yield Finding(Code.SCHEDULES_EQUAL, what, command, stream.name, first.subject)


def check_silent(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules of which the server itself has stored nothing for three of their periods, as stored fires show."""
    rules, is_limited = stream.state.rules, integer(stream.config.get("max_msgs_per_subject")) > 0
    if stream.retention != "limits" or rules.evicts or is_limited:
        return  # fires may have been removed
    for listed in stream.schedules:
        terms, is_to_fire = listed.terms, listed.fired_by is FiredBy.SERVER and listed.state is State.WAITING
        due = listed.unstored if is_to_fire and not (terms.ttl or terms.rollup) else None
        following = None if due is None else listed.fire_after(due)
        if due is None or following is None:
            continue
        if is_silent(stream.at - due, following - due) and stream.at - due < (rules.max_age or NO_EXPIRY):
            since = format_rfc3339(due)
            what = f"{listed.subject} is fired by the server, and none of its fires is stored from {since} on"
            command = typed("nats-scheduler", "history", stream.name, listed.subject)
            yield Finding(Code.SCHEDULE_SILENT, what, command, stream.name, listed.subject)


def check_replaced(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules that the server ended unfired because a later message was stored on their subjects."""
    known = {(one["kind"], one["stream"], one["schedule"]) for one in facts.announced}
    code = Code.SCHEDULE_REPLACED_UNFIRED
    for lost in stream.replaced:
        if (code, stream.name, lost.schedule) not in known:
            numbers = {"seq": lost.sequence, "replaced_by": lost.replaced_by}
            times = {"published": lost.stored_at, "due": lost.due, "replaced": lost.replaced_at}
            values = numbers | {name: format_rfc3339(at) for name, at in times.items()}
            yield announced(code, stream.name, lost.schedule, values)


def check_announced(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find what sidecars announced of the stream during the last day, the newest about each subject.

    That a clock was wrong is left out, since the schedule itself shows for how long that counts (`check_each`).
    """
    newest = {(one["kind"], one["schedule"]): one for one in reversed(facts.announced) if one["stream"] == stream.name}
    for (kind, subject), one in newest.items():
        for code in ANNOUNCED:
            if kind == code and subject is not None and one["advisory"].get("cause") != Silence.CLOCK:
                yield announced(code, stream.name, subject, one["advisory"])


def check_graduation(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find what a graduation would refuse."""
    reported = {rejected.subject for rejected in stream.rejected}
    for found in stream.graduation:
        if found.kind is Cause.INVALID and found.subject in reported:
            continue
        if found.kind in BLOCKING_KINDS:
            about = f"{found.subject}: " if found.subject else ""
            what = f"{found.kind}: {about}{found.detail}"
            yield Finding(Code.GRADUATION_BLOCKED, what, _unblocking(stream, found), stream.name, found.subject)


def _unblocking(stream: StreamFacts, found: GraduationFinding) -> str:
    """Return what removes a finding of a graduation."""
    if found.kind is Cause.COPIED:
        return "upgrade the server to 2.14 or later first"
    if found.kind is Cause.COVERED:
        return f"nats stream rmm {stream.name} {found.sequence}, the message that would be fired again"
    if found.subject is None:
        return f"nats stream edit {stream.name}, so that its configuration allows schedules"
    if found.kind is Cause.INVALID:
        return f"{typed('nats-scheduler', 'info', stream.name, found.subject)}, then publish it again, corrected"
    return f"publish {found.subject} again with X- before each of its schedule headers: a sidecar fires it as before"
