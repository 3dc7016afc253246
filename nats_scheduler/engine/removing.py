"""Bring held schedules to their end: remove the messages of those that are done, and hold them no longer.

The rules:

- *Purge last*: a schedule that is done stays held, and silent, until the server has removed it.
- What is done in a shard of another holder is his to remove; it is let go when his request is seen on the API, so that
  memory follows what the stream holds. Should he not do it, it is removed here after a while: twice is harmless.

The way to a fire builds on it, in `engine.approach`, and what follows from one, in `engine.firing`.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from nats_scheduler.engine.actions import Action, PurgeSchedule, Report
from nats_scheduler.engine.events import Ending, FiresDropped, PurgeFailed, ScheduleEnded, ScheduleLost
from nats_scheduler.engine.flight import REFUSED_RETRY_LIMIT, Flight, Stage
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.inputs import PurgeConcluded
from nats_scheduler.engine.lifetimes import UNLIMITED
from nats_scheduler.engine.refusals import Refusals
from nats_scheduler.engine.roster import Roster
from nats_scheduler.engine.shards import ALL_SHARDS, SHARDS
from nats_scheduler.schedule.instants import SECOND

OTHERS_MAY_TAKE = 30 * SECOND
"""So long (ns) after its due time a schedule of another holder is taken for gone, and looked at."""

HERD = 64
"""While more fires than this are in flight, what can wait does: to tell what was stored, to remove what is done."""

RELEASED_AT_ONCE = 1_024
"""So much of what waited is done in one step, so that what is due need not wait for it."""

LONGEST_HERD = 30 * SECOND
"""What never ends (ns) is no herd but the usual: fires to a distant server, many each second."""

MOST_WAITING = 200_000
"""Where more waits than this, some of it is done although a herd is in the way."""

LATELY = 1_000
"""So many of those that their holder asked to remove are remembered: if he dies, his request may have been lost too."""

MOST_REMEMBERED = 10_000
"""Removals that are remembered at most, where a server may undo them."""

REMEMBERED_FOR = 300 * SECOND
"""So long (ns) a removal is remembered: a server of 2.10 writes down what it holds every two minutes."""

OLD_VERSIONS_RETRY_AFTER = 5 * SECOND
"""Wait (ns) before older versions that could not be removed are tried again, all together: nothing hurries."""


NEGLECTED_AFTER = 3 * SECOND
"""So long (ns) after its due time a schedule of another holder that nobody was seen to fire is looked at.

