"""The purges of one stream that wait, that were ordered, and that others requested (`engine.firing.purging`).

It knows subjects, sequences and instants, and no schedule.

Cost: an entry in a queue for each purge.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import PurgeConcluded, Version
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.schedule.instants import SECOND

MAX_REQUESTED_BY_OWNER = 1_000
"""Purges requested by the owner that a standby keeps: the request may be lost if its sender is gone."""

MAX_REQUESTED_EARLY = 65_536
"""Schedules that are noted at most because the owner purges them and their fires are not confirmed yet.

A standby reads a burst a second later (`jetstream.consumer_follower`).
"""

MAX_JOINT_FILTERS = 16
"""Filters of the owner's joint purges that a standby keeps, each with the highest sequence."""

JOINT_KEPT_NS = 30 * SECOND
"""The time (ns) for which it keeps one: what is purged is read as done within that."""

MAX_PURGED_KEPT = 10_000
"""Purges that are kept at most if the server may undo them."""

PURGED_KEPT_NS = 300 * SECOND
"""The time (ns) for which a purge is kept: a server of 2.10 writes its state to disk every two minutes."""

OLD_VERSIONS_RETRY_NS = 5 * SECOND
"""Wait before old versions that could not be purged are tried again, all together."""


@dataclass(slots=True)
class RollUp:
    """A target that is to be rolled up by a purge."""

    through: int
    """Everything on it up to this sequence is to be purged: a fire was stored behind that."""
    is_ordered: bool = False
    """True if the purge waits, or was sent and has not succeeded."""
    behind: list[PurgeSchedule] = field(default_factory=list)
    """The purges that follow it: of the schedules that are done."""


