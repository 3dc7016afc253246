"""Checks of the schedules: those that never fire, are refused, fire to an unread target, or cannot graduate."""

import shlex
from collections import defaultdict
from collections.abc import Iterator

from nats_scheduler.doctor.facts import AccountFacts, StreamFacts, targets_here
from nats_scheduler.doctor.finding import Finding, typed
from nats_scheduler.doctor.finding_codes import Code
from nats_scheduler.doctor.stream_checks import new_consumer
from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.firing.silence import SILENT_AFTER_NS, SILENT_PERIODS
from nats_scheduler.engine.handover import BLOCKING_KINDS, Cause, GraduationFinding
from nats_scheduler.engine.holding.held import NO_EXPIRY
from nats_scheduler.engine.inputs import NOT_PERMITTED
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import FiredBy, ListedSchedule
from nats_scheduler.message.ages import what_helps
from nats_scheduler.message.foreign_json import integer
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.observe.texts import has_ignored_policies, policies_text
from nats_scheduler.runtime.consumption import unconsumed
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import DAY, HOUR
from nats_scheduler.schedule.rfc3339 import format_rfc3339

LONGEST_AGE_HOURS = 2_500_000
"""What fits into the server's 64 bits of nanoseconds."""

ENDS_BY = {Ending.EXPIRED: "its own Nats-TTL", Ending.MAX_AGE: "max_age of the stream"}


