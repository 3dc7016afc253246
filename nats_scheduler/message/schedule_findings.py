"""What is found about one schedule, before it is stored and while it is: each decision, its words and what helps, once.

`check`, all that stores a schedule, the doctor, `ls`, `info` and its page report what is found here.
To add one: its code in `message.findings`, a function here that `CHECKS` names, and its heading in the page of codes.

The rules:

- A check gets what is known of the schedule. Where that does not suffice it finds nothing.
- The sentence calls the schedule *it*, and so reads the same everywhere; a report on several of them names each one
  before it (`Finding.of`).
- What a message holds is shown up to `MAX_KEPT_CHARS`: a header may have 64 KB, and a report many findings.

Cost: microseconds; for a schedule with a last fire on a stream with `max_age` a search of the fire after its end.
Limit: what else the stream holds is not known. So if it removes its oldest messages because it is full, the time of
that is not known.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nats_scheduler.message.ages import Removal, is_cut_off, is_early, removal_of, what_helps
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import DIALECTS, PORTABLE
from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.misnamed import Misnamed, misnamed_headers
from nats_scheduler.message.policies import Kept, Overlap, policies_text
from nats_scheduler.message.rejection import MAX_KEPT_CHARS, NOT_PERMITTED, Failing, Rejection
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.silence import first_skipped, restarted_for
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.cron_syntax import has_numbered_weekdays
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import DAY, HOUR, SECOND
from nats_scheduler.schedule.mistakes import uneven_steps
from nats_scheduler.schedule.native import Quirk, quirk_of
from nats_scheduler.schedule.patterns import Cron, Syntax
from nats_scheduler.schedule.rfc3339 import format_rfc3339

LONGEST_AGE_HOURS = 2_500_000
"""What fits into the server's 64 bits of nanoseconds."""

WITH_X = "publish it again with X- before each of its schedule headers: a sidecar fires it as it is written"


class End(NamedTuple):
    """The end that its stream makes of a schedule."""

    removal: Removal
    early_for: int | None
    """The fire time (ns) of its next fire, if it is removed before that."""
    cuts_off: bool
    """True if it fires before that, and would fire after it."""


@dataclass(frozen=True, slots=True)
class KnownSchedule:
    """What is known of a schedule that is stored, or that would be stored `at` (ns)."""

    terms: Terms
    timetable: Timetable
    rules: StreamRules
    server: Capabilities | None
    """The server that stores it; None if that is not known."""
    at: int
    is_stored: bool
    is_by_server: bool | None
    """True if the server itself fires it, False if a sidecar does; None if that is not known, or nothing does."""
    end: End | None = None
    """The end that its stream makes of it; None if it keeps it, and for a paused schedule."""
    block: bytes = b""
    """Its headers; empty if they are not at hand."""
    lacks_calendar: bool = False
    """True if it is stored and waits for a calendar."""
    refusal: Failing | None = None
    """Why the server refuses its fires, as far as that is known."""
    is_paused: bool = False
    next_fire: int | None = None
    """The fire time (ns) that it waits for, if it is stored and only waits."""
    unfired_since: int | None = None
    """The fire time (ns) that the first of its versions was to have, if each was replaced before it fired."""


def findings_about(
    block: bytes,
    definition: Definition | None,
    rules: StreamRules,
    now: int,
    server: Capabilities | None = None,
    *,
    is_by_server: bool | None = None,
    is_paused: bool = False,
) -> tuple[Finding, ...]:
    """Return what is found about a message with these headers that would be stored `now` (ns) under these rules.

    Its `definition` is None if it is no valid schedule.
    """
    misnamed = misnamed_headers(block, DIALECTS, is_schedule=definition is not None)
    found = (header_misnamed(misnamed),) if misnamed else ()
    if definition is None:
        return found
    terms, timetable = definition.terms, definition.timetable(now)
    by_server = False if terms.dialect is PORTABLE else is_by_server
    end = None if is_paused else _end(block, timetable, rules, server)
    known = KnownSchedule(
        terms, timetable, rules, server, now, False, by_server, end=end, block=block, is_paused=is_paused
    )
    return found + schedule_findings(known)


