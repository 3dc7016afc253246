"""Fires that were acknowledged and not read back yet, by their sequences in the stream.

What is stored under an acknowledged sequence is known, so its headers need not be read again; and what follows from it
can wait until a burst is over.
Of a large burst nothing is read back at all: the follower says that what is stored up to some sequence is ours.
The rules:

- Only within one contact, and only if the subject is the target; any other message is read as a stranger's.
- What was acknowledged is stored. Once a message after it was read, it is not expected any more: it was rolled up,
  consumed or deleted before the follower read it.

Cost: an entry a fire, without its body and headers, until it is read back. Limit: `MAX_EXPECTED` fires.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice

from nats_scheduler.engine.fire import Fire
from nats_scheduler.message.reading import Generated, Reading
from nats_scheduler.message.stored import StoredMessage

MAX_EXPECTED = 10_000
"""Fires that are expected at most: a follower that is further behind reads them."""


class Sightings:
    """The fires of one stream that are to be read back."""

    def __init__(self) -> None:
        self.expected: dict[int, Fire] = {}
        """What is to be read back, by sequence."""
        self.matched: deque[Fire] = deque()
        """What was read back, in the order of the stream."""

    def expect(self, fires: Iterable[Fire], last_read: int) -> None:
        """Expect those of these fires that were stored after what was read last."""
        expected = self.expected
        for fire in islice(fires, MAX_EXPECTED - len(expected)):
            if fire.stored_as > last_read:
                expected[fire.stored_as] = fire

    def match(self, message: StoredMessage) -> bool:
        """Match a message to an acknowledged fire; return whether it matched."""
        known = self.expected.pop(message.sequence, None)
        if known is None or known.target != message.subject:
            return False
        known.stored_at = message.stored_at
        self.matched.append(known)
        return True

    def pass_by(self, through: int) -> None:
        """Match what is expected up to a sequence without its message, as stored when it was acknowledged.

        A fire that was acknowledged out of the order of the stream waits for those before it.
        """
        expected = self.expected
        while expected and (first := next(iter(expected))) <= through:
            self.matched.append(expected.pop(first))

    @staticmethod
    def reading_of(fire: Fire) -> tuple[Reading, StoredMessage]:
        """Return what one of `matched` says, and the message."""
        message = StoredMessage(fire.target, fire.stored_as, fire.stored_at, b"", None)
        generated = Generated(fire.schedule, fire.sequence, fire.fire_time, fire.schedule_stored_at, fire.delay)
        return Reading(generated=generated), message

    def discard(self) -> None:
        """Expect nothing: the next contact may be with another stream of the same name."""
        self.expected.clear()
