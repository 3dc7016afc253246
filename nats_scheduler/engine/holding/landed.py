"""The messages that landed on the subjects of held schedules and leave them alive: other schedules' fires, and cancels.

As the server does: a message that another schedule generated, or that cancels one, ends no schedule on whose subject it
lands (`test_a_schedule_lives_on_under_what_landed`).
What lies on it then is the last message on its subject: that is what the guard of its next fire has to expect, and its
own message is found by its sequence alone.

The rule: nothing is taken for the last message on a subject before all below it is known, since what lies between may
have replaced the schedule. The follower reports it where it reads all; else one message after the other is looked at.

Such a guard shows whether anything else came onto the subject, and not whether the schedule itself is still stored.
A server of 2.11 keeps the identity of what its guard refused for the whole duplicate window where the stream has
replicas: there a covered schedule fires without a guard, and one that was covered just now with another identity.
So a schedule that is covered is looked at as where there is no guard: at most 50 ms before its fire, at each retry, and
whenever a client asks for a removal.

Cost: an entry for each schedule that is covered, and nothing for all others.
"""

from collections.abc import Mapping, Sequence

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.engine.inputs import DuplicateFetched
from nats_scheduler.message.fires import TOO_EARLY, WRONG_TARGET, fault_of, fault_of_following, is_too_early
from nats_scheduler.message.reading import Generated, Reading, read_generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

# Judge a message that claims to be a fire of a held schedule; `message.fires` says what counts.
#
# The rule: a message that a sidecar of any version can have built is accepted. A message that is gone is accepted
# unless it was stored before its fire time. A fire that was sent again after a lost acknowledgement is a duplicate
# too, and may have been consumed since: to reject it would store it twice. A fire that cannot have its identity,
# because a forged message has it, is sent under another one. But the stream keeps an identity for its duplicate
# window only: at the end of it, the fire would be stored a second time by what others have sent under the first
# identity and is still in transit. So the identity is not changed shortly before that. Limit: of an `@at` whose time
# was past when it was stored, a fire into another stream of unknown outcome is stored twice if the clocks of the two
# leaders differ by more than it took to fire.

TOO_OLD = "it was stored before its schedule"

FREE_SOON_NS = 750 * MILLISECOND
"""If a taken identity is free within this time, a fire waits for that; or within half of a shorter duplicate window.

It is more than a fire is in transit, and less than the shortest interval, a second: whatever is forged, no schedule
misses a fire because it waits for the one before.
"""

KEPT_LONGER_NS = SECOND // 2
"""The time (ns) after the end of the duplicate window for which an identity may still be taken.

As the server does: it deletes identities at most every 50 ms. Clocks may differ too. After its restart it may keep them
for another window: nothing waits for that.
"""


def fault_of_generated(held: Held, generated: Generated, message: StoredMessage, *, moved: bool) -> str:
    """Return why a message cannot be the fire that it claims to be; "" if it can.

    If fires are `moved`, the stream stores them on another subject than their target.
    """
    if held.is_to_other_stream or (not moved and message.subject != held.terms.target):
        return WRONG_TARGET
    return fault_of(generated, message, held, held.terms, held.fire_time)


def fault_in_other_stream(held: Held, generated: Generated, message: StoredMessage) -> str:
    """Return why a message in the stream of a target elsewhere cannot be the fire that it claims to be; "" if it can.

    Under which subject that stream stores what is published to the target is not known here.
    """
    if is_older(held, generated.fire_time, message.stored_at):
        return TOO_OLD
    return fault_of(generated, message, held, held.terms, held.fire_time)


def is_older(held: Held, fire_time: int, stored_at: int) -> bool:
    """Return whether a message in another stream is the fire of an earlier schedule with the same subject and sequence.

    The schedule's stream was deleted and created again since, and only stored times can show it. A fire time that was
    to come when the schedule was stored cannot have an older fire, and there the clocks of two leaders may differ.
    """
    return held.is_to_other_stream and stored_at < held.stored_at and fire_time <= held.stored_at


def fault_of_unheld(generated: Generated, message: StoredMessage) -> str:
    """Say why a message cannot be the fire of any schedule, held or gone, that has the sequence it claims."""
    if generated.sequence >= message.sequence:
        return TOO_OLD
    if is_too_early(message.stored_at, generated.fire_time):
        return TOO_EARLY
    return fault_of_following(generated, message)