class Purges:
    """The purges of one stream."""

    def __init__(self) -> None:
        self.queue: deque[PurgeSchedule] = deque()
        """The purges that wait."""
        self.outstanding = 0
        """Purges that wait, or were ordered and are not concluded."""
        self.ordered: dict[tuple[str, int], Version] = {}
        """Old versions whose purge is not concluded: the one that is known, by subject and highest sequence."""
        self.old_versions: dict[tuple[str, Version | None], int] = {}
        """Old versions that could not be purged: the highest sequence by subject, and by the one that is known."""
        self.old_versions_retry_at = 0
        """When (ns) these are tried again."""
        self.roll_ups: dict[str, RollUp] = {}
        """By target."""
        self.requested_by_owner: deque[tuple[str, int, Version]] = deque(maxlen=MAX_REQUESTED_BY_OWNER)
        """The last purges that another owner requested: subject, sequence, and the schedule."""
        self.under_way: Fire | None = None
        """The fire whose acknowledgement is being taken, if that had its schedule purged (`Fire.purge_through`)."""
        self._requested_early: dict[int, None] = {}
        """Schedules, by sequence, whose purge the owner requested before they were done here."""
        self._joint: dict[str, tuple[int, int]] = {}
        """By filter with a wildcard, below which sequence the owner purged jointly, and when (ns) it was received."""
        self._purged: dict[tuple[str, int], tuple[int, int]] = {}
        """The schedules that were purged, by subject and sequence: the instants (ns) of storage and of the purge."""

    @property
    def unfinished(self) -> int:
        """Purges that wait, were ordered, or are of old versions and failed."""
        return self.outstanding + len(self.old_versions)

    def may_be_stored(self) -> Iterator[tuple[str, Version, int]]:
        """Yield versions that are not held and may be stored, by subject, each with the last sequence to be purged."""
        for (subject, through), known in self.ordered.items():
            yield subject, known, through
        for (subject, version), through in self.old_versions.items():
            if version is not None:
                yield subject, version, through
        for (subject, sequence), (stored_at, _purged_at) in self._purged.items():
            yield subject, Version(sequence, stored_at), sequence

    def enqueue(self, request: PurgeSchedule) -> None:
        """Have a purge wait until it may be ordered."""
        self.outstanding += 1
        self.queue.append(request)

    def enqueue_versions(self, schedule: str, through: int, known: Version | None = None) -> None:
        """Have every version of a schedule up to sequence `through` purged, once no burst lasts.

        One of them is `known`.
        """
        if known is not None:
            self.ordered[schedule, through] = known
        self.enqueue(PurgeSchedule(schedule, through, None, known))

    # -- roll-ups ------------------------------------------------------------------------------------------------

    def roll_up(self, target: str, through: int, *, at_once: bool) -> None:
        """Have a target purged up to a sequence, since a fire is stored behind that: `at_once`, or if it is ordered."""
        if through <= 0:
            return
        known = self.roll_ups.get(target)
        if known is None:
            known = self.roll_ups[target] = RollUp(through)
        elif through > known.through:
            known.through, known.is_ordered = through, False
        if at_once or known.behind:
            self.order_roll_up(target, known)

    def order_roll_up(self, target: str, roll_up: RollUp) -> None:
        """Order the purge of a target, unless that was done."""
        if not roll_up.is_ordered:
            roll_up.is_ordered = True
            self.enqueue_versions(target, roll_up.through)

    def rolled_up(self, target: str, through: int) -> None:
        """Purge the schedules that waited until their target was rolled up to a sequence, or cannot be."""
        known = self.roll_ups.get(target)
        if known is not None and through >= known.through:
            del self.roll_ups[target]
            self.outstanding += len(known.behind)
            self.queue.extend(known.behind)

    # -- what the owner requested ----------------------------------------------------------------------------------

    def note_early(self, sequence: int) -> None:
        """Note that the owner requested the purge of a schedule that is not done here."""
        if len(self._requested_early) >= MAX_REQUESTED_EARLY:
            del self._requested_early[next(iter(self._requested_early))]
        self._requested_early[sequence] = None

    def note_joint(self, wanted: str, below: int, now: int) -> None:
        """Note that the owner purges all that a filter matches below a sequence."""
        highest = max(below, self._joint.pop(wanted, (0, 0))[0])
        self._joint[wanted] = highest, now
        if len(self._joint) > MAX_JOINT_FILTERS:
            del self._joint[next(iter(self._joint))]

    def forget_joint(self) -> None:
        """Discard what the owner before purged jointly."""
        self._joint.clear()

    def take_request(self, subject: str, sequence: int, now: int) -> bool:
        """Return whether the owner requested the purge of a schedule before it was done here."""
        if sequence in self._requested_early:
            del self._requested_early[sequence]
            return True
        return any(
            sequence < below and at > now - JOINT_KEPT_NS and subject_matches(subject, wanted)
            for wanted, (below, at) in self._joint.items()
        )

    # -- what may come back, or is left ------------------------------------------------------------------------------

    def keep_purged(self, subject: str, sequence: int, stored_at: int, now: int) -> None:
        """Keep what was purged: a server that is killed may have it again."""
        if len(self._purged) >= MAX_PURGED_KEPT:
            del self._purged[next(iter(self._purged))]
        self._purged[subject, sequence] = stored_at, now

    def purge_returned(self, now: int) -> None:
        """Purge again what was purged and may be stored again: the server may have been killed."""
        self._purged = {key: times for key, times in self._purged.items() if now - times[1] <= PURGED_KEPT_NS}
        for (schedule, sequence), (stored_at, _purged_at) in self._purged.items():
            self.enqueue(PurgeSchedule(schedule, sequence, stored_at, Version(sequence, stored_at)))

    def keep_old_versions(self, conclusion: PurgeConcluded, now: int) -> None:
        """Keep versions that are not held any more and are still stored."""
        if (conclusion.schedule, conclusion.through) in self._purged:
            return
        if not self.old_versions:
            self.old_versions_retry_at = now + OLD_VERSIONS_RETRY_NS
        key = conclusion.schedule, conclusion.known
        self.old_versions[key] = max(self.old_versions.get(key, 0), conclusion.through)

    def retry_old_versions(self) -> None:
        """Purge again what could not be purged."""
        old_versions, self.old_versions = self.old_versions, {}
        for (schedule, known), through in old_versions.items():
            self.enqueue_versions(schedule, through, known)

    def clock_stepped_back(self, by: int) -> None:
        """Keep the waits as long as they were although the wall clock shows `by` ns less than before."""
        self.old_versions_retry_at -= by
        self._joint = {one: (below, at - by) for one, (below, at) in self._joint.items()}
