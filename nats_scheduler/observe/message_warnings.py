"""Warnings about valid messages: schedules that their stream ends early, and headers that have no effect.

Rule: a warning changes neither the answer nor the exit code; it says what will happen, and by which setting.
Cost: microseconds. Limit: what else the stream holds is not known. So if it removes its oldest messages because it is
full, the time of that is not known.
"""

from collections.abc import Iterator

from nats_scheduler.message.ages import age_note, outlives_max_age
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import ADR51, DIALECTS
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.misnamed import misnamed_headers
from nats_scheduler.message.policies import Kept, Overlap, Policies
from nats_scheduler.message.reading import Reading, lifetime_of
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.explanations import ANY_STREAM_RULES
from nats_scheduler.observe.texts import NO_SERVER_KNOWS, policies_text, printable
from nats_scheduler.observe.times import span_text, time_text
from nats_scheduler.schedule.cron_syntax import has_numbered_weekdays
from nats_scheduler.schedule.patterns import Cron, Pattern, Syntax


def warnings_about(
    block: bytes,
    reading: Reading | None,
    rules: StreamRules,
    stored_at: int,
    server: Capabilities | None = None,
    *,
    says_age: bool = True,
) -> list[str]:
    """Return the warnings about a message with these headers, stored at `stored_at` (ns) under these stream rules.

    `server` is the one that stores it, None if it is not known. Without `says_age` nothing is said of `max_age`: the
    notes of a change say it.
    """
    definition = None if reading is None else reading.defined
    misnamed = misnamed_headers(block, DIALECTS, is_schedule=definition is not None)
    warnings = [f"{printable(header)} {reason}" for header, reason in misnamed]
    if definition is None:
        return warnings
    if definition.terms.dialect is ADR51 and policies_text(definition.terms.policies):
        warnings.append(f"it has policies that {NO_SERVER_KNOWS}")
    if header_value(block, b"Nats-Stream-Source"):
        warnings.append("a server of 2.15 or later refuses it for its Nats-Stream-Source, on every stream (10227)")
    warnings += pattern_warnings(definition.pattern)
    if definition.terms.policies.target_stream is not None and rules.restrictions.elsewhere is None:
        warnings.append(
            "its X-Target is accepted where the operator allows it: allowed_targets_elsewhere of the sidecar"
        )
    if (name := definition.pattern.unknown_calendar) is not None:
        warnings.append(f"it fires only if the calendar {name} exists, and not on its days, which are not known here")
    timetable, jitter = definition.timetable(stored_at), definition.terms.policies.jitter
    if jitter is not None:
        warnings += _of_jitter(block, timetable, rules, jitter, server)
    warnings += _of_missed(timetable, definition.terms.policies, stored_at)
    warnings += _of_overlap(timetable, definition.terms.policies, rules)
    note = age_note(block, timetable, rules, server) if says_age else ""
    return [*warnings, *_of_lifetime(block, timetable, rules), *([note] if note else [])]


def _of_overlap(timetable: Timetable, policies: Policies, rules: StreamRules) -> Iterator[str]:
    """Warn of policies about unfinished fires that have no effect, or that a stream may insist on."""
    if not policies.asking:
        return
    if policies.overlap is not Overlap.ALLOW and not timetable.repeats:
        yield "its X-Overlap has no effect: it fires once"
    if rules is ANY_STREAM_RULES and policies.consumer is None:
        yield f"on a stream with limits retention it is rejected, because its {policies.asking} needs X-Consumer there"
    elif rules is not ANY_STREAM_RULES and policies.consumer is not None and not rules.keeps_acknowledged:
        yield "its X-Consumer has no effect on this stream, which removes what was acknowledged"


def _of_missed(timetable: Timetable, policies: Policies, stored_at: int) -> Iterator[str]:
    """Warn if a grace has no effect, and if an `@at` is skipped as soon as it is stored."""
    kept, most = policies.missed
    if any(name == "X-Grace" for name, _value in policies.written) and kept is not Kept.SKIP and most is None:
        yield "its X-Grace has an effect only with X-Missed: skip, and with all and a number"
    due = None if timetable.repeats else timetable.first_fire()
    if due is not None and kept is Kept.SKIP and stored_at - timetable.send_time_of(due) > policies.grace:
        yield "its time is past by more than its X-Grace: X-Missed: skip removes it without a fire"


def _of_jitter(
    block: bytes, timetable: Timetable, rules: StreamRules, jitter: int, server: Capabilities | None
) -> Iterator[str]:
    """Warn if the stream may remove a schedule while its first fire is delayed: that depends on its sequence."""
    due, lifetimes = timetable.first_fire(), [lifetime_of(block)]
    if not outlives_max_age(block, rules, server):
        lifetimes.append(rules.max_age)
    kept = min((lifetime for lifetime in lifetimes if lifetime), default=None)
    if due is None or kept is None:
        return
    ends, following = timetable.stored_at + kept, timetable.next_fire(due)
    latest = due + jitter if following is None else min(due + jitter, following)
    if due < ends < latest:
        yield f"its X-Jitter may delay its first fire until {time_text(latest)}, and it ends after {span_text(kept)}"


def pattern_warnings(pattern: Pattern) -> list[str]:
    """Return the warnings about a pattern that is valid and may be meant otherwise."""
    base = pattern.base
    if not isinstance(base, Cron) or base.syntax is not Syntax.QUARTZ or not has_numbered_weekdays(base.text):
        return []
    return [
        "the weekdays of quartz are numbered as in a crontab, where 0 and 7 are Sunday, and in Quartz itself 1 is "
        "Sunday; names such as MON mean the same in both"
    ]


def _of_lifetime(block: bytes, timetable: Timetable, rules: StreamRules) -> Iterator[str]:
    due, stored_at = timetable.first_fire(), timetable.stored_at
    if due is None:
        return
    lifetime = lifetime_of(block)
    if lifetime is not None and due >= stored_at + lifetime:
        yield f"its own Nats-TTL ends it after {span_text(lifetime)}, before its first fire at {time_text(due)}"
    if rules.evicts:
        yield "the stream has max_msgs or max_bytes: when it is full it removes its oldest messages, schedules too"
