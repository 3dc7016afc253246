"""Whether this instance owns its stream, and what is noticed about the owner if it stands by.

An owner may be alive and unable to fire. So it is noted here when a schedule came due and no fire of it was read
back, and when our own user was denied what an owner has to do; `engine.ownership.owners` decides what follows.
"""

from typing import NamedTuple

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.schedule.instants import SECOND

UNFIRED_LIMIT_NS = 3 * SECOND
"""A standby looks at a schedule if its fire is not read back within this time (ns) after its send time."""


class Denied(NamedTuple):
    """The last thing that an owner has to do and that our user may not."""

    at: int
    reason: str


class Ownership:
    """Whether this instance fires for its stream."""

    def __init__(self, look_ahead: int, *, reads_all: bool) -> None:
        """Begin as the only owner; `reads_all` is False if the fires of other owners cannot be read back.

        A schedule is read at most `look_ahead` (ns) before its fire.
        """
        self.reads_all = reads_all
        self.is_owner = True
        """True if the schedules of the stream are ours to fire (`begin`)."""
        self.lag = 0
        """How much later (ns) than the owner this instance looks at a schedule: a standby after its fire was confirmed.

        What it has not looked at yet comes first as soon as it is the owner.
        """
        self._standby_lag = look_ahead + UNFIRED_LIMIT_NS
        self.denied: Denied | None = None
        """The last denial to our user of something that an owner has to do."""
        self.unfired = 0
        """While standing by, the send time (ns) of a schedule that came due, is still stored, and of which no fire was
        read back; 0 if there is none."""
        self._unfired_sequence = 0
        """The sequence of that schedule: others may have the same send time."""
        self.last_fired = 0
        """The last send time (ns) of which a fire was read back."""
        self.in_contact_since = 0
        """Since when (ns) fires are confirmed: what came due before says nothing about the owner."""
        self.asked_about: Held | None = None
        """The schedule that was fetched last because no fire of it was confirmed."""
        self.able_since = 0
        """Since when (ns) this instance can fire: it owns the stream and has read all that is stored."""

    def begin(self, *, is_owner: bool) -> None:
        """Fire for the stream from now on, or stand by."""
        self.is_owner = is_owner
        self.lag = 0 if is_owner else self._standby_lag
        self.unfired = 0

    def may_be_stored(self, held: Held) -> bool:
        """Return whether another instance may have stored the next fire: it was due before this one could fire it."""
        return max(held.send_time, held.stored_at) <= self.able_since

    def deny(self, reason: str, now: int) -> None:
        """Note that our user may not do what the owner has to do."""
        if self.is_owner:
            self.denied = Denied(now, reason)

    def blame(self, held: Held) -> None:
        """Note that the owner has not fired a schedule that came due."""
        self.unfired, self._unfired_sequence = held.send_time, held.sequence

    def excuse(self, held: Held) -> None:
        """Discard the note that a schedule was not fired: it has advanced, or is not held any more."""
        if self._unfired_sequence == held.sequence:
            self.unfired = 0
