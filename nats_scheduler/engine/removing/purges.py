"""Purge the messages of schedules that are done, and of versions that were replaced.

The rules:

- *Purge last*: a schedule that is done stays held, and fires nothing, until the server has purged it.
- The owner of the stream purges. A standby holds a schedule that is done until the owner's request is received on the
  API, so that memory follows what the stream holds; if none is received, it is purged here after a while, since to
  purge twice is harmless.
- A roll-up that the fire itself cannot do (`StreamRules.rolls_up_by_purge`) is a purge of the target below the fire.
  The schedule is purged after it: until then a restart finds the fire and its schedule, and does it again. A standby
  keeps them until the owner's request is received, or until it is the owner itself.
- A schedule is purged as soon as its last fire is acknowledged: a worker that receives the fire may store the next
  schedule on the same subject. So the fire itself names that purge (`Fire.purge_through`), and the port begins it.
- Purges wait while a burst lasts: fires go first, because the server purges more slowly than it stores.

Cost: an entry in a queue for each purge.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nats_scheduler.engine.actions import PurgeSchedule, Report
from nats_scheduler.engine.events import Ending, PurgeFailed
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.holding.flight import DONE, REFUSED_BACK_OFF_LIMIT_NS, Stage, Turn
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifecycle import Lifecycle, Part
from nats_scheduler.engine.inputs import PurgeConcluded, SchedulesPurged, Version
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.schedule.instants import SECOND

LEFT_TO_OWNER_NS = 30 * SECOND
"""A schedule that is left to the owner and has been due for this time (ns) is taken for gone, and is read; one that has
been done for this time is purged."""

MAX_PURGES_PER_STEP = 256
"""The most purges that are ordered in one step, so that what is due does not have to wait."""

MAX_REQUESTED_BY_OWNER = 1_000
"""Purges requested by the owner that a standby keeps: the request may be lost if its sender is gone."""

MAX_REQUESTED_EARLY = 65_536
"""Schedules that are noted at most because the owner purges them and their fires are not read back yet.

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


