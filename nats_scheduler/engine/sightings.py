"""Fires that were acknowledged and not read back yet, by their sequences in the stream.

What lies under an acknowledged sequence is known, and need not be read out of its headers again; and what follows from
it, that it was seen, can wait until no herd is in the way.
Of a herd nothing comes back at all: what is stored up to some sequence is told to be ours.
The rule: only within one contact, and only where the subject is the target; anything else is read as if by a stranger.

Cost: an entry a fire, for the milliseconds until the follower comes by. Limit: the first `MOST` of them.
"""

from collections import deque
from itertools import takewhile

from nats_scheduler.engine.fire import Fire
from nats_scheduler.message.reading import Generated, Reading
from nats_scheduler.message.stored import StoredMessage

MOST = 10_000
"""Entries that are kept at most: a follower that is further behind reads."""


class Sightings:
    """The fires of one stream that are to be seen."""

    def __init__(self) -> None:
        self.expected: dict[int, tuple[Fire, int]] = {}
        """What is to be seen, by sequence, and when (ns) it was acknowledged."""
        self.seen: deque[tuple[Fire, StoredMessage]] = deque()
        """What was seen, in the order of the stream."""

    def expect(self, fire: Fire, sequence: int, now: int) -> None:
        """Note that a fire was stored under a sequence that was not read yet."""
        if len(self.expected) < MOST:
            self.expected[sequence] = fire, now

    def take(self, message: StoredMessage) -> bool:
        """Take a message for `seen` if it is what was expected, and expect it no more."""
        known = self.expected.pop(message.sequence, None)
        if known is None or known[0].target != message.subject:
            return False
        self.seen.append((known[0], message))
        return True

    def pass_by(self, through: int) -> None:
        """Take what is expected up to a sequence for seen, though nobody reads it, and as stored when acknowledged."""
        passed = list(takewhile(lambda sequence: sequence <= through, self.expected))
        for sequence in passed:
            fire, acknowledged = self.expected.pop(sequence)
            self.seen.append((fire, StoredMessage(fire.target, sequence, acknowledged, fire.block, None)))

    def next_seen(self) -> tuple[Reading, StoredMessage]:
        """Return what the first of `seen` means, and the message."""
        fire, message = self.seen.popleft()
        return Reading(generated=Generated(fire.schedule, fire.sequence, fire.fire_time)), message

    def forget(self) -> None:
        """Expect nothing: the next contact may be with another stream of the same name."""
        self.expected.clear()
