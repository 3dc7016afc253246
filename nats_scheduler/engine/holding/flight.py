"""The stage of a schedule, and all that is known of the fire that is in progress for it.

    stage            what happens in it
    WAITING          nothing: its wake says when to look at the schedule
    FETCHING         its content was asked for, or waits until there is room for it
    KEPT             the content of the fire before is kept, and the next fire is not built yet
    READY            the fire is built and waits for its due time
    BLOCKED          the fire is due, and it is not known that the fire before is finished (`X-Overlap`)
    IN_FLIGHT        the fire was handed out to be published, and its outcome is not known
    BACKING_OFF      an attempt to fetch or to publish failed, and the next one waits
    DONE_BY_OWNER    the schedule is done, and the owner of the stream, another instance, is to purge it
    PURGING          the schedule is done, and its purge was ordered
    UNPURGEABLE      the schedule is done, and the server refuses the purge: it is kept so that it never fires again
    ENDED            the schedule is not held any more

What may happen in each, and what follows, is the table of `engine.firing.machine`.

A schedule that waits has no `Flight`: of a million, few have one at any time.
"""

from dataclasses import dataclass
from enum import IntEnum

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.fire import CheckFinished, Fire
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.identity import number_after
from nats_scheduler.message.rejection import Failing
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

FIRST_BACK_OFF_NS = 50 * MILLISECOND
"""Back-off after the first failure; it doubles with each."""

UNKNOWN_BACK_OFF_LIMIT_NS = 1 * SECOND
"""Longest back-off after an unknown outcome: *Live* promises that fires resume within 3 s."""

REFUSED_BACK_OFF_LIMIT_NS = 30 * SECOND
"""Longest back-off after a refused purge or removal, and of a refused fire that is no probe
(`engine.holding.refusals`)."""


def wait_after(failures: int, limit: int) -> int:
    """Return how long to wait (ns) after `failures` failures in a row, at most `limit`."""
    return min(FIRST_BACK_OFF_NS << min(failures - 1, 20), limit)


MAX_FOUND_OVER_RETRIED = 16
"""The most immediate retries of a fire that the guard refused because a message was over it; then it backs off."""


class Stage(IntEnum):
    """Where a schedule is; see above. Numbers, because the table is asked for them with each event."""

    WAITING = 0
    FETCHING = 1
    KEPT = 2
    READY = 3
    BLOCKED = 4
    IN_FLIGHT = 5
    BACKING_OFF = 6
    DONE_BY_OWNER = 7
    PURGING = 8
    UNPURGEABLE = 9
    ENDED = 10

    @property
    def text(self) -> str:
        """The stage in words, such as "in flight"."""
        return self.name.lower().replace("_", " ")


WITH_CONTENT = (Stage.KEPT, Stage.READY)
"""The stages in which the content of the next fire is in memory, and nothing is asked."""

IN_PROGRESS = (Stage.FETCHING, *WITH_CONTENT, Stage.BLOCKED, Stage.IN_FLIGHT, Stage.BACKING_OFF)
"""The stages in which the next fire is in progress."""

DONE = (Stage.PURGING, Stage.DONE_BY_OWNER, Stage.UNPURGEABLE)
"""The stages in which a schedule fires no more."""


@dataclass(slots=True)
class FireBefore:
    """The fire before the one that is due, if it has to be finished first (`engine.firing.blocking`)."""

    since: int
    """The instant (ns) at which the fire that is due was first blocked."""
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
    """An identity that is in process according to the server, and what is known of it (`engine.firing.identities`)."""

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


class Flight:
    """The work in progress for one held schedule.

    One is made for each fire: an attribute that has its value here is kept for a flight only once it has another one.
    """

    stage: Stage
    """Changed by `EngineState.enter` only."""
    content: StoredMessage | None = None
    source: StoredMessage | None = None
    read_at: int = 0
    """The instant (ns) at which the content was read."""
    content_size: int = 0
    """Bytes that count for it (`engine.holding.contents`)."""
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
    """Up to which sequence the subject was known to the last read, if a message is over the schedule; else 0."""
    was_rechecked: bool = False
    """True if the content was read again because the guard refused the fire."""
    kept_identity: tuple[int, int] | None = None
    """The fire time whose first identity the server keeps for nothing, and the number of the one to use; None: none."""
    in_process: InProcess | None = None
    """An identity of the fire that is in process, and what is known of it (`engine.firing.identities`); None: none."""
    forgery: int = 0
    """Sequence of the message that has an identity of `fire` and is not this fire, once it was reported; 0: none."""
    times_found_over: int = 0
    """The number of re-checks that found another last message on the subject, and the schedule alive."""
    failures: int = 0
    """Fetches that failed, unknown outcomes and refusals in a row, but for the first refusal by the guard."""
    given_up: int = 0
    """The number of identities of the fire in a row that were given up because they were in process."""
    refusals: int = 0
    """The number of times that the server refused the fire for another reason than its guard."""
    may_be_stored: bool = False
    """True if `fire` may be stored although no answer said so."""
    unconcluded: int | None = None
    """The number of questions (`engine.holding.proposals`) when an attempt ended of which the outcome is unknown."""
    failing: Failing | None = None
    """The refusal that lasts, since its code was first seen: each is reported once and not at every retry."""
    before: FireBefore | None = None
    """The fire before, None if it need not be finished, or was not asked about."""
    missed_since: int | None = None
    """The earliest fire (ns) that `fire` stands for as well, None if it stands for itself alone."""

    def __init__(self, stage: Stage = Stage.WAITING) -> None:
        """Begin in a stage."""
        self.stage = stage

    @property
    def has_waited(self) -> bool:
        """True if the fire that is due had to wait until the one before was finished, or still has to."""
        return self.before is not None and self.before.waited

    @property
    def is_blocked(self) -> bool:
        """True if the fire that is due waits until the one before is finished."""
        return self.before is not None and self.before.waited and not self.before.is_over

    def give_up_identity(self, fire: Fire) -> None:
        """Note that the server keeps the identity of a fire, under which nothing is stored."""
        self.kept_identity = fire.fire_time, number_after(fire.taken, fire.sequence)

    def note_refusal(self, fire: Fire, *, by_guard: bool, blocks: bool) -> None:
        """Note that a fire was refused; by the guard the server `blocks` its identity.

        After any other refusal the first identity is tried again (`engine.firing.identities`).
        """
        if not by_guard:
            self.refusals, self.given_up, self.kept_identity = self.refusals + 1, 0, None
        elif blocks:
            self.give_up_identity(fire)

    def number_of(self, fire_time: int) -> int:
        """Return the number of the identity under which the fire of a fire time is sent."""
        kept = self.kept_identity
        return kept[1] if kept is not None and kept[0] == fire_time else 0

    def found_over(self) -> None:
        """Re-check after the next refusal by the guard too: the last message on the subject was another one."""
        self.times_found_over += 1
        self.was_rechecked = self.was_rechecked and self.times_found_over > MAX_FOUND_OVER_RETRIED

    def back_off(self, limit: int) -> int:
        """Count a failure and return how long to wait (ns), at most `limit`."""
        self.failures += 1
        return wait_after(self.failures, limit)
