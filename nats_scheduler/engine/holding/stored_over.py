"""The messages that were stored over schedules and leave them alive: other schedules' fires, and cancels.

A message is stored over a schedule if it is on its subject, and newer.
As the server does: one that another schedule generated, or that cancels one, ends no schedule that it is stored over
(`test_what_fires_and_what_remains_is_the_same_in_every_stream`).
What lies on it then is the last message on its subject: that is what the guard of its next fire has to expect, and its
own message is found by its sequence alone.

The rule: nothing is taken for the last message on a subject before all below it is known, since what lies between may
have replaced the schedule. The follower reports it where it reads all; else one message after the other is looked at.

Such a guard shows whether anything else came onto the subject, and not whether the schedule itself is still stored.
A server of 2.11 keeps the identity of what its guard refused for the whole duplicate window where the stream has
replicas: there such a schedule fires without a guard, and one over which a message was stored just now with another
identity. So it is looked at as where there is no guard: at most 50 ms before its fire, at each retry, and whenever a
client asks for a removal.

Cost: an entry for each schedule with a message over it, and nothing for all others.
"""

from collections.abc import Mapping, Sequence

from nats_scheduler.engine.holding.claimed_fires import fault_of_generated, fault_of_unheld
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.message.fire_faults import is_too_early
from nats_scheduler.message.reading import Generated, Reading
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_covered

MAX_MAPPED_TARGETS = 1_000
"""The most mapped targets of a stream that are known; of more, only what was acknowledged here counts as ours."""


class Moves:
    """Which fires the stream stores on another subject than their target."""

    def __init__(self, *, moves_all: bool) -> None:
        """Know of no mapping; `moves_all` if the stream transforms subjects."""
        self.moves_all = moves_all
        self._mapped: set[str] = set()

    def moves(self, target: str) -> bool:
        """Return whether fires for a target may be on another subject."""
        return self.moves_all or target in self._mapped

    def is_news(self, target: str) -> bool:
        """Note that a fire of ours for a target was stored on another subject; return whether that was not known."""
        if self.moves(target) or len(self._mapped) >= MAX_MAPPED_TARGETS:
            return False
        self._mapped.add(target)
        return True


class StoredOver:
    """The sequences of what was stored over schedules last, by those of the schedules."""

    def __init__(self, schedules: Schedules, subjects: Sequence[str], moves: Moves) -> None:
        """Begin with nothing, for a stream with these subjects."""
        self._schedules = schedules
        self._subjects = subjects
        self.moves = moves
        """Which fires are on another subject than their target."""
        self._moved = moves.moves_all
        self._last: dict[int, int] = {}

    def may_be(self, reading: Reading | None, message: StoredMessage) -> bool:
        """Return whether a message leaves a schedule alive on whose subject it lies: another one's fire, or a cancel.

        Of a fire whose schedule is not held any more it is not known where it belongs; it is believed if it can be one.
        """
        if reading is None:
            return False
        if (beside := reading.beside) is not None:
            is_of_another = self._moved or beside.schedule != message.subject
            return is_of_another and not self.is_from_elsewhere(beside)
        generated = reading.generated
        if generated is None:
            return reading.cancels is not None and reading.definition is None
        if generated.schedule == message.subject and not self._moved:
            return False
        held = self._schedules.exactly(generated.schedule, generated.sequence)
        if held is None:
            return not self.is_from_elsewhere(generated) and not fault_of_unheld(generated, message)
        return not fault_of_generated(held, generated, message, moved=self.moves.moves(held.terms.target))

    def is_from_elsewhere(self, generated: Generated) -> bool:
        """Return whether a fire is one of another stream's schedules, which ends what it is stored over.

        No two streams of an account have the same subject.
        """
        return not self._moved and not is_covered(generated.schedule, self._subjects)

    def may_be_in_time(self, held: Held | None, generated: Generated, message: StoredMessage) -> bool:
        """Return whether another instance may have stored a message as a fire of this stream's schedules, in time.

        `held` is the schedule that it names, None if that is not held.
        """
        is_of_another = held is None and self.is_from_elsewhere(generated)
        return not is_of_another and not is_too_early(message.stored_at, generated.fire_time)

    def is_over(self, held: Held) -> bool:
        """Return whether a message is over a schedule."""
        return held.sequence in self._last

    def last_on(self, held: Held) -> int:
        """Return the sequence of the last message on a schedule's subject, as far as that is known."""
        return self._last.get(held.sequence, held.sequence)

    def note(self, held: Held, sequence: int) -> bool:
        """Note that a message is over a schedule, and known up to a sequence; returns whether that is news."""
        is_news = sequence > self.last_on(held) or not self.is_over(held)
        if is_news:
            self._last[held.sequence] = sequence
        return is_news

    def knows(self, held: Held, sequence: int) -> bool:
        """Return whether the message with a sequence is known to be over a schedule."""
        return self.is_over(held) and sequence <= self.last_on(held)

    def found(self, held: Held, sequence: int, *, is_next: bool) -> bool:
        """Note what was found above a schedule, whether or not it `is_next` after what is known; return if it is news.

        If it is not, what lies between is to be read first, unless there is less than what was known.
        """
        before = self.last_on(held) if self.is_over(held) else 0
        self.set_back(held, sequence if is_next or sequence < before else self.last_on(held))
        return self.last_on(held) != before

    def set_back(self, held: Held, sequence: int) -> None:
        """Take this message for the last one on a schedule's subject: what was noted above it is gone."""
        self._last[held.sequence] = max(sequence, held.sequence)

    def known(self) -> dict[int, int]:
        """Return the sequences of what was stored over schedules last, by those of the schedules."""
        return dict(self._last)

    def restore(self, known: Mapping[int, int]) -> None:
        """Begin with what was `known`."""
        self._last = dict(known)

    def forget(self, held: Held) -> bool:
        """Take a schedule for the last message on its subject; returns whether that is news."""
        return self._last.pop(held.sequence, None) is not None
