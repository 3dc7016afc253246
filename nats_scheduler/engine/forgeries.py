"""Judge a message that claims to be a fire of a held schedule; `message.genuine` says what counts.

The rule: a message that a sidecar of any version can have built is accepted. A message that is gone is accepted unless
it was stored before its fire time.
A fire that was sent again after a lost acknowledgement is a duplicate too, and may have been consumed since: to reject
it would store it twice.
"""

from nats_scheduler.engine.held import Held
from nats_scheduler.engine.inputs import DuplicateRead
from nats_scheduler.message.genuine import TOO_EARLY, WRONG_TARGET, fault_of, fault_of_following, is_too_early
from nats_scheduler.message.reading import Generated, read_generated
from nats_scheduler.message.stored import StoredMessage


def fault_of_generated(held: Held, generated: Generated, message: StoredMessage, *, moved: bool) -> str:
    """Return why a message cannot be the fire that it claims to be; "" if it can.

    If fires are `moved`, the stream stores them on another subject than their target.
    """
    if not moved and message.subject != held.terms.target:
        return WRONG_TARGET
    return fault_of(generated, message, held, held.terms, held.fire_time)


def fault_of_unheld(generated: Generated, message: StoredMessage) -> str:
    """Say why a message cannot be the fire of any schedule, held or gone, that has the sequence it claims."""
    if generated.sequence >= message.sequence:
        return "it was stored before its schedule"
    if is_too_early(message.stored_at, generated.fire_time):
        return TOO_EARLY
    return fault_of_following(generated, message)


def fault_of_duplicate(held: Held, read: DuplicateRead, *, moved: bool) -> str:
    """Return why a message with the identity of a fire is not that fire; "" if it can be.

    An account may map the target to another subject: a message with the same bytes is accepted there too.
    """
    fire, message = read.fire, read.message
    if read.stored_by is not None and is_too_early(read.stored_by, fire.fire_time):
        return TOO_EARLY
    if message is None or (message.block, message.body) == (fire.block, fire.body):
        return ""
    generated = read_generated(message.block)
    if generated is None or generated[:3] != (fire.schedule, fire.sequence, fire.fire_time):
        return "it is no fire of the schedule"
    if held.terms.source is None and message.body != fire.body:
        return "its body is another one"
    return fault_of_generated(held, generated, message, moved=moved)
