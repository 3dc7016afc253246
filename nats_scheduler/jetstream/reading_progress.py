"""How far a stream is read, to be shown to people.

The rule: where messages are read in their order the last sequence says how far it is; where each subject is requested
by itself the sequences come in no order, so only the number of messages is known.
"""

from collections.abc import Callable, Sequence

from nats_scheduler.jetstream.consumers import reads_all
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.stored import StoredMessage

Progress = Callable[[str, int, int | None], None]
"""Receives what is done now, how much of it is done, and how much there is; None if that is not known."""


def reading_progress(
    show: Progress, what: str, state: StreamState, after: int = 0
) -> Callable[[Sequence[StoredMessage]], None]:
    """Return what shows how far a stream is read above sequence `after`; to be called with each batch of messages."""
    count, first = 0, max(state.first_sequence, after + 1, 1)

    def take(messages: Sequence[StoredMessage]) -> None:
        nonlocal count
        count += len(messages)
        if not reads_all(state.config):
            show(what, count, None)
        elif messages:
            last = max(message.sequence for message in messages)
            show(what, last - first + 1, state.last_sequence - first + 1)

    return take
