"""What is reported and purged late: schedules, rejected ones and old versions of shards that this instance has gained.

An earlier holder may have done it already; doing it twice is harmless.
The rule: each step does one slice, and none while many outcomes are outstanding, so that due fires need not wait.

Cost: one check of each of them when shards are gained.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import ScheduleAccepted, ScheduleEndsEarly
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.inactive import Inactive
from nats_scheduler.engine.inputs import RemovalRequested, Version
from nats_scheduler.engine.lifecycle import Lifecycle
from nats_scheduler.engine.lifetimes import Lifetimes
from nats_scheduler.engine.purges import Purges
from nats_scheduler.engine.shards import shard_of

MAX_SUPERSEDED = 10_000
"""Most old versions in the shards of other holders that are noted, in case their holder does not purge them."""

MAX_UNREPORTED = 10_000
"""Most schedules in the shards of other holders that are noted, in case no instance held them when they were stored."""

MAX_CHECKS_PER_STEP = 256
"""Subjects that are checked in one step: each may lead to a log line or a request."""

MAX_OUTSTANDING = 2_048
"""While more outcomes of fires and purges than this are outstanding, the backlog waits."""


class Backlog:
    """What one stream's engine has yet to report and to purge."""

    def __init__(
        self,
        inactive: Inactive,
        lifecycle: Lifecycle,
        purges: Purges,
        lifetimes: Lifetimes,
        emit: Callable[[Action], None],
        unreported: Callable[[str, int], Held | None],
    ) -> None:
        """Begin with nothing.

        `unreported` returns a schedule, by subject and sequence, that is held and that no earlier holder has reported.
        """
        self._inactive = inactive
        self._lifecycle = lifecycle
        self._ownership = lifecycle.ownership
        self._purges = purges
        self._lifetimes = lifetimes
        self._emit = emit
        self._unreported = unreported
        self._accepted: dict[str, int] = {}
        self._superseded: dict[str, tuple[int, Version]] = {}
        self._superseded_at: dict[int, str] = {}
        """The subjects of those, by the sequences of the versions that are known."""
        self._left: Iterator[None] | None = None
        """What is left to check; None if there is nothing."""

    def accepted(self, held: Held) -> None:
        """Report a schedule that is held: at once, or when this instance gains its shard."""
        is_told = self.accepted_far(held.subject, held.sequence, held.fire_time, held.shard)
        if is_told and (ending := self._lifetimes.early(held)):
            ends = self._lifetimes.ends(held)
            self._emit(Report(ScheduleEndsEarly(held.subject, held.sequence, held.fire_time, ends, ending)))

    def accepted_far(self, subject: str, sequence: int, fire_time: int, shard: int) -> bool:
        """Report a schedule that nothing ends before its fire time (ns); returns whether it was reported at once."""
        if shard in self._ownership.shards:
            self._emit(Report(ScheduleAccepted(subject, sequence, fire_time)))
            return True
        if len(self._accepted) >= MAX_UNREPORTED:
            del self._accepted[next(iter(self._accepted))]
        self._accepted[subject] = sequence
        return False

    def superseded(self, subject: str, through: int, known: Version, most: int | None) -> None:
        """Note that versions up to `through` are to be purged, `known` among them; of at most `most` subjects."""
        if (before := self._superseded.get(subject)) is not None:
            self._superseded_at.pop(before[1].sequence, None)
        if most is not None and len(self._superseded) >= most:
            self._discard(next(iter(self._superseded)))
        self._superseded[subject] = through, known
        self._superseded_at[known.sequence] = subject

    def noted(self) -> dict[str, tuple[int, Version]]:
        """Return the old versions that are noted, by subject, and through which sequence they are to be purged."""
        return dict(self._superseded)

    def removal_requested(self, request: RemovalRequested) -> None:
        """Discard the old versions noted on a subject if their holder asked for their removal."""
        wanted = request.filter
        if request.sequence is not None:
            wanted = self._superseded_at.get(request.sequence)
        if wanted is not None and wanted in self._superseded and not self._ownership.is_ours_on(wanted):
            self._discard(wanted)

    def _discard(self, subject: str) -> tuple[int, Version]:
        through, known = self._superseded.pop(subject)
        self._superseded_at.pop(known.sequence, None)
        return through, known

    def begin_with(self, shards: frozenset[int]) -> None:
        """Report what is held and rejected in these shards and purge old versions, from the next step on."""
        if self._accepted or self._inactive.rejected or self._superseded or self._purges.requested_by_others:
            purges = self._purge_superseded(shards), self._purge_again(shards)
            self._left = chain(self._left or (), self._report_accepted(shards), self._report_rejected(shards), *purges)

    def work(self, outstanding: int) -> bool:
        """Do one slice of what is left; returns whether to continue at once.

        Nothing is done while too many fires and purges are `outstanding`.
        """
        if self._left is None or outstanding > MAX_OUTSTANDING:
            return False  # an outcome will call the engine again
        is_more = sum(1 for _ in islice(self._left, MAX_CHECKS_PER_STEP)) == MAX_CHECKS_PER_STEP
        if not is_more:
            self._left = None
        return is_more

    def _report_accepted(self, shards: frozenset[int]) -> Iterator[None]:
        for subject in list(self._accepted):
            if subject in self._accepted and self._is_ours(subject, shards):
                held = self._unreported(subject, self._accepted.pop(subject))
                if held is not None:
                    self.accepted(held)
            yield

    def _report_rejected(self, shards: frozenset[int]) -> Iterator[None]:
        for subject, known in list(self._inactive.rejected.items()):
            if self._inactive.rejected.get(subject) is known and self._is_ours(subject, shards):
                self._inactive.report(known)
            yield

    def _purge_superseded(self, shards: frozenset[int]) -> Iterator[None]:
        for subject in list(self._superseded):
            if subject in self._superseded and self._is_ours(subject, shards):
                self._purges.purge_versions(subject, *self._discard(subject))
            yield

    def _purge_again(self, shards: frozenset[int]) -> Iterator[None]:
        """Repeat the recent purge requests of an earlier holder, whose answers may not have been received."""
        asked_for = self._purges.requested_by_others
        for _ in range(len(asked_for)):
            if asked_for:
                subject, through, done = asked_for.popleft()
                if self._is_ours(subject, shards):
                    self._purges.purge_versions(subject, through, done)
                else:
                    asked_for.append((subject, through, done))
            yield

    def _is_ours(self, subject: str, gained: frozenset[int]) -> bool:
        shard = shard_of(subject)
        return shard in gained and shard in self._ownership.shards
