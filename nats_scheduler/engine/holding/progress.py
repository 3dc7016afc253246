"""The progress in reading one stream, whether what is due may fire, and our fires that are still to be read back.

What is stored under an acknowledged sequence is known, so its headers need not be read again; and what follows from it
can wait until a burst is over. Of a large burst nothing is read back at all: the follower says that what is stored up
to some sequence is ours. The rules:

- Nothing fires before everything stored so far has been read, nor once the engine is drained.
- A fire is expected only within one contact, and matched only if the subject is the target, or if the message under
  the acknowledged sequence has its identity (`engine.holding.stored_over.Moves`); any other one is a stranger's.
  One that is concluded once contact is lost is not expected.
- What was acknowledged is stored. Once a message after it was read, it is not expected any more: it was rolled up,
  consumed or deleted before the follower read it.

Cost: an entry a fire, without its body and headers, until it is read back. Limit: `MAX_EXPECTED` fires.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.holding.stored_over import Moves
from nats_scheduler.message.reading import Generated, Reading, read_generated
from nats_scheduler.message.stored import StoredMessage

MAX_EXPECTED = 10_000
"""Fires that are expected at most: a follower that is further behind reads them."""


class Progress:
    """The progress in reading one stream."""

    def __init__(self, *, reads_all: bool, moves: Moves) -> None:
        """Begin with nothing; `reads_all` is False if messages may be gone, or under others, before they are read."""
        self.reads_all = reads_all
        self._moves = moves
        self.mapped: list[tuple[Fire, str]] = []
        """Fires that showed just now that their target is mapped, and where they are stored."""
        self.is_live = False
        """True if everything stored has been read."""
        self.is_draining = False
        """True if no fire is to begin any more."""
        self.last_read = 0
        """The highest stream sequence read so far."""
        self.acknowledged = 0
        """The highest stream sequence under which a fire was acknowledged as stored."""
        self.read_through = 0
        """The sequence up to which look-ups have found everything."""
        self.is_behind = False
        """True if some messages after it were not read although later ones were."""
        self.last_message: StoredMessage | None = None
        """The message with the highest sequence that was read."""
        self.expected: dict[int, Fire] = {}
        """The fires that are to be read back, by sequence."""
        self.matched: deque[Fire] = deque()
        """The fires that were read back, in the order of the stream."""

    @property
    def is_open(self) -> bool:
        """True if a fire may begin."""
        return self.is_live and not self.is_draining

    def contact_lost(self) -> None:
        """Expect nothing: the next contact may be with another stream of the same name."""
        self.is_live = False
        self.expected.clear()

    def note_received(self, messages: Sequence[StoredMessage], through: int) -> None:
        """Note that messages were read, in the order of the stream, and that up to `through` all others are ours."""
        if messages and (last := messages[-1]).sequence > self.last_read:
            self.last_message = last
            self.last_read = last.sequence
        if through > self.last_read:
            self.last_read = through
        if self.expected and self.reads_all:
            self.pass_by(self.last_read)

    def expect(self, fires: Sequence[Fire]) -> None:
        """Expect to read back those of these fires that were stored after what was read last.

        If messages may be gone, or under others, before they are read, fires are taken as read back at once.
        """
        if not self.reads_all:
            self.matched.extend(fires)
        self.acknowledged = max(self.acknowledged, fires[-1].stored_as if fires else 0)
        if not self.is_live:
            return
        expected = self.expected
        for fire in islice(fires, MAX_EXPECTED - len(expected)):
            if fire.stored_as > self.last_read or not self.reads_all:
                expected[fire.stored_as] = fire

    def is_read_by_headers(self, fire: Fire) -> bool:
        """Return whether the message of a fire that was stored just now will be read like those of others."""
        return self.reads_all and fire.stored_as not in self.expected

    def match(self, message: StoredMessage) -> bool:
        """Match a message to an acknowledged fire; return whether it matched."""
        known = self.expected.pop(message.sequence, None)
        if known is None or (known.target != message.subject and not self._is_moved(known, message)):
            return False
        known.stored_at = message.stored_at
        if self.reads_all:
            self.matched.append(known)
        return True

    def _is_moved(self, fire: Fire, message: StoredMessage) -> bool:
        """Return whether a message on another subject than the target is the fire that was acknowledged."""
        generated = read_generated(message.block)
        if generated is None or generated[:3] != (fire.schedule, fire.sequence, fire.fire_time):
            return False
        if self._moves.is_news(fire.target):
            self.mapped.append((fire, message.subject))
        return True

    def pass_by(self, through: int) -> None:
        """Match what is expected up to a sequence without its message, as stored when it was acknowledged.

        A fire that was acknowledged out of the order of the stream waits for those before it.
        """
        expected = self.expected
        while expected and (first := next(iter(expected))) <= through:
            fire = expected.pop(first)
            if self.reads_all:
                self.matched.append(fire)


def reading_of(fire: Fire) -> tuple[Reading, StoredMessage]:
    """Return what a fire that was read back says, and its message."""
    message = StoredMessage(fire.target, fire.stored_as, fire.stored_at, b"", None)
    generated = Generated(fire.schedule, fire.sequence, fire.fire_time, fire.schedule_stored_at, fire.delay)
    return Reading(generated=generated), message
