"""What happens to the fire times of a schedule if its message is stored again: that changes its stored time.

The rule: a repeating schedule keeps the fire times that it would have had. Those of a cron pattern do not depend on the
stored time. The grid of `@every` begins at the stored time, so it is written into the message as `X-Anchor`: the first
fire time, or the stored time rounded to a second if the first fire time is no whole second.

Limits: a server that fires by itself knows no `X-Anchor` and begins anew at the new stored time. So does the count of
an `X-Limit`, and a `Nats-TTL`. An interval with a fraction of a second that is changed within half a second after it
was stored may fire once more, at the rounded stored time.
"""

from nats_scheduler.control.current import Current
from nats_scheduler.control.words import edited
from nats_scheduler.message.headers import MSG_TTL, header_value
from nats_scheduler.message.policies import policy_header
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.instants import SECOND, round_to_second
from nats_scheduler.schedule.patterns import Every, Pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339

BEGINS_ANEW = "the interval of @every begins anew: the server fires this schedule, and it knows no X-Anchor"


def anchor_name(found: Current) -> bytes:
    """Return the name of the header that keeps the grid of a schedule."""
    return policy_header("X-Anchor", found.dialect)


def with_phase(found: Current, block: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a block that replaces the one of an active schedule and keeps its grid, and what to say of that."""
    if found.definition is None or not has_grid(found.definition.pattern):
        return block, ()
    name = anchor_name(found)
    if header_value(block, name) is not None:
        return block, ()
    if found.is_fired_by_server:
        return block, (BEGINS_ANEW,)
    anchor = format_rfc3339(_whole_second_of_grid(found.definition.pattern, found.message.stored_at))
    return edited(block, Edit(set=[(name, anchor.encode())])), (f"{name.decode()}: {anchor} keeps its fire times",)


def has_grid(pattern: Pattern) -> bool:
    """Return whether the fire times depend on the stored time."""
    return isinstance(pattern.base, Every)


def _whole_second_of_grid(pattern: Pattern, stored_at: int) -> int:
    """Return a whole second from which the grid of an interval counts: the first fire time if that is one."""
    first = Timetable(pattern.base, stored_at).first_fire()
    return round_to_second(stored_at) if first is None or first % SECOND else first


def counted_anew(found: Current) -> tuple[str, ...]:
    """Return what else begins anew when the message of a schedule is stored again."""
    notes = []
    if not found.is_fired_by_server and header_value(found.message.block, policy_header("X-Limit", found.dialect)):
        notes.append("X-Limit counts the fires from now on")
    if header_value(found.message.block, MSG_TTL):
        notes.append("the Nats-TTL of the schedule begins anew")
    return tuple(notes)
