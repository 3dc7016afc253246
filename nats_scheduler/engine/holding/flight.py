"""The course of one fire: the stages of a schedule, and all that can happen to it, as one table.

    stage           what happens in it
    WAITING         nothing: the agenda says when to look at the schedule
    READING         the content was asked for, or waits until there is room for it
    KEPT            the content of the fire before is kept, and the next fire is not built yet
    READY           the fire is built and waits for its due time
    HELD_BACK       the fire is due, and it is not known that the fire before is finished (`X-Overlap`)
    IN_FLIGHT       the fire was handed out to be published, and its outcome is not known
    BACKING_OFF     an attempt to read or to publish failed, and the next one waits
    DONE_BY_OWNER   the schedule is done, and the owner of the stream, another instance, is to purge it
    PURGING         the schedule is done, and its purge was ordered
    UNPURGEABLE     the schedule is done, and the server refuses the purge: it stays held so that it never fires again

`Turn` is the whole table: each thing that happens, the stages in which it may happen, and the stage that follows.
`engine.holding.lifecycle.Lifecycle.move` is the only function that changes a stage, and it raises for what the table
does not have; a schedule that ends is held no longer and has no stage.

A schedule that waits has no `Flight`: of a million, few have one at any time.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.fire import CheckFinished, Fire
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.identity import number_after
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

FIRST_BACK_OFF_NS = 50 * MILLISECOND
"""Back-off after the first failure; it doubles with each."""

UNKNOWN_BACK_OFF_LIMIT_NS = 1 * SECOND
"""Longest back-off after an unknown outcome: *Live* promises that fires resume within 3 s."""

REFUSED_BACK_OFF_LIMIT_NS = 30 * SECOND
"""Longest back-off after a refused purge or removal, and of a refused fire that is no probe
(`engine.holding.lifecycle`)."""


def wait_after(failures: int, limit: int) -> int:
    """Return how long to wait (ns) after `failures` failures in a row, at most `limit`."""
    return min(FIRST_BACK_OFF_NS << min(failures - 1, 20), limit)


MAX_LANDINGS_RETRIED = 16
"""The most immediate retries of a fire that the guard refused because something had landed; then it backs off."""


class Stage(Enum):
    """Where a flight is; see the table above."""

    WAITING = "waiting"
    READING = "reading"
    KEPT = "kept"
    READY = "ready"
    HELD_BACK = "held back"
    IN_FLIGHT = "in flight"
    BACKING_OFF = "backing off"
    DONE_BY_OWNER = "done by the owner"
    PURGING = "purging"
    UNPURGEABLE = "unpurgeable"


WITH_CONTENT = (Stage.KEPT, Stage.READY)
"""The stages in which the content of the next fire is in memory, and nothing is asked."""

TO_BE_SENT = (Stage.READING, *WITH_CONTENT, Stage.HELD_BACK, Stage.BACKING_OFF)
"""The stages in which the next fire is in progress, and is not in flight."""

IN_PROGRESS = (*TO_BE_SENT, Stage.IN_FLIGHT)
"""The stages in which the next fire is in progress."""

DONE = (Stage.PURGING, Stage.DONE_BY_OWNER, Stage.UNPURGEABLE)
"""The stages in which a schedule fires no more."""


class Turn(Enum):
    """A change of a schedule: what happens to it, the stage that follows, and the stages in which it may happen."""

    ASKED = "its content is asked for", Stage.READING, (Stage.WAITING, *IN_PROGRESS)
    UNREAD = "its content could not be read", Stage.BACKING_OFF, (Stage.READING,)
    NOT_DUE = "it was read for another reason than its fire", Stage.WAITING, (Stage.READING,)
    CONTENT_KEPT = "its content stays for the next fire", Stage.KEPT, (Stage.WAITING,)
    BUILT = "its fire is built before it is due", Stage.READY, (Stage.READING, Stage.KEPT, Stage.HELD_BACK)
    HELD = "its fire before may be unfinished", Stage.HELD_BACK, (Stage.READING, *WITH_CONTENT)
    SENT = "its fire is handed out", Stage.IN_FLIGHT, IN_PROGRESS
    POSTPONED = "its fire cannot be sent at the moment", Stage.BACKING_OFF, IN_PROGRESS
    REFUSED = "its fire is refused", Stage.BACKING_OFF, IN_PROGRESS
    UNKNOWN = "no answer says that its fire is stored", Stage.BACKING_OFF, (Stage.IN_FLIGHT,)
    ADVANCED = "its fire is stored or dropped, and another one follows", Stage.WAITING, (Stage.WAITING, *IN_PROGRESS)
    COVERED = "something landed on it and leaves it alive", Stage.WAITING, (Stage.WAITING, *WITH_CONTENT)
    EDITED = (
        "a calendar that it names was edited",
        Stage.WAITING,
        (
            Stage.WAITING,
            *WITH_CONTENT,
            Stage.HELD_BACK,
            Stage.BACKING_OFF,
        ),
    )
    LEFT = "another instance owns the stream", Stage.WAITING, (Stage.WAITING, *IN_PROGRESS)
    DONE = "it is done, and purged here", Stage.PURGING, tuple(Stage)
    DONE_BY_OWNER = "it is done, and the owner purges it", Stage.DONE_BY_OWNER, tuple(Stage)
    PURGE_REFUSED = "the server refuses its purge", Stage.UNPURGEABLE, (Stage.PURGING,)

    def __init__(self, meaning: str, following: Stage, stages: tuple[Stage, ...]) -> None:
        self.meaning = meaning
        self.following = following
        self.stages = stages


class Failing(NamedTuple):
    """Why the server does not take the fires of a schedule, and since when (ns)."""

    code: int
    description: str
    since: int


@dataclass(slots=True)
class FireBefore:
    """The fire before the one that is due, if it has to be finished first (`engine.firing.overlap`)."""

    since: int
    """The instant (ns) at which the fire that is due was first held back."""
    after: int
    through: int
    """It is stored above sequence `after`, up to `through`; if several may be, the first that is unfinished counts."""
    stored_at: int
    """The instant (ns) at which it was stored; `X-Timeout` counts from then."""
    question: CheckFinished | None = None
    """The question that was asked and is not answered."""
    has_turn: bool = False
    """True if the next question has a time of its own."""
    waited: bool = False
    """True if the fire that is due had to wait: then it may stand for later ones, and none of them was missed."""
    asked_at: int = 0
    """The instant (ns) of the last question."""
    failures: int = 0
    """The number of questions in a row that were not answered."""
    is_over: bool = False
    """True if it is finished, or counts as finished."""


@dataclass(slots=True)
class InProcess:
    """An identity that is in process according to the server, and what is known of it (`engine.firing.sending`)."""

    fire: Fire
    """The fire with this identity."""
    since: int
    """The instant (ns) of the first such answer."""
    is_asked: bool = False
    """True if the leader was asked to apply what it has accepted, and has not answered."""
    asked_at: int = 0
    """The instant (ns) at which it was asked last."""
    is_applied: bool = False
    """True if all is applied that was accepted before the attempt that comes next."""


@dataclass(slots=True)
class Flight:
    """The work in progress for one held schedule."""

    stage: Stage = Stage.WAITING
    """Changed by `Lifecycle.move` only."""
    content: StoredMessage | None = None
    source: StoredMessage | None = None
    read_at: int = 0
    """The instant (ns) at which the content was read."""
    content_size: int = 0
    """Bytes that count for it (`engine.firing.contents`)."""
    waits_for_room: bool = False
    """True if the content is asked for once there is room for it."""
    fire: Fire | None = None
    refusal: Refused | None = None
    """Why `fire` is not sent at all, None if it may be."""
    ending: Ending = Ending.FIRED
    """The ending that is reported of the schedule once it is purged."""
    reads: int = 0
    """Reads whose answers are outstanding; only the last one counts, because it was asked for after the re-check."""
    by_sequence: bool = False
    """True if the last read was for what lies under the sequence, and not for the last message on the subject."""
    may_wait: bool = False
    """True if the last read may wait for others that follow."""
    above: int = 0
    """Up to where what lies on the subject was known to the last read; 0 where it was not for a covered schedule."""
    was_rechecked: bool = False
    """True if the content was read again because the guard refused the fire."""
    blocked: tuple[int, int] | None = None
    """The fire time whose first identity the server keeps for nothing, and the number of the one to use; None: none."""
    in_process: InProcess | None = None
    """An identity of the fire that is in process, and what is known of it (`engine.firing.sending`); None: none."""
    forgery: int = 0
    """Sequence of the message that has an identity of `fire` and is not this fire, once it was reported; 0: none."""
    landings: int = 0
    """The number of re-checks that found another last message on the subject, and the schedule alive."""
    attempts: int = 0
    given_up: int = 0
    """The number of identities of the fire in a row that were given up because they were in process."""
    refusals: int = 0
    """The number of times that the server refused the fire for another reason than its guard."""
    may_be_stored: bool = False
    """True if `fire` may be stored although no answer said so."""
    unconcluded: int | None = None
    """The number of questions asked (`engine.firing.sending`) when an attempt ended of which the outcome is unknown."""
    failing: Failing | None = None
    """The refusal that lasts, since its code was first seen: each is reported once and not at every retry."""
    before: FireBefore | None = None
    """The fire before, None if it need not be finished, or was not asked about."""
    silent_told_at: int = 0
    """The instant (ns) at which it was reported that nothing is stored of its schedule, 0 if it was not."""
    missed_since: int | None = None
    """The earliest fire (ns) that `fire` stands for as well, None if it stands for itself alone."""

    @property
    def has_waited(self) -> bool:
        """True if the fire that is due had to wait until the one before was finished, or still has to."""
        return self.before is not None and self.before.waited

    @property
    def is_held_back(self) -> bool:
        """True if the fire that is due waits until the one before is finished."""
        return self.before is not None and self.before.waited and not self.before.is_over

    def block(self, fire: Fire) -> None:
        """Note that the server keeps the identity of a fire, under which nothing is stored."""
        self.blocked = fire.fire_time, number_after(fire.taken, fire.sequence)

    def refused(self, fire: Fire, *, by_guard: bool, blocks: bool) -> None:
        """Note that a fire was refused; by the guard the server `blocks` its identity.

        After any other refusal the first identity is tried again (`engine.firing.sending`).
        """
        if not by_guard:
            self.refusals, self.given_up, self.blocked = self.refusals + 1, 0, None
        elif blocks:
            self.block(fire)

    def number_of(self, fire_time: int) -> int:
        """Return the number of the identity under which the fire of a fire time is sent."""
        return self.blocked[1] if self.blocked is not None and self.blocked[0] == fire_time else 0

    def found_landing(self) -> None:
        """Re-check after the next refusal by the guard too: the last message on the subject was another one."""
        self.landings += 1
        self.was_rechecked = self.was_rechecked and self.landings > MAX_LANDINGS_RETRIED

    def back_off(self, limit: int) -> int:
        """Count a failure and return how long to wait (ns), at most `limit`."""
        self.attempts += 1
        return wait_after(self.attempts, limit)