def check_endings(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules that end before they fire."""
    for listed in stream.schedules:
        if listed.state is State.EXPIRING and listed.ends is not None and listed.ended_by is not None:
            cause = ENDS_BY.get(listed.ended_by, str(listed.ended_by))
            what = f"{cause} ends {listed.subject} at {format_rfc3339(listed.ends)}, before its next fire"
            command = _longer(facts, stream, listed)
            yield Finding(Code.ENDS_BEFORE_FIRE, what, command, stream.name, listed.subject)


def check_ages(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find streams that remove schedules which fire, before their last fires."""
    aged = [listed for listed in stream.schedules if listed.is_cut_off]
    first = min(aged, key=lambda listed: listed.ends or 0, default=None)
    if first is not None and first.ends is not None:
        age, more = format_duration(stream.state.rules.max_age), f" and {len(aged) - 1} more" if len(aged) > 1 else ""
        what = f"max_age ({age}) removes {first.subject} at {format_rfc3339(first.ends)}, before its last fire{more}"
        yield Finding(Code.ENDS_BY_AGE, what, what_helps(stream.state.rules, facts.server), stream.name, first.subject)


def _longer(facts: AccountFacts, stream: StreamFacts, listed: ListedSchedule) -> str:
    """Return what lets a schedule live until its next fire."""
    if listed.ended_by is not Ending.MAX_AGE:
        return "publish the schedule again with a longer Nats-TTL"
    due = listed.fire_after(stream.at) if listed.timetable.repeats else listed.timetable.first_fire()
    hours = ((due or stream.at) - listed.stored_at + DAY) // HOUR
    edit = f"nats stream edit {stream.name} --max-age {min(hours, LONGEST_AGE_HOURS)}h"
    return f"{edit}, or: {what_helps(stream.state.rules, facts.server)}"


def check_rejections(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules that are invalid, and headers that are none."""
    for rejected in stream.rejected:
        what = f"{rejected.subject} is rejected: {rejected.rejection}"
        command = f"{typed('nats-scheduler', 'info', stream.name, rejected.subject)}, then publish it again, corrected"
        yield Finding(Code.SCHEDULE_INVALID, what, command, stream.name, rejected.subject)
    for noted in stream.misnamed:
        what = "; ".join(f"{one.header} {one.reason}" for one in noted.headers)
        command = f"publish {noted.subject} again with the right names"
        yield Finding(Code.HEADERS_MISNAMED, f"{noted.subject}: {what}", command, stream.name, noted.subject)


def check_calendars(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules whose calendar is not known."""
    for listed in stream.schedules:
        if listed.state is State.NO_CALENDAR and (name := listed.pattern.unknown_calendar) is not None:
            what = f"{listed.subject} names the calendar {name}, which does not exist, is invalid or cannot be read"
            command = f"nats-scheduler calendar set {name} DAY…"
            yield Finding(Code.CALENDAR_MISSING, what, command, stream.name, listed.subject)


def check_failures(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules whose fires the server refuses."""
    for listed in stream.schedules:
        why = stream.failing.get(listed.sequence)
        if why is not None:
            target = listed.terms.target
            since = format_rfc3339(why.since)
            what = f"fires of {listed.subject} to {target} are refused with {why.code} since {since}: {why.description}"
            command = f"nats stream info {stream.name}"
            if why.code == NOT_PERMITTED:
                command = f"allow the sidecar's user to publish to {target}"
            yield Finding(Code.FIRES_REFUSED, what, command, stream.name, listed.subject)
    if stream.failing_unlisted:
        what = f"fires of {stream.failing_unlisted} more schedules are refused"
        yield Finding(Code.FIRES_REFUSED, what, f"nats-scheduler ls {stream.name} --invalid", stream.name)


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


def check_policies(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules that a server fires, and whose policies it does not know."""
    for listed in stream.schedules:
        if has_ignored_policies(listed):
            what = f"{listed.subject} has policies that no server knows: {policies_text(listed.terms.policies)}"
            command = f"publish {listed.subject} again with X- before each of its schedule headers"
            yield Finding(Code.POLICIES_IGNORED, what, command, stream.name, listed.subject)


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
        if max(SILENT_PERIODS * (following - due), SILENT_AFTER_NS) <= stream.at - due < (rules.max_age or NO_EXPIRY):
            since = format_rfc3339(due)
            what = f"{listed.subject} is fired by the server, and none of its fires is stored from {since} on"
            command = typed("nats-scheduler", "history", stream.name, listed.subject)
            yield Finding(Code.SCHEDULE_SILENT, what, command, stream.name, listed.subject)


def check_replaced(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedules that the server ended unfired because a later message was stored on their subjects."""
    known = {(one["kind"], one["stream"], one["schedule"]) for one in facts.announced}
    code = Code.SCHEDULE_REPLACED_UNFIRED
    what, command = ANNOUNCEMENTS[code]
    for lost in stream.replaced:
        if (code, stream.name, lost.schedule) not in known:
            names = {"subject": lost.schedule, "seq": lost.sequence, "replaced_by": lost.replaced_by}
            times = {"published": lost.stored_at, "due": lost.due, "replaced": lost.replaced_at}
            found = what.format_map({**names, **{name: format_rfc3339(at) for name, at in times.items()}})
            yield Finding(code, found, command, stream.name, lost.schedule)


def check_announced(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find what sidecars announced of the stream during the last day, the newest about each subject."""
    newest = {(one["kind"], one["schedule"]): one for one in reversed(facts.announced) if one["stream"] == stream.name}
    for one in newest.values():
        names = defaultdict(str, one["advisory"], subject=one["schedule"], stream=stream.name)
        for code, (what, command) in ANNOUNCEMENTS.items():
            if one["kind"] == code:
                typed_names = {**names, "subject": shlex.quote(names["subject"])}
                yield Finding(
                    code, what.format_map(names), command.format_map(typed_names), stream.name, one["schedule"]
                )


ANNOUNCEMENTS = {
    Code.SCHEDULE_REPLACED_UNFIRED: (
        "{subject} (sequence {seq}, published {published}) was to fire at {due}: sequence {replaced_by}, published "
        "{replaced}, replaced it before that",
        "use a subject for each schedule, or X-Debounce if replacement is meant",
    ),
    Code.TARGET_UNCONSUMED: (
        "nobody has consumed the target {target} of {subject} since {since}: {reason}",
        "nats consumer ls {stream}",
    ),
    Code.TARGET_MAPPED: (
        "{target} is the target of {subject} (sequence {seq}), and is mapped: {reason}",
        "nats-scheduler edit {stream} {subject}, with a target that no mapping of the account names",
    ),
    Code.SCHEDULE_SILENT: (
        "no fire of {subject} (sequence {seq}) was stored from {since} on for three of its periods: {reason}",
        "nats-scheduler info {stream} {subject}",
    ),
    Code.SCHEDULE_ONLY_DROPPED: (
        "{policy} dropped all fires of {subject} (sequence {seq}) from {since} on, {dropped} in number",
        "nats-scheduler edit {stream} {subject}, with another policy or a longer period",
    ),
}
"""What each says, and the change to make; the names in braces are keys of its advisory."""


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
