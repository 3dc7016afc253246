"""A schedule that is held: its definition, its next fire, and what is in progress for it.

Cost: 128 bytes, about 390 with its numbers, its subject and a pattern of its own; equal terms are shared. One with a
jitter takes some more.
"""

from typing import ClassVar

from nats_scheduler.engine.flight import Flight
from nats_scheduler.engine.shards import shard_of
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.jitter import jittered
from nats_scheduler.message.timetable import Timetable

NO_WAKE = -1
"""The wake of a schedule without an agenda entry."""

NO_EXPIRY = 1 << 100
"""Later (ns) than any TTL can end."""

NEVER_EXPIRES = NO_EXPIRY + 1
"""The end of a message whose TTL is `never`: it outlives the `max_age` of its stream."""

NO_ROW: list["Held"] = []
"""The row of a schedule that is in none."""


class Held(Timetable):
    """A schedule that is held: the last message on its subject, and valid.

    It is its own timetable: a second object for each of a million schedules would take 60 MB.
    """

    __slots__ = ("expires", "fire_time", "flight", "place", "row", "sequence", "shard", "subject", "terms", "wake")

    def __init__(self, subject: str, sequence: int, definition: Definition, stored_at: int) -> None:
        """Hold the schedule that was stored on a subject under a sequence; it waits for its first fire."""
        self.pattern, self.terms = definition
        self.stored_at = stored_at
        self.subject = subject
        self.shard = shard_of(subject)
        self.sequence = sequence
        first = self.first_fire()
        assert first is not None, "a schedule that never fires is rejected before"
        self.fire_time = first
        """The time (ns) that its next fire stands for, or that of its last one if it is done."""
        self.expires = NO_EXPIRY
        """When its TTL runs out (ns): it has no fires from that time on."""
        self.flight: Flight | None = None
        """What is in progress, None while it only waits."""
        self.wake: int = NO_WAKE
        """The instant of its valid agenda entry."""
        self.row: list[Held] = NO_ROW
        """Its row in `engine.rows`."""
        self.place = 0
        """Its place in that row."""

    @property
    def send_time(self) -> int:
        """When (ns) its next fire is published: it is due from then on."""
        return self.send_time_of(self.fire_time)

    @property
    def read_back_threshold(self) -> int:
        """A fire that is read back advances it if its fire time (ns) is this one or later."""
        return self.fire_time

    @property
    def only_expires(self) -> bool:
        """Whether its TTL runs out before its next fire is sent."""
        return self.expires <= self.send_time


class JitteredHeld(Held):
    """A schedule that is held and has a jitter; a class of its own, so that the others neither ask nor keep anything.

    It keeps the send time that was computed last, since the same one is needed some ten times for each fire.
    """

    __slots__ = ("_fire_time_asked", "_send_time_found")
    jitters: ClassVar[bool] = True

    def __init__(self, subject: str, sequence: int, definition: Definition, stored_at: int) -> None:
        """Hold the schedule as `Held` does."""
        super().__init__(subject, sequence, definition, stored_at)
        self._fire_time_asked: int | None = None
        self._send_time_found = 0

    def send_time_of(self, fire_time: int) -> int:
        """Return when the fire of a fire time is published: never before it."""
        if fire_time != self._fire_time_asked:
            jitter = self.terms.policies.jitter
            assert jitter is not None, "it has a jitter"
            self._send_time_found = jittered(self, self.subject, self.sequence, jitter, fire_time)
            self._fire_time_asked = fire_time
        return self._send_time_found


def held_schedule(subject: str, sequence: int, definition: Definition, stored_at: int) -> Held:
    """Return the schedule that was stored on a subject under a sequence, waiting for its first fire."""
    kind = Held if definition.terms.policies.jitter is None else JitteredHeld
    return kind(subject, sequence, definition, stored_at)