def _end(block: bytes, timetable: Timetable, rules: StreamRules, server: Capabilities | None) -> End | None:
    """Return the end that its stream makes of a schedule that is stored now."""
    removal, first = removal_of(block, timetable.stored_at, rules, server), timetable.first_fire()
    if removal is None or first is None:
        return None
    if is_early(removal.at, timetable.send_time_of(first)):
        return End(removal, first, cuts_off=False)
    return End(removal, None, removal.is_by_age and is_cut_off(timetable, removal.at))


def schedule_findings(known: KnownSchedule) -> tuple[Finding, ...]:
    """Return what is found about a schedule, in the order of the checks."""
    return tuple(finding for check in CHECKS for finding in check(known))


# -- what is no valid schedule ---------------------------------------------------------------------------------------


def header_misnamed(headers: Sequence[Misnamed]) -> Finding:
    """Return that a message has headers which look like those of a schedule and are none."""
    return Finding(
        Code.HEADER_MISNAMED,
        "; ".join(f"{one.header} {one.reason}" for one in headers),
        "publish it again with the right names",
    )


def schedule_rejected(rejection: Rejection) -> Finding:
    """Return that a stored message is rejected as a schedule."""
    return Finding(
        Code.SCHEDULE_REJECTED, f"it is rejected, and never fires: {rejection}", "publish it again, corrected"
    )


# -- how it ends, and what refuses it --------------------------------------------------------------------------------


