"""What follows after a stored fire of a schedule with calendars: their days may have changed since it was built.

The rule: what a stored fire says of the end of its schedule counts, and otherwise the days as they are now.
Cost: nothing for other schedules.
"""

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.held import Held, HeldWithPolicies
from nats_scheduler.message.genuine import names_end
from nats_scheduler.message.stored import StoredMessage


def following_by_calendars(held: HeldWithPolicies, fire: Fire) -> int | None:
    """Return the fire time after a stored fire; that of a calendar's days as they are now, unless it was the last."""
    if fire.next_fire is None or not held.calendars:
        return fire.next_fire
    return held.next_fire(fire.fire_time)


def is_named_last(held: HeldWithPolicies, fire_time: int, message: StoredMessage) -> bool:
    """Return whether the stored fire of a schedule with a calendar says that it is the last one."""
    if not held.calendars:
        return False
    if message.block:
        return names_end(message.block, held.terms)
    fire = None if held.flight is None else held.flight.fire  # it was acknowledged, and not read again
    return fire is not None and fire.fire_time == fire_time and fire.next_fire is None


def may_be_left(held: Held) -> bool:
    """Return whether an edit of a calendar may leave a later fire of a schedule of which its calendars leave none."""
    if not isinstance(held, HeldWithPolicies) or not held.calendars or not held.repeats:
        return False
    return held.next_possible(held.fire_time) is not None
