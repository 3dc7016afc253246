"""Whether a fire in a stream in memory is finished: the answer of `MemoryContact` to `CheckFinished`."""

from nats_scheduler.engine.finish import CheckFinished, consumer_missing, target_not_received
from nats_scheduler.engine.inputs import FinishAnswer, FinishChecked, FinishUnchecked
from nats_scheduler.message.generated import is_generated_by
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.testing.memory_stream import MemoryStream

NOT_APPLIED = "the leader has not come so far"


def answer_to(request: CheckFinished, stream: MemoryStream) -> FinishAnswer:
    """Return what a server would say of the fires in question."""
    if not stream.has_applied(request.through):
        return FinishUnchecked(request, NOT_APPLIED)
    unfinished, fault = _first_stored(request, stream), ""
    if request.consumer is not None:
        consumer = stream.consumers.get(request.consumer)
        if consumer is None:
            fault = consumer_missing(stream.rules.name, request.consumer)
        elif not consumer.receives(request.target):
            fault = target_not_received(request.consumer, request.target)
        elif not 0 < consumer.first_unacknowledged <= request.through:
            return FinishChecked(request)
        if not request.names_one:
            return FinishChecked(request, request.through, 0, fault)
    if unfinished is None:
        return FinishChecked(request)
    return FinishChecked(request, unfinished.sequence, unfinished.stored_at, fault)


def _first_stored(request: CheckFinished, stream: MemoryStream) -> StoredMessage | None:
    """Return the first of the fires in question that is stored."""
    if request.names_one:
        named = stream.message(request.through)
        found = [] if named is None else [named]
    else:
        found = list(stream.messages(request.target, request.after))
    stored = (one for one in found if is_generated_by(one.block, request.schedule))
    first = next(stored, None)
    return None if first is None or first.sequence > request.through else first
