"""Jitter: how long after its fire time each fire of a schedule with `X-Jitter` is sent.

The rules:

- The delay follows from the identity of the fire alone, so every instance computes the same one, and a restart changes
  nothing. It is a part of a span (`message.spread.hashed_part`): of the jitter, or of the time until the next fire
  time if that is less.
- A fire is sent before the next fire time. The send times of a schedule are in the order of its fire times, and at most
  one of its fires is between the two.
- Days of calendars, and a limit beside them, do not count for the next fire time: their edits change no send time.

Why a fraction and not a delay that is cut off: with an interval shorter than the jitter most fires would be sent
together, at the next fire time.
"""

from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.policies import Policies
from nats_scheduler.message.spread import hashed_part
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.patterns import Pattern


def delay_of(schedule: str, sequence: int, fire_time: int, span: int) -> int:
    """Return the delay (ns) of a fire: at least 0 and less than `span`, unless that is 0."""
    return hashed_part(fire_identity(schedule, sequence, fire_time), span)


def jittered(timetable: Timetable, schedule: str, sequence: int, jitter: int, fire_time: int) -> int:
    """Return when (ns) the fire of a fire time is sent, at most `jitter` ns after it.

    A time before the schedule was stored is that of an `@at`, or was made up by the author of a message.
    """
    # Not the next one that a calendar leaves: instances that see its edits at different times would not agree.
    following = timetable.next_possible(max(fire_time, timetable.stored_at))
    span = jitter if following is None else min(jitter, following - fire_time)
    return fire_time + delay_of(schedule, sequence, fire_time, span)


class JitteredTimetable(Timetable):
    """The timetable of a stored schedule with a jitter."""

    __slots__ = ("_jitter", "_schedule", "_sequence")
    jitters = True

    def __init__(self, pattern: Pattern, stored_at: int, schedule: str, sequence: int, jitter: int) -> None:
        """Answer for the schedule that is stored on a subject under a sequence."""
        super().__init__(pattern, stored_at)
        self._schedule = schedule
        self._sequence = sequence
        self._jitter = jitter

    def send_time_of(self, fire_time: int) -> int:
        """Return when the fire of a fire time is published: never before it."""
        return jittered(self, self._schedule, self._sequence, self._jitter, fire_time)


def stored_timetable(pattern: Pattern, policies: Policies, stored_at: int, schedule: str, sequence: int) -> Timetable:
    """Return the timetable of a schedule that is stored on a subject under a sequence; jittered if it has a jitter."""
    if policies.jitter is None:
        return Timetable(pattern, stored_at)
    return JitteredTimetable(pattern, stored_at, schedule, sequence, policies.jitter)