def fault_of_duplicate(held: Held, read: DuplicateFetched, *, moved: bool) -> str:
    """Return why a message with the identity of a fire is not that fire; "" if it can be.

    An account may map the target to another subject: a message with the same bytes is accepted there too.
    """
    fire, message = read.fire, read.message
    if read.stored_by is not None and is_too_early(read.stored_by, fire.fire_time):
        return TOO_EARLY
    if read.stored_by is not None and is_older(held, fire.fire_time, read.stored_by):
        return TOO_OLD  # even with the same bytes
    if message is None or (message.block, message.body) == (fire.block, fire.body):
        return ""
    generated = read_generated(message.block)
    if generated is None or generated[:3] != (fire.schedule, fire.sequence, fire.fire_time):
        return "it is no fire of the schedule"
    if held.terms.source is None and message.body != fire.body:
        return "its body is another one"
    if held.is_to_other_stream:
        return fault_in_other_stream(held, generated, message)
    return fault_of_generated(held, generated, message, moved=moved)


def free_soon(read: DuplicateFetched, duplicate_window: int, now: int) -> int | None:
    """Return how long (ns) it takes until the identity of a fire is free, below 0 if it should be; None if too long.

    `duplicate_window` (ns) is that of the stream. Limit: if the message that has the identity is gone, it may have been
    stored earlier than is known, and the identity is free earlier.
    """
    if read.stored_by is None:
        return None
    left = read.stored_by + duplicate_window - now
    return left if -KEPT_LONGER_NS <= left < min(FREE_SOON_NS, duplicate_window // 2) else None


# The targets whose fires are stored on another subject: a subject transform of the stream moves all, and a mapping of
# the account some. Of a mapping nothing is known but what it does to a fire of ours, which is recognised by its
# identity under the sequence that was acknowledged. From then on the fires of others for that target are believed too.

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


class Landed:
    """The sequences of what landed last, by those of the schedules."""

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
        """Return whether a fire is one of another stream's schedules, which ends what it lands on as any message does.

        No two streams of an account have the same subject.
        """
        return not self._moved and not is_covered(generated.schedule, self._subjects)

    def may_be_in_time(self, held: Held | None, generated: Generated, message: StoredMessage) -> bool:
        """Return whether another instance may have stored a message as a fire of this stream's schedules, in time.

        `held` is the schedule that it names, None if that is not held.
        """
        is_of_another = held is None and self.is_from_elsewhere(generated)
        return not is_of_another and not is_too_early(message.stored_at, generated.fire_time)

    def covers(self, held: Held) -> bool:
        """Return whether something lies on a schedule that left it alive."""
        return held.sequence in self._last

    def last_on(self, held: Held) -> int:
        """Return the sequence of the last message on a schedule's subject, as far as that is known."""
        return self._last.get(held.sequence, held.sequence)

    def note(self, held: Held, sequence: int) -> bool:
        """Note that a schedule is covered, and known up to a sequence; returns whether that is news."""
        is_news = sequence > self.last_on(held) or not self.covers(held)
        if is_news:
            self._last[held.sequence] = sequence
        return is_news

    def knows(self, held: Held, sequence: int) -> bool:
        """Return whether the message with a sequence on a schedule's subject is one that is known to have landed."""
        return self.covers(held) and sequence <= self.last_on(held)

    def found(self, held: Held, sequence: int, *, is_next: bool) -> bool:
        """Note what was found above a schedule, whether or not it `is_next` after what is known; return if it is news.

        If it is not, what lies between is to be read first, unless there is less than what was known.
        """
        before = self.last_on(held) if self.covers(held) else 0
        self.set_back(held, sequence if is_next or sequence < before else self.last_on(held))
        return self.last_on(held) != before

    def set_back(self, held: Held, sequence: int) -> None:
        """Take this message for the last one on a schedule's subject: what was noted above it is gone."""
        self._last[held.sequence] = max(sequence, held.sequence)

    def known(self) -> dict[int, int]:
        """Return the sequences of what landed last, by those of the schedules."""
        return dict(self._last)

    def restore(self, known: Mapping[int, int]) -> None:
        """Begin with what was `known`."""
        self._last = dict(known)

    def forget(self, held: Held) -> bool:
        """Take a schedule for the last message on its subject; returns whether that is news."""
        return self._last.pop(held.sequence, None) is not None