Where it is still stored its holder neglects it; a removal leaves nothing in the stream that would tell the two apart.
"""


class Denied(NamedTuple):
    """The last thing that a holder has to do and that our user may not."""

    at: int
    shard: int
    reason: str


class Removing:
    """The ends of one stream's schedules."""

    def __init__(self, roster: Roster, emit: Callable[[Action], None], *, may_return: bool) -> None:
        """Remove what is done; it `may_return` where a server that is killed forgets what it removed last (2.10)."""
        self._roster = roster
        self._may_return = may_return
        self._removed: dict[tuple[str, int], tuple[int, int]] = {}
        """What was removed lately, by subject and sequence: when it was stored, and when it was removed (ns)."""
        self._emit = emit
        self._active: dict[int, Held] = {}
        """Those whose fire was begun and is not settled, by sequence."""
        self._refusals = Refusals(roster)
        self._stuck = self._refusals.held
        """Of them, those whose fires are refused."""
        self._aside: dict[int, Held] = {}
        """Those of other holders whose time has come, and what is done and could not be removed."""
        self.asked_for: deque[tuple[str, int]] = deque(maxlen=LATELY)
        """What other holders asked to remove lately: subject, and sequence."""
        self._purges: deque[PurgeSchedule] = deque()
        """What is to be removed."""
        self._left_over: dict[str, int] = {}
        self._left_over_until = 0
        self._flying = 0
        self._herd_since: int | None = None
        """Since when (ns) more than `HERD` are flying."""
        self.is_open = False
        """Whether a fire may begin; its owner says so."""
        self.shards = ALL_SHARDS
        """The shards whose schedules are ours to fire; those of the others rest. For `engine.holdings` to set."""
        self.lifetimes = UNLIMITED
        """When the stream lets go of schedules by itself; its owner says so."""
        self.denied: Denied | None = None
        """What was denied to our user last, of what is ours to do."""
        self.sees_all = True
        """Whether the fires of others can be seen."""
        self.neglected: dict[int, int] = {}
        """Of shards of other holders, the fire time (ns) of a schedule that is stored, came due and was not fired."""
        self.last_fired = [0] * SHARDS
        """The last fire time (ns) of each shard that was seen in the stream."""
        self._live_since = 0
        self._looked_at: dict[int, Held] = {}
        """Of each shard of another holder, the schedule that was looked at last since nobody fired it."""
        self.under_way = 0
        """Fires and purges whose conclusion is awaited."""

    def purge(self, held: Held, ending: Ending = Ending.FIRED) -> None:
        """Remove a schedule that is done; until the server has done so it stays held, and silent.

        That of another holder is his to remove: it is let go when his request is seen.
        """
        if self.is_ours(held):
            self.remove(held, ending)
            return
        self.settle(held)
        held.flight = Flight(Stage.SPENT, ending=ending)
        self.leave_to_others(held, held.due)

    def remove(self, held: Held, ending: Ending) -> None:
        """Remove a schedule, whoever holds it."""
        self.settle(held)
        self._roster.rest(held)
        held.flight = Flight(Stage.PURGING, ending=ending)
        self.remove_versions(held.subject, held.sequence)

    def remove_versions(self, schedule: str, through: int) -> None:
        """Have every version of a schedule up to sequence `through` removed, once no herd is in the way."""
        self.under_way += 1
        self._purges.append(PurgeSchedule(schedule, through))

    def remove_returned(self, now: int) -> None:
        """Remove again what was removed lately and is stored again: the server may have been killed meanwhile."""
        self._removed = {key: times for key, times in self._removed.items() if now - times[1] <= REMEMBERED_FOR}
        for (schedule, sequence), (stored_at, _removed_at) in self._removed.items():
            self.under_way += 1
            self._purges.append(PurgeSchedule(schedule, sequence, stored_at))

    def _remember(self, held: Held, now: int) -> None:
        """Keep in mind what was removed, where the server may undo it."""
        if self._may_return:
            if len(self._removed) >= MOST_REMEMBERED:
                del self._removed[next(iter(self._removed))]
            self._removed[held.subject, held.sequence] = held.stored_at, now

    def left_over_until(self) -> int | None:
        """Return when (ns) older versions that could not be removed are tried again, None where there are none."""
        return self._left_over_until if self._left_over else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self.under_way == 0

    def is_herd_in_the_way(self, waiting: int, now: int) -> bool:
        """Tell whether what waits, so much of it, has to wait on."""
        if self._flying <= HERD:
            self._herd_since = None
            return False
        if self._herd_since is None:
            self._herd_since = now
        return waiting <= MOST_WAITING and now - self._herd_since < LONGEST_HERD

    def release(self, now: int) -> bool:
        """Remove what waited until no herd is in the way; returns whether there is more.

        Fires go first: the server purges more slowly than it stores.
        """
        if self.is_herd_in_the_way(len(self._purges), now):
            return False
        if self._left_over and self.is_open and now >= self._left_over_until:
            left_over, self._left_over = self._left_over, {}
            for schedule, through in left_over.items():
                self.remove_versions(schedule, through)
        for _ in range(min(RELEASED_AT_ONCE, len(self._purges))):
            self._emit(self._purges.popleft())
        return bool(self._purges)

    def purge_concluded(self, conclusion: PurgeConcluded, now: int) -> None:
        """Let go of a removed schedule, or try again."""
        self.under_way -= 1
        held = self.in_stage(conclusion.schedule, conclusion.through, Stage.PURGING)
        if conclusion.failure is not None:
            self._emit(
                Report(PurgeFailed(conclusion.schedule, conclusion.through, conclusion.failure, conclusion.refused))
            )
        if held is None or held.flight is None:
            is_remembered = (conclusion.schedule, conclusion.through) in self._removed
            if conclusion.failure is not None and not conclusion.refused and not is_remembered:
                self._leave_over(conclusion, now)
            return
        if conclusion.failure is None:
            self._remember(held, now)
            self.end(held, held.flight.ending)
            return
        if conclusion.denied:
            self.deny(held, conclusion.failure, now)
        self._aside[held.sequence] = held
        if conclusion.refused:
            held.flight.stage = Stage.SPENT
        else:
            self._roster.wake(held, now + held.flight.back_off(REFUSED_RETRY_LIMIT))

    def _leave_over(self, conclusion: PurgeConcluded, now: int) -> None:
        """Keep in mind versions that nobody holds any more and that are still stored."""
        if not self._left_over:
            self._left_over_until = now + OLD_VERSIONS_RETRY_AFTER
        before = self._left_over.get(conclusion.schedule, 0)
        self._left_over[conclusion.schedule] = max(before, conclusion.through)

    def end(self, held: Held, ending: Ending) -> None:
        """Hold the schedule no longer."""
        self.forget(held)
        self._roster.drop(held.subject)
        if self.is_ours(held):
            self._emit(Report(ScheduleEnded(held.subject, held.sequence, ending)))
            if is_lost(held, ending):
                self._emit(Report(ScheduleLost(held.subject, held.sequence, held.due, ending)))

    def forget(self, held: Held) -> None:
        """Await nothing more of a schedule that ended, or was replaced."""
        flight = held.flight
        if flight is not None and flight.failing is not None and self.is_ours(held):
            code, description, _since = flight.failing
            first = held.due if flight.missed_since is None else flight.missed_since
            self._emit(Report(FiresDropped(held.subject, held.sequence, first, code, description)))
        self.settle(held)

    def is_ours(self, held: Held) -> bool:
        """Tell whether a schedule is ours to fire."""
        return held.shard in self.shards

    def in_stage(self, subject: str, sequence: int, stage: Stage) -> Held | None:
        """Return a schedule if it is still held and its flight is in this stage."""
        held = self._roster.exactly(subject, sequence)
        return held if held is not None and held.flight is not None and held.flight.stage is stage else None

    def leave_to_others(self, held: Held, since: int) -> None:
        """Let a schedule of another holder rest whose time came at `since` (ns), and look at it after a while."""
        self._rest_until(held, since + OTHERS_MAY_TAKE)

    def deny(self, held: Held, reason: str, now: int) -> None:
        """Note that our user may not do what the holder of a schedule has to."""
        if self.is_ours(held):
            self.denied = Denied(now, held.shard, reason)

    def rests(self, held: Held, now: int) -> bool:
        """Let a schedule of another holder rest whose time has come; returns False where it is to be looked at.

        One of each shard is looked at, a while after its time, since its holder may neglect it.
        """
        since = max(held.due, self._live_since) + NEGLECTED_AFTER
        is_told = held.shard in self.neglected or self.last_fired[held.shard] >= held.due
        if is_told or not self.sees_all:
            self.leave_to_others(held, held.due)
        elif now < since:
            self._rest_until(held, since)
        elif self._is_looked_at(held.shard):
            self._rest_until(held, now + NEGLECTED_AFTER)
        else:
            self._looked_at[held.shard] = held
            return False
        return True

    def neglect(self, held: Held, now: int) -> None:
        """Note that a schedule of another holder is stored although its time has come and gone.

        Not where that was long ago: then its fires may be gone, and whoever holds it knows better.
        """
        since = max(held.due, self._live_since) + NEGLECTED_AFTER
        if self.sees_all and since <= now < held.due + OTHERS_MAY_TAKE:
            self.neglected[held.shard] = held.due

    def _is_looked_at(self, shard: int) -> bool:
        """Tell whether the answer about one of a shard is awaited."""
        held = self._looked_at.get(shard)
        return held is not None and self.in_stage(held.subject, held.sequence, Stage.READING) is held

    def _rest_until(self, held: Held, instant: int) -> None:
        self._aside[held.sequence] = held
        self._roster.wake(held, instant)

    def settle(self, held: Held) -> None:
        """Note that no fire of the schedule is begun any more."""
        sequence = held.sequence
        self._active.pop(sequence, None)
        if sequence in self._stuck:
            self._refusals.forget(sequence)
        self._aside.pop(sequence, None)
        if self.neglected and self.neglected.get(held.shard) == held.due:
            del self.neglected[held.shard]

    def in_hand(self) -> list[Held]:
        """Return the schedules that do more than wait for their time, those of other holders first."""
        return list({**self._aside, **self._active}.values())

    def forget_removed(self, held: Held | None, below: int | None) -> None:
        """Let go of a schedule that is done, and that its holder asked to remove."""
        if held is None or held.flight is None or self.is_ours(held):
            return
        if held.flight.stage not in (Stage.SPENT, Stage.PURGING):
            return
        if below is None or held.sequence < below:
            self.asked_for.append((held.subject, held.sequence))
            self.end(held, held.flight.ending)


def is_lost(held: Held, ending: Ending) -> bool:
    """Tell whether a schedule ended before a fire that somebody counts on.

    A TTL of its own that ends a schedule which has fired before was given to do that.
    """
    if ending is Ending.EXPIRED:
        return held.due == held.pattern.first_fire(held.stored_at)
    return ending in (Ending.MAX_AGE, Ending.LIMITS)
