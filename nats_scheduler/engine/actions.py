"""The actions of the engine: imperatives. The shell carries them out in order and answers each with an input."""

from collections.abc import Sequence
from typing import NamedTuple

from nats_scheduler.engine.events import Event
from nats_scheduler.engine.fire import Fire, Question
from nats_scheduler.engine.inputs import Version


class PublishFires(NamedTuple):
    """Publish in this order, and answer for each exactly once: `PublishConcluded`, or `FiresStored` for several.

    What a `FiresStored` names and has a `purge_through` is purged in the same breath, as a `PurgeSchedule` says.
    It is the first action of a step.
    """

    fires: Sequence[Fire]


class PurgeSchedule(NamedTuple):
    """Remove the messages on the schedule's subject up to sequence `through`, inclusive.

    Answer `PurgeConcluded`, or `SchedulesPurged` for several.
    With `stored_at` (ns), do it only if the message with sequence `through` was stored then: it had been removed and is
    back. If the subject cannot be written into a request, remove only `known`, one of these messages, or nothing
    without it.
    """

    schedule: str
    through: int
    stored_at: int | None = None
    known: Version | None = None


def purge_after(fire: Fire) -> PurgeSchedule:
    """Return the purge that follows at once when a fire with a `purge_through` is acknowledged."""
    return PurgeSchedule(fire.schedule, fire.purge_through, None, Version(fire.sequence, fire.schedule_stored_at))


class RemoveExpired(NamedTuple):
    """Remove the message with this sequence if its TTL has run out by the instant `by` (ns); answer `ExpiryConcluded`.

    Read the message first: sequences begin again in a stream that was deleted and created again.
    """

    sequence: int
    by: int


class WakeAt(NamedTuple):
    """Step again at this instant (ns since the Unix epoch) at the latest. It replaces the last one."""

    instant: int


class Report(NamedTuple):
    """Report an event to the operator."""

    event: Event


Action = Question | PublishFires | PurgeSchedule | RemoveExpired | WakeAt | Report
