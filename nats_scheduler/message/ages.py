"""What the age limit of its stream (`max_age`) does to a schedule, and what helps: one decision, one sentence.

A schedule is a message, so the stream removes it at that age, whether it waits or has fired every minute, and then it
fires no more. What stores or shows a schedule says so in these words.

Rule: a `Nats-TTL` of `never` keeps a message on servers that act on TTLs, from 2.11 on, where the stream has
`allow_msg_ttl`; on 2.10 nothing does (`test_nats_ttl_never_keeps_a_schedule_where_it_is_said_to`).
Cost: a microsecond; for a schedule with a last fire a search for the fire after its end.
"""

from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.headers import MSG_TTL, header_value
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339

_NEVER = b"never"


def outlives_max_age(block: bytes, rules: StreamRules, server: Capabilities | None) -> bool:
    """Return whether a message with these headers stays although its stream has a `max_age`; `server` as below."""
    if not rules.allow_msg_ttl or (server is not None and not server.has_message_ttl):
        return False
    return block.find(MSG_TTL) >= 0 and header_value(block, MSG_TTL) == _NEVER


def is_cut_off(timetable: Timetable, ends: int) -> bool:
    """Return whether a schedule would fire again after an instant (ns) at which its stream removes it."""
    first = timetable.first_fire()
    if first is None or not timetable.repeats or first >= ends:
        return first is not None and first >= ends
    return not timetable.ends_by_itself or timetable.next_fire(ends) is not None


def age_note(block: bytes, timetable: Timetable, rules: StreamRules, server: Capabilities | None) -> str:
    """Return what to say of a schedule that the age limit of its stream ends before its last fire; "" of another one.

    Without a `server` its version is not known.
    """
    ends, first = timetable.stored_at + rules.max_age, timetable.first_fire()
    if not rules.max_age or outlives_max_age(block, rules, server) or not is_cut_off(timetable, ends):
        return ""
    age = f"max_age of the stream ({format_duration(rules.max_age)}) removes it"
    if first is not None and first >= ends:
        return f"{age} before its first fire at {format_rfc3339(first - first % SECOND)}: {what_helps(rules, server)}"
    return f"{age} at that age, and then it never fires again: {what_helps(rules, server)}"


def age_sentence(rules: StreamRules, count: int, server: Capabilities | None) -> str:
    """Return what to say of so many schedules of a stream that fire, and that its age limit ends."""
    them = f"{count} of its schedules"
    return (
        f"max_age ({format_duration(rules.max_age)}) removes {them} before the last fire: {what_helps(rules, server)}"
    )


def what_helps(rules: StreamRules, server: Capabilities | None) -> str:
    """Return what keeps a schedule in a stream with an age limit."""
    if server is not None and not server.has_message_ttl:
        return "raise max_age, or publish it again before that"
    where = "" if rules.allow_msg_ttl else ", on a stream with allow_msg_ttl,"
    since = " from 2.11 on" if server is None else ""
    return f"published with Nats-TTL: never{where} it stays{since}"
