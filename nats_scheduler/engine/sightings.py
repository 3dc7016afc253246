"""Fires that were acknowledged and not read back yet, by their sequences in the stream.

What lies under an acknowledged sequence is known, and need not be read out of its headers again; and what follows from
it, that it was seen, can wait until no herd is in the way.
The rule: only within one contact, and only where the subject is the target; anything else is read as if by a stranger.

Cost: an entry a fire, for the milliseconds until the follower comes by. Limit: the first `MOST` of them.
"""

from collections import deque

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
        self.seen: deque[tuple[Fire, StoredMessage]] = deque()
        """What was seen, in the order of the stream."""

    def expect(self, fire: Fire, sequence: int) -> None:
        """Note that a fire was stored under a sequence that was not read yet."""
        if len(self.expected) < MOST:
            self.expected[sequence] = fire

    def take(self, message: StoredMessage) -> bool:
        """Take a message for `seen` if it is what was expected, and expect it no more."""
        fire = self.expected.pop(message.sequence, None)
        if fire is None or fire.target != message.subject:
            return False
        self.seen.append((fire, message))
        return True

    def next_seen(self) -> tuple[Reading, StoredMessage]:
        """Return what the first of `seen` means, and the message."""
        fire, message = self.seen.popleft()
        return Reading(generated=Generated(fire.schedule, fire.sequence, fire.fire_time)), message

    def forget(self) -> None:
        """Expect nothing: the next contact may be with another stream of the same name."""
        self.expected.clear()
