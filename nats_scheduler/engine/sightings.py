"""Fires that were acknowledged and not read back yet, by their sequences in the stream.

What lies under an acknowledged sequence is known, and need not be read out of its headers again; and what follows from
it, that it was seen, can wait until no herd is in the way.
Of a herd nothing comes back at all: what is stored up to some sequence is told to be ours.
The rules:

- Only within one contact, and only where the subject is the target; anything else is read as if by a stranger.
- What was acknowledged is stored. Once something behind it was read, it is not waited for any more: it was rolled up,
  consumed or deleted before the follower came by.

Cost: an entry a fire, without its body and headers, until the follower comes by. Limit: the first `MOST` of them.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice

from nats_scheduler.engine.fire import Fire
from nats_scheduler.message.reading import Generated, Reading
from nats_scheduler.message.stored import StoredMessage

MOST = 10_000
"""Entries that are kept at most: a follower that is further behind reads."""


class Sightings:
    """The fires of one stream that are to be seen."""

    def __init__(self) -> None:
        self.expected: dict[int, Fire] = {}
        """What is to be seen, by sequence."""
        self.seen: deque[Fire] = deque()
        """What was seen, in the order of the stream."""

    def expect(self, fires: Iterable[Fire], last_read: int) -> None:
        """Note which of these fires were stored behind what was read last."""
        expected = self.expected
        for fire in islice(fires, MOST - len(expected)):
            if fire.stored_as > last_read:
                expected[fire.stored_as] = fire

    def take(self, message: StoredMessage) -> bool:
        """Take a message for `seen` if it is what was expected, and expect it no more."""
        known = self.expected.pop(message.sequence, None)
        if known is None or known.target != message.subject:
            return False
        known.stored_at = message.stored_at
        self.seen.append(known)
        return True

    def pass_by(self, through: int) -> None:
        """Take what is expected up to a sequence for seen, though nobody reads it, and as stored when acknowledged.

        What was acknowledged out of the order of the stream is passed by with what stands in front of it.
        """
        expected = self.expected
        while expected and (first := next(iter(expected))) <= through:
            self.seen.append(expected.pop(first))

    def next_seen(self) -> tuple[Reading, StoredMessage]:
        """Return what the first of `seen` means, and the message."""
        fire = self.seen.popleft()
        message = StoredMessage(fire.target, fire.stored_as, fire.stored_at, b"", None)
        generated = Generated(fire.schedule, fire.sequence, fire.fire_time, fire.schedule_stored_at)
        return Reading(generated=generated), message

    def forget(self) -> None:
        """Expect nothing: the next contact may be with another stream of the same name."""
        self.expected.clear()
