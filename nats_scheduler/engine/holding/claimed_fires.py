"""Why a message that claims to be a fire of a held schedule is none; `message.fire_faults` says what one contains.

The rules:

- A message that a sidecar of any version can have built is accepted.
- A message that is gone is accepted unless it was stored before its fire time. A fire that was sent again after a lost
  acknowledgement is a duplicate too, and may have been consumed since: to reject it would store it twice.
- A fire that cannot have its identity, because a forged message has it, is sent under another one. But the stream keeps
  an identity for its duplicate window only: at the end of it, the fire would be stored a second time by what others
  have sent under the first identity and is still in transit. So the identity is not changed shortly before that.

Limit: of an `@at` whose time was past when it was stored, a fire into another stream of unknown outcome is stored twice
if the clocks of the two leaders differ by more than it took to fire.
"""

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import DuplicateFetched
from nats_scheduler.message.fire_faults import TOO_EARLY, WRONG_TARGET, fault_of, fault_of_following, is_too_early
from nats_scheduler.message.reading import Generated, read_generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

TOO_OLD = "it was stored before its schedule"

FREE_SOON_NS = 750 * MILLISECOND
"""If a taken identity is free within this time, a fire waits for that; or within half of a shorter duplicate window.

It is more than a fire is in transit, and less than the shortest interval, a second: whatever is forged, no schedule
misses a fire because it waits for the one before.
"""

KEPT_LONGER_NS = SECOND // 2
"""The time (ns) after the end of the duplicate window for which an identity may still be taken.

As the server does: it deletes identities at most every 50 ms. Clocks may differ too. After its restart it may keep them
for another window: nothing waits for that.
"""


def fault_of_generated(held: Held, generated: Generated, message: StoredMessage, *, moved: bool) -> str:
    """Return why a message cannot be the fire that it claims to be; "" if it can.

    If fires are `moved`, the stream stores them on another subject than their target.
    """
    if held.is_to_other_stream or (not moved and message.subject != held.terms.target):
        return WRONG_TARGET
    return fault_of(generated, message, held, held.terms, held.fire_time)


def fault_in_other_stream(held: Held, generated: Generated, message: StoredMessage) -> str:
    """Return why a message in the stream of a target elsewhere cannot be the fire that it claims to be; "" if it can.

    Under which subject that stream stores what is published to the target is not known here.
    """
    if is_older(held, generated.fire_time, message.stored_at):
        return TOO_OLD
    return fault_of(generated, message, held, held.terms, held.fire_time)


def is_older(held: Held, fire_time: int, stored_at: int) -> bool:
    """Return whether a message in another stream is the fire of an earlier schedule with the same subject and sequence.

    The schedule's stream was deleted and created again since, and only stored times can show it. A fire time that was
    to come when the schedule was stored cannot have an older fire, and there the clocks of two leaders may differ.
    """
    return held.is_to_other_stream and stored_at < held.stored_at and fire_time <= held.stored_at


def fault_of_unheld(generated: Generated, message: StoredMessage) -> str:
    """Say why a message cannot be the fire of any schedule, held or gone, that has the sequence it claims."""
    if generated.sequence >= message.sequence:
        return TOO_OLD
    if is_too_early(message.stored_at, generated.fire_time):
        return TOO_EARLY
    return fault_of_following(generated, message)


def fault_of_duplicate(held: Held, read: DuplicateFetched, *, moved: bool) -> str:
    """Return why a message with the identity of a fire is not that fire; "" if it can be.

    An account may map the target to another subject: a message with the same bytes is accepted there too.
    """
    fire, message = read.fire, read.message
    if read.stored_by is not None and is_too_early(read.stored_by, fire.fire_time):
        return TOO_EARLY
    if read.stored_by is not None and is_older(held, fire.fire_time, read.stored_by):
        return TOO_OLD  # even with the same bytes
    if message is None or (message.block, message.body) == (fire.block, fire.body):
        return ""
    generated = read_generated(message.block)
    if generated is None or generated[:3] != (fire.schedule, fire.sequence, fire.fire_time):
        return "it is no fire of the schedule"
    if held.terms.source is None and message.body != fire.body:
        return "its body is another one"
    if held.is_to_other_stream:
        return fault_in_other_stream(held, generated, message)
    return fault_of_generated(held, generated, message, moved=moved)


def free_soon(read: DuplicateFetched, duplicate_window: int, now: int) -> int | None:
    """Return how long (ns) it takes until the identity of a fire is free, below 0 if it should be; None if too long.

    `duplicate_window` (ns) is that of the stream. Limit: if the message that has the identity is gone, it may have been
    stored earlier than is known, and the identity is free earlier.
    """
    if read.stored_by is None:
        return None
    left = read.stored_by + duplicate_window - now
    return left if -KEPT_LONGER_NS <= left < min(FREE_SOON_NS, duplicate_window // 2) else None


# The targets whose fires are stored on another subject: a subject transform of the stream moves all, and a mapping of
# the account some. Of a mapping nothing is known but what it does to a fire of ours, which is recognised by its
# identity under the sequence that was acknowledged. From then on the fires of others for that target are believed too.
