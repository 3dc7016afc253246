"""The course of one fire, from the look at its content to the removal of a schedule that is done.

    stage      entered when                              left when
    READING    the fire comes within the look-ahead      the content was read
    READY      the content was read before the due time  the due time comes
    FLYING     the fire was handed out to be published   its outcome is known, or known to be unknown
    RETRYING   the outcome was no, or unknown            the back-off is over
    PURGING    the schedule is done and to be removed    the server removed it
    SPENT      it is done and the server will not remove it; it stays held so that it never fires again

A schedule that only waits has no flight: of a million, few have one at any time.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

FIRST_RETRY_AFTER = 50 * MILLISECOND
"""Back-off (ns) after the first failure; it doubles with each."""

UNKNOWN_RETRY_LIMIT = 1 * SECOND
"""Longest back-off (ns) after an unknown outcome: *Live* promises that fires resume within 3 s."""

REFUSED_RETRY_LIMIT = 30 * SECOND
"""Longest back-off (ns) after a refusal of what nobody waits for, and of fires that rest (`engine.refusals`)."""


class Stage(Enum):
    """Where a flight is; see the table above."""

    READING = "reading"
    READY = "ready"
    FLYING = "flying"
    RETRYING = "retrying"
    PURGING = "purging"
    SPENT = "spent"


class Failing(NamedTuple):
    """Why the server does not take the fires of a schedule, and since when (ns)."""

    code: int
    description: str
    since: int


@dataclass(slots=True)
class Flight:
    """What is under way for one held schedule."""

    stage: Stage
    content: StoredMessage | None = None
    source: StoredMessage | None = None
    fire: Fire | None = None
    refusal: Refused | None = None
    """Why `fire` is not sent at all, None where it may be."""
    ending: Ending = Ending.FIRED
    """What to say of the schedule once it is removed."""
    reads: int = 0
    """Reads whose answers are awaited; only the last one counts, since it was asked for after the doubt arose."""
    looked_again: bool = False
    """Whether a refusal by the guard has led to a look already."""
    attempts: int = 0
    failing: Failing | None = None
    """The refusal that lasts, since its code was first seen: each is reported once and not at every retry."""
    missed_since: int | None = None
    """The earliest fire (ns) that `fire` stands for as well, None where it stands for itself alone."""

    def back_off(self, limit: int) -> int:
        """Count a failure and return how long to wait (ns), at most `limit`."""
        self.attempts += 1
        return min(FIRST_RETRY_AFTER << min(self.attempts - 1, 20), limit)