def _ends_early(known: KnownSchedule) -> Iterator[Finding]:
    if known.end is not None and (due := known.end.early_for) is not None:
        (at, is_by_age), rules = known.end.removal, known.rules
        hours = min((due - known.timetable.stored_at + DAY) // HOUR, LONGEST_AGE_HOURS)
        older = f"nats stream edit {rules.name} --max-age {hours}h, or: {what_helps(rules, known.server)}"
        ends = f"{_max_age(rules)} removes it" if is_by_age else "its own Nats-TTL ends it"
        before = f" at {_time(at)}, before its next fire" if known.is_stored else " before its first fire"
        yield Finding(
            Code.SCHEDULE_ENDS_EARLY,
            f"{ends}{before} at {_time(due)}",
            older if is_by_age else "publish it again with a longer Nats-TTL",
        )


def _ends_by_age(known: KnownSchedule) -> Iterator[Finding]:
    if known.end is not None and known.end.cuts_off:
        when = _time(known.end.removal.at) if known.is_stored else "that age"
        yield Finding(
            Code.SCHEDULE_ENDS_BY_AGE,
            f"{_max_age(known.rules)} removes it at {when}, and then it never fires again",
            what_helps(known.rules, known.server),
        )


def _ends_within_jitter(known: KnownSchedule) -> Iterator[Finding]:
    """Find a first fire that may be delayed beyond the end: by how much depends on the sequence."""
    jitter, first = known.terms.policies.jitter, known.timetable.first_fire()
    if known.is_stored or jitter is None or first is None or known.end is None or known.end.early_for is not None:
        return
    ends, following = known.end.removal.at, known.timetable.next_fire(first)
    latest = first + jitter if following is None else min(first + jitter, following)
    if is_early(ends, latest):
        lived = format_duration(ends - known.timetable.stored_at)
        yield Finding(
            Code.SCHEDULE_ENDS_WITHIN_JITTER,
            f"its X-Jitter may delay its first fire until {_time(latest)}, and it ends after {lived}",
            "give it a shorter X-Jitter, or a longer life",
        )


def _may_be_evicted(known: KnownSchedule) -> Iterator[Finding]:
    if known.rules.evicts and not known.is_stored:
        yield Finding(
            Code.MAY_BE_EVICTED,
            "the stream has max_msgs or max_bytes: when it is full it removes its oldest messages, schedules too",
            "use a stream whose messages are removed by max_age or by consumers",
        )


def _refused(known: KnownSchedule) -> Iterator[Finding]:
    if (why := known.refusal) is not None:
        target = known.terms.target[:MAX_KEPT_CHARS]
        what = f"its fires to {target} are refused with {why.code} since {_time(why.since)}: {why.description}"
        allowing, looking = f"allow the sidecar's user to publish to {target}", f"nats stream info {known.rules.name}"
        yield Finding(Code.FIRE_REFUSED, what, allowing if why.code == NOT_PERMITTED else looking)


def _silent(known: KnownSchedule) -> Iterator[Finding]:
    """Find that it does not come to fire: its publisher begins it anew, or a clock was wrong."""
    timetable, since, due = known.timetable, known.unfired_since, known.next_fire
    if known.is_by_server or not timetable.repeats:
        return
    if since is not None and restarted_for(timetable, since) >= 0:
        yield Finding(
            Code.SCHEDULE_SILENT,
            f"it was to fire at {_time(since)}, and is stored again and again since then, each time before it fires",
            "store it only when it changes; or give it an X-Anchor or a cron pattern, which begin nothing anew",
        )
    skipped = None if due is None else first_skipped(timetable, due, known.at)
    if due is not None and skipped is not None:
        yield Finding(
            Code.SCHEDULE_SILENT,
            f"it waits for its fire of {_time(due)}, and skips those from {_time(skipped)} on: a clock was wrong when "
            "it was stored, or when it fired",
            "publish it again",
        )


# -- what fires it does not do, or otherwise -------------------------------------------------------------------------


def _calendar(known: KnownSchedule) -> Iterator[Finding]:
    name = known.timetable.pattern.unknown_calendar
    if name is None:
        return
    command = f"nats-scheduler calendar set {name} DAY…"
    if known.lacks_calendar:
        yield Finding(
            Code.CALENDAR_MISSING,
            f"it names the calendar {name}, which does not exist, is invalid or cannot be read",
            command,
        )
    elif not known.is_stored:
        yield Finding(
            Code.CALENDAR_UNREAD,
            f"it fires only if the calendar {name} exists, and not on its days, which are not known here",
            f"{command}, unless it exists",
        )


def _policies_ignored(known: KnownSchedule) -> Iterator[Finding]:
    policies = policies_text(known.terms.policies)[:MAX_KEPT_CHARS]
    if known.is_by_server is not False and policies:
        yield Finding(
            Code.POLICIES_IGNORED,
            f"it has policies without effect where the server itself fires, since no server knows them: {policies}",
            WITH_X,
        )


def _policy_without_effect(known: KnownSchedule) -> Iterator[Finding]:
    policies, rules = known.terms.policies, known.rules
    kept, most = policies.missed
    if any(name == "X-Grace" for name, _value in policies.written) and kept is not Kept.SKIP and most is None:
        yield Finding(
            Code.POLICY_WITHOUT_EFFECT,
            "its X-Grace has an effect only with X-Missed: skip, and with all and a number",
            "leave it out, or add X-Missed: skip",
        )
    if policies.asking and policies.overlap is not Overlap.ALLOW and not known.timetable.repeats:
        yield Finding(Code.POLICY_WITHOUT_EFFECT, "its X-Overlap has no effect: it fires once", "leave it out")
    if policies.asking and policies.consumer is not None and not (rules.is_any or rules.keeps_acknowledged):
        yield Finding(
            Code.POLICY_WITHOUT_EFFECT,
            "its X-Consumer has no effect on this stream, which removes what was acknowledged",
            "leave it out",
        )


def _skipped_at_once(known: KnownSchedule) -> Iterator[Finding]:
    policies, timetable = known.terms.policies, known.timetable
    is_judged = not (known.is_stored or known.is_paused or timetable.repeats) and policies.missed[0] is Kept.SKIP
    due = timetable.first_fire() if is_judged else None
    if due is not None and known.at - timetable.send_time_of(due) > policies.grace:
        yield Finding(
            Code.SKIPPED_AT_ONCE,
            "its time is past by more than its X-Grace: X-Missed: skip removes it without a fire",
            "give it a time that is to come, or a longer X-Grace",
        )


QUIRKS = {
    Quirk.FAR: (Code.DEFECT_FAR_TIME, "its time or interval is beyond the server's 64 bits of nanoseconds"),
    Quirk.GAP: (
        Code.DEFECT_ZONE_GAP,
        "the clock of its zone skips a midnight or half an hour within five years: the server may fire on wrong days",
    ),
    Quirk.ROUNDED: (Code.DEFECT_INTERVAL_ROUNDED, "the server rounds each fire time to the second"),
}


def _defects(known: KnownSchedule) -> Iterator[Finding]:
    """Find what the server that fires it gets wrong."""
    if not known.is_by_server:
        return
    pattern, source = known.timetable.pattern, known.terms.source
    if (quirk := quirk_of(pattern, known.at)) is not None:
        code, what = QUIRKS[quirk]
        yield Finding(code, f"{what}: its pattern is {pattern.text[:MAX_KEPT_CHARS]}", WITH_X)
    if source is not None and known.rules.moves_subjects:
        yield Finding(
            Code.DEFECT_SOURCE_TRANSFORMED,
            f"its stream transforms subjects, and it has the source {source[:MAX_KEPT_CHARS]}",
            f"{WITH_X}; or remove the subject transform",
        )


# -- what another place asks for, and what may be meant otherwise ----------------------------------------------------


def _consumer_to_name(known: KnownSchedule) -> Iterator[Finding]:
    policies = known.terms.policies
    if policies.asking and known.rules.is_any and policies.consumer is None:
        yield Finding(
            Code.CONSUMER_TO_NAME,
            f"on a stream with limits retention it is rejected, because its {policies.asking} needs X-Consumer there",
            "name the consumer of its target with X-Consumer",
        )


def _timeout_to_set(known: KnownSchedule) -> Iterator[Finding]:
    policies = known.terms.policies
    is_waiting = policies.overlap is not Overlap.ALLOW and known.timetable.repeats
    if is_waiting and policies.timeout is None and not known.is_stored:
        yield Finding(
            Code.TIMEOUT_TO_SET,
            f"its X-Overlap: {policies.overlap} has no X-Timeout: it waits for ever for a fire that nobody finishes",
            "add X-Timeout: so long after it was stored, a fire counts as finished",
        )


def _target_to_allow(known: KnownSchedule) -> Iterator[Finding]:
    is_unknown = known.rules.restrictions.elsewhere is None and not known.is_stored
    if is_unknown and known.terms.policies.target_stream is not None:
        yield Finding(
            Code.TARGET_TO_ALLOW,
            "its X-Target is accepted where the operator allows it",
            "name the target in allowed_targets_elsewhere of the sidecar",
        )


def _source_header(known: KnownSchedule) -> Iterator[Finding]:
    if known.block and header_value(known.block, b"Nats-Stream-Source"):
        yield Finding(
            Code.STREAM_SOURCE_REFUSED,
            "a server of 2.15 or later refuses it for its Nats-Stream-Source, on every stream (10227)",
            "leave this header out",
        )


def _weekdays_numbered(known: KnownSchedule) -> Iterator[Finding]:
    base = known.timetable.pattern.base
    if isinstance(base, Cron) and base.syntax is Syntax.QUARTZ and has_numbered_weekdays(base.text):
        yield Finding(
            Code.WEEKDAYS_NUMBERED,
            "the weekdays of quartz are numbered as in a crontab, where 0 and 7 are Sunday, and in Quartz itself 1 is "
            "Sunday",
            "write names such as MON, which mean the same in both",
        )


def _step_uneven(known: KnownSchedule) -> Iterator[Finding]:
    base = known.timetable.pattern.base
    steps = uneven_steps(base.text, base.fields, base.syntax) if isinstance(base, Cron) else ()
    for step in steps:
        item, instead = step.item[:MAX_KEPT_CHARS], f"use {step.instead}, or " if step.instead else ""
        yield Finding(
            Code.STEP_UNEVEN,
            f"its {step.field} {item} begins anew in each {step.around}, where it is {step.values}",
            f"{instead}write {step.values} if that is meant",
        )


CHECKS: Sequence[Callable[[KnownSchedule], Iterator[Finding]]] = (
    _policies_ignored,
    _source_header,
    _weekdays_numbered,
    _step_uneven,
    _target_to_allow,
    _calendar,
    _refused,
    _silent,
    _defects,
    _ends_within_jitter,
    _policy_without_effect,
    _consumer_to_name,
    _timeout_to_set,
    _skipped_at_once,
    _ends_early,
    _ends_by_age,
    _may_be_evicted,
)
"""All that is found about one schedule."""


def _max_age(rules: StreamRules) -> str:
    return f"max_age of the stream ({format_duration(rules.max_age)})"


def _time(instant: int) -> str:
    """Return an instant (ns) as text, to the second."""
    return format_rfc3339(instant - instant % SECOND)
