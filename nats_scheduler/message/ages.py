"""When its stream removes a schedule, whether that is before a fire of it, and what helps.

A schedule is a message, so a stream with an age limit (`max_age`) removes it at that age, whether it waits or has fired
every minute, and then it fires no more. Its own `Nats-TTL` may end it before.

Rule: a `Nats-TTL` of `never` keeps a message on servers that act on TTLs, from 2.11 on, where the stream has
`allow_msg_ttl`; on 2.10 nothing does (`test_nats_ttl_never_keeps_a_schedule_where_it_is_said_to`).
Cost: a microsecond; for a schedule with a last fire a search for the fire after its end.
"""

from typing import NamedTuple

from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.headers import MSG_TTL, header_value
from nats_scheduler.message.reading import lifetime_of
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.timetable import Timetable

_NEVER = b"never"


def outlives_max_age(block: bytes, rules: StreamRules, server: Capabilities | None) -> bool:
    """Return whether a message with these headers stays although its stream has a `max_age`; `server` as below."""
    if not rules.allow_msg_ttl or (server is not None and not server.has_message_ttl):
        return False
    return block.find(MSG_TTL) >= 0 and header_value(block, MSG_TTL) == _NEVER


class Removal(NamedTuple):
    """When (ns) a stream removes a message, and whether its `max_age` does or the message's own TTL."""

    at: int
    is_by_age: bool


def removal_of(block: bytes, stored_at: int, rules: StreamRules, server: Capabilities | None) -> Removal | None:
    """Return when a message with these headers is removed that is stored at an instant (ns); None if it stays."""
    lifetime = lifetime_of(block)
    is_aged = bool(rules.max_age) and not outlives_max_age(block, rules, server)
    if lifetime is not None and not (is_aged and rules.max_age < lifetime):
        return Removal(stored_at + lifetime, is_by_age=False)
    return Removal(stored_at + rules.max_age, is_by_age=True) if is_aged else None


def is_early(ends: int, send_time: int) -> bool:
    """Return whether a schedule that is removed at an instant (ns) is gone when its fire is to be sent."""
    return ends <= send_time


def is_cut_off(timetable: Timetable, ends: int) -> bool:
    """Return whether a schedule would fire again after an instant (ns) at which its stream removes it."""
    first = timetable.first_fire()
    if first is None or not timetable.repeats or first >= ends:
        return first is not None and first >= ends
    return not timetable.ends_by_itself or timetable.next_fire(ends) is not None


def what_helps(rules: StreamRules, server: Capabilities | None) -> str:
    """Return what keeps a schedule in a stream with an age limit."""
    if server is not None and not server.has_message_ttl:
        return "raise max_age, or publish it again before that"
    where = "" if rules.allow_msg_ttl else ", on a stream with allow_msg_ttl,"
    since = " from 2.11 on" if server is None else ""
    return f"published with Nats-TTL: never{where} it stays{since}"