class Purges(Part):
    """The purges of one stream."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        *,
        may_return: bool,
        rolls_up: bool,
    ) -> None:
        """Purge what is done; it `may_return` if a server that is killed undoes its last purges (2.10)."""
        super().__init__(lifecycle)
        self.rolls_up = rolls_up
        """True if fires roll up their targets by purges."""
        self._may_return = may_return
        self._queue: deque[PurgeSchedule] = deque()
        self._purged: dict[tuple[str, int], tuple[int, int]] = {}
        """The schedules that were purged, by subject and sequence: the instants (ns) of storage and of the purge."""
        self.old_versions: dict[tuple[str, Version | None], int] = {}
        """Old versions that could not be purged: the highest sequence by subject, and by the one that is known."""
        self._old_versions_retry_at = 0
        self._ordered: dict[tuple[str, int], Version] = {}
        """Old versions whose purge is not concluded: the one that is known, by subject and highest sequence."""
        self._roll_ups: dict[str, RollUp] = {}
        """By target."""
        self.requested_by_owner: deque[tuple[str, int, Version]] = deque(maxlen=MAX_REQUESTED_BY_OWNER)
        """The last purges that another owner requested: subject, sequence, and the schedule."""
        self._requested_early: dict[int, None] = {}
        """Schedules, by sequence, whose purge the owner requested before they were done here."""
        self._joint: dict[str, tuple[int, int]] = {}
        """By filter with a wildcard, below which sequence the owner purged jointly, and when (ns) it was received."""
        self.under_way: Fire | None = None
        """The fire whose acknowledgement is being taken, if that had its schedule purged (`Fire.purge_through`)."""
        self.outstanding = 0
        """Purges that wait, or were ordered and are not concluded."""

    @property
    def unfinished(self) -> int:
        """Purges that wait, were ordered, or are of old versions and failed."""
        return self.outstanding + len(self.old_versions)

    def may_be_stored(self) -> Iterator[tuple[str, Version, int]]:
        """Yield versions that are not held and may be stored, by subject, each with the last sequence to be purged."""
        for (subject, through), known in self._ordered.items():
            yield subject, known, through
        for (subject, version), through in self.old_versions.items():
            if version is not None:
                yield subject, version, through
        for (subject, sequence), (stored_at, _purged_at) in self._purged.items():
            yield subject, Version(sequence, stored_at), sequence

    def purge(self, held: Held, ending: Ending = Ending.FIRED) -> None:
        """Purge a schedule that is done if the stream is ours, or else wait until its owner does."""
        lifecycle = self._lifecycle
        if lifecycle.ownership.is_owner:
            self.purge_now(held, ending)
            return
        lifecycle.move(held, Turn.DONE_BY_OWNER)
        assert held.flight is not None, "what is done has a flight"
        held.flight.ending = ending
        if self._was_requested(held):
            self._end_purged_by_owner(held, ending)
        else:
            since = self._contents.now or held.send_time  # rows are begun with before the first step
            lifecycle.set_aside(held, since + LEFT_TO_OWNER_NS)

    def _was_requested(self, held: Held) -> bool:
        """Return whether the owner requested the purge of a schedule before it was done here."""
        if held.sequence in self._requested_early:
            del self._requested_early[held.sequence]
            return True
        kept_since = self._contents.now - JOINT_KEPT_NS
        return any(
            held.sequence < below and at > kept_since and subject_matches(held.subject, wanted)
            for wanted, (below, at) in self._joint.items()
        )

    def purge_now(self, held: Held, ending: Ending) -> None:
        """Purge a schedule that is done, whichever instance owns the stream."""
        self._lifecycle.move(held, Turn.DONE)
        self._roster.cancel_wake(held)
        assert held.flight is not None, "what is done has a flight"
        held.flight.ending = ending
        self.purge_subject(held)

    def purge_subject(self, held: Held) -> None:
        """Have a schedule purged, and with it what landed on it before it was done, as the server does."""
        through = self._landed.last_on(held)
        if self.under_way is not None and self.under_way.purge_through == through:
            return
        known = Version(held.sequence, held.stored_at)
        roll_up = self._roll_ups.get(held.terms.target) if held.terms.rollup else None
        if roll_up is None:
            self._enqueue(held.subject, through, known)
        else:
            roll_up.behind.append(PurgeSchedule(held.subject, through, None, known))
            self._order(held.terms.target, roll_up)

    def roll_up(self, target: str, through: int) -> None:
        """Have a target purged up to a sequence, since a fire is stored behind that."""
        if through <= 0:
            return
        known = self._roll_ups.get(target)
        if known is None:
            known = self._roll_ups[target] = RollUp(through)
        elif through > known.through:
            known.through, known.is_ordered = through, False
        if self._ownership.is_owner or known.behind:
            self._order(target, known)

    def take_over(self) -> None:
        """Roll up what the owner before may not have rolled up."""
        self._joint.clear()
        for target, roll_up in self._roll_ups.items():
            self._order(target, roll_up)

    def roll_ups(self) -> Iterable[tuple[str, int]]:
        """Return what may still be to be rolled up: targets, each with the last sequence to be purged."""
        return [(target, one.through) for target, one in self._roll_ups.items()]

    def _order(self, target: str, roll_up: RollUp) -> None:
        if not roll_up.is_ordered:
            roll_up.is_ordered = True
            self.purge_versions(target, roll_up.through)

    def _rolled_up(self, target: str, through: int) -> None:
        """Purge the schedules that waited until their target was rolled up to a sequence, or cannot be."""
        known = self._roll_ups.get(target)
        if known is not None and through >= known.through:
            del self._roll_ups[target]
            self.outstanding += len(known.behind)
            self._queue.extend(known.behind)

    def purge_versions(self, schedule: str, through: int, known: Version | None = None) -> None:
        """Have every version of a schedule up to sequence `through` purged, once no burst lasts.

        One of them is `known`.
        """
        if known is not None:
            self._ordered[schedule, through] = known
        self._enqueue(schedule, through, known)

    def _enqueue(self, schedule: str, through: int, known: Version | None) -> None:
        self.outstanding += 1
        self._queue.append(PurgeSchedule(schedule, through, None, known))

    def purge_returned(self, now: int) -> None:
        """Purge again what was purged and may be stored again: the server may have been killed."""
        self._purged = {key: times for key, times in self._purged.items() if now - times[1] <= PURGED_KEPT_NS}
        for (schedule, sequence), (stored_at, _purged_at) in self._purged.items():
            self.outstanding += 1
            self._queue.append(PurgeSchedule(schedule, sequence, stored_at, Version(sequence, stored_at)))

    def release(self, now: int) -> bool:
        """Order the purges that wait, unless a burst lasts; returns whether there are more."""
        if not self._queue and not self.old_versions:
            return False
        if self._in_flight.is_burst(len(self._queue), now):
            return False
        if self.old_versions and self._progress.is_open and now >= self._old_versions_retry_at:
            old_versions, self.old_versions = self.old_versions, {}
            for (schedule, known), through in old_versions.items():
                self.purge_versions(schedule, through, known)
        for _ in range(min(MAX_PURGES_PER_STEP, len(self._queue))):
            self._emit(self._queue.popleft())
        return bool(self._queue)

    def concluded(self, conclusion: PurgeConcluded | SchedulesPurged, now: int) -> None:
        """End a schedule that was purged, or try again."""
        if isinstance(conclusion, SchedulesPurged):
            self._were_purged(conclusion, now)
            return
        self.outstanding -= 1
        schedule, through, failure = conclusion.schedule, conclusion.through, conclusion.failure
        self._ordered.pop((schedule, through), None)
        held = self._purging(schedule, through)
        if failure is None or conclusion.refused or conclusion.denied:
            self._rolled_up(schedule, through)
        if failure is not None:
            self._emit(Report(PurgeFailed(schedule, through, failure, conclusion.refused)))
        if held is None or held.flight is None:
            if failure is not None and not conclusion.refused and (schedule, through) not in self._purged:
                self._keep_old_versions(conclusion, now)
        elif failure is None:
            self._keep_purged(held, now)
            self._lifecycle.end(held, held.flight.ending)
        else:
            if conclusion.denied:
                self._ownership.deny(failure, now)
            if conclusion.refused:
                self._lifecycle.move(held, Turn.PURGE_REFUSED)
                self._lifecycle.set_aside(held, None)
            else:
                self._lifecycle.set_aside(held, now + held.flight.back_off(REFUSED_BACK_OFF_LIMIT_NS))

    def _were_purged(self, purged: SchedulesPurged, now: int) -> None:
        self.outstanding -= len(purged.schedules)
        for schedule, through in zip(purged.schedules, purged.throughs, strict=True):
            self._ordered.pop((schedule, through), None)
            self._rolled_up(schedule, through)
            held = self._purging(schedule, through)
            if held is not None and held.flight is not None:
                self._keep_purged(held, now)
                self._lifecycle.end(held, held.flight.ending)

    def requested_on(self, subject: str, below: int | None, now: int) -> None:
        """Note a request to purge a subject below this sequence, or all of it."""
        roll_up = self._roll_ups.get(subject)
        if roll_up is not None and not roll_up.is_ordered and (below is None or roll_up.through < below):
            self._rolled_up(subject, roll_up.through)
        self.requested_of(self._roster.on(subject), below, now)

    def requested_of(self, held: Held | None, below: int | None, now: int) -> None:
        """End a schedule that is done, when the owner requests to purge what is below this sequence.

        The request may be received before the fire that it follows.
        """
        if held is None or self._ownership.is_owner or not (below is None or held.sequence < below):
            return
        if held.flight is not None and held.flight.stage in DONE:
            self._end_purged_by_owner(held, held.flight.ending)
        elif now >= held.send_time - SECOND:
            if len(self._requested_early) >= MAX_REQUESTED_EARLY:
                del self._requested_early[next(iter(self._requested_early))]
            self._requested_early[held.sequence] = None

    def requested_jointly(self, wanted: str, below: int, now: int) -> None:
        """End the schedules that are done, when the owner purges all that a filter matches below this sequence.

        What it matches is done, or will be as soon as its fire is read back: the owner purges jointly nothing else.
        """
        if self._ownership.is_owner:
            return
        highest = max(below, self._joint.pop(wanted, (0, 0))[0])
        self._joint[wanted] = highest, now
        if len(self._joint) > MAX_JOINT_FILTERS:
            del self._joint[next(iter(self._joint))]
        for held in list(self._lifecycle.aside.values()):
            flight = held.flight
            is_done = flight is not None and flight.stage is Stage.DONE_BY_OWNER and held.sequence < below
            if is_done and flight is not None and subject_matches(held.subject, wanted):
                self._end_purged_by_owner(held, flight.ending)

    def _end_purged_by_owner(self, held: Held, ending: Ending) -> None:
        through = self._landed.last_on(held)
        self.requested_by_owner.append((held.subject, through, Version(held.sequence, held.stored_at)))
        self._lifecycle.end(held, ending)

    def next_retry(self) -> int | None:
        """Return when (ns) old versions that could not be purged are tried again, None if there are none."""
        return self._old_versions_retry_at if self.old_versions else None

    def clock_stepped_back(self, by: int) -> None:
        """Keep those waits as long as they were although the wall clock shows `by` ns less than before."""
        self._old_versions_retry_at -= by
        self._joint = {one: (below, at - by) for one, (below, at) in self._joint.items()}

    def _purging(self, schedule: str, through: int) -> Held | None:
        """Return the schedule whose purge up to a sequence was concluded, None if it is not held any more."""
        held = self._roster.on(schedule)
        if held is None or held.flight is None or held.flight.stage is not Stage.PURGING:
            return None
        return held if self._landed.last_on(held) == through else None

    def _keep_purged(self, held: Held, now: int) -> None:
        if self._may_return:
            if len(self._purged) >= MAX_PURGED_KEPT:
                del self._purged[next(iter(self._purged))]
            self._purged[held.subject, held.sequence] = held.stored_at, now

    def _keep_old_versions(self, conclusion: PurgeConcluded, now: int) -> None:
        """Keep versions that are not held any more and are still stored."""
        if not self.old_versions:
            self._old_versions_retry_at = now + OLD_VERSIONS_RETRY_NS
        key = conclusion.schedule, conclusion.known
        self.old_versions[key] = max(self.old_versions.get(key, 0), conclusion.through)
