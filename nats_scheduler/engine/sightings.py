"""Fires that were acknowledged and not read back yet, by their sequences in the stream.

What lies under an acknowledged sequence is known, and need not be read out of its headers again.
The rule: only within one contact, and only where the subject is the target; anything else is read as if by a stranger.

Cost: an entry a fire, for the milliseconds until the follower comes by. Limit: the first `MOST` of them.
"""

from nats_scheduler.engine.fire import Fire
from nats_scheduler.message.reading import Generated, Reading
from nats_scheduler.message.stored import StoredMessage

MOST = 10_000
"""Entries that are kept at most: a follower that is further behind reads."""


class Sightings:
    """The fires of one stream that are to be seen."""

    def __init__(self) -> None:
        self.expected: dict[int, tuple[str, Reading]] = {}
        """What is to be seen, by sequence."""

    def expect(self, fire: Fire, sequence: int) -> None:
        """Note that a fire was stored under a sequence that was not read yet."""
        if len(self.expected) < MOST:
            generated = Generated(fire.schedule, fire.sequence, fire.fire_time)
            self.expected[sequence] = (fire.target, Reading(generated=generated))

    def reading_of(self, message: StoredMessage) -> Reading | None:
        """Return what a message is known to mean, and expect it no more."""
        target, reading = self.expected.pop(message.sequence, (None, None))
        return reading if target == message.subject else None

    def forget(self) -> None:
        """Expect nothing: the next contact may be with another stream of the same name."""
        self.expected.clear()
