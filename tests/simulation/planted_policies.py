"""Bugs in policies that are planted on purpose.

Its rule: a bug is one small change of the product, undone when the block of `tests.simulation.planted` ends.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from nats_scheduler.engine.firing import sending
from nats_scheduler.engine.firing.overlap import Overlaps
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifecycle import Lifecycle
from nats_scheduler.engine.inputs import CheckpointLoaded, FinishChecked
from nats_scheduler.engine.reading import intake
from nats_scheduler.engine.sharing.holdings import Holdings, _had_read
from nats_scheduler.message import definition
from nats_scheduler.message.generated import report_headers
from nats_scheduler.message.policies import Kept, Policies, with_policies
from nats_scheduler.message.timetable import Timetable, jittered
from nats_scheduler.schedule import bounds
from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import Pattern
from tests.simulation.planted_division import Changes


def start_forgotten() -> Changes:
    """Let a schedule fire before its start."""
    yield definition, "with_policies", _without("start")


def end_forgotten() -> Changes:
    """Let a schedule fire after its end."""
    yield definition, "with_policies", _without("end")


def _without(bound: str) -> Callable[[Pattern, Policies], Pattern]:
    left_out = dict[str, Any]({bound: None})
    return lambda pattern, policies: with_policies(
        pattern, replace(policies, bounds=replace(policies.bounds, **left_out))
    )


def limit_counted_wrong() -> Changes:
    """Let a limit leave one fire too many."""
    original = bounds._nth_fire
    yield bounds, "_nth_fire", lambda bounded, stored_at, number: original(bounded, stored_at, number + 1)


def grid_of_the_anchor_forgotten() -> Changes:
    """Count an interval from the stored time, whatever its anchor is."""
    yield Bounded, "_grid", lambda _self, stored_at: stored_at


def last_fire_ends_nothing() -> Changes:
    """Leave a schedule stored whose last fire is stored."""
    yield Timetable, "ends_by_itself", property(lambda self: not self.repeats)


def jitter_of_the_instance() -> Changes:
    """Let a jitter follow from the instance that holds the schedule, so that no two instances agree."""
    numbers = count(1)

    class HeldByOne(Held):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._number = next(numbers)

        def send_time_of(self, fire_time: int) -> int:
            return jittered(self, self.subject, self._number, self.terms.policies.jitter or 0, fire_time)

    yield intake, "Held", HeldByOne


def jitter_forgotten() -> Changes:
    """Send each fire at its fire time."""
    yield Held, "send_time_of", lambda _self, fire_time: fire_time


def delayed_fire_settled() -> Changes:
    """Let a checkpoint settle each fire whose fire time has passed, whether or not it was sent."""

    def pass_over(self: Holdings, held: Held) -> bool:
        settled = self._settled[held.shard]
        if held.fire_time > settled.through or not _had_read(settled, held) or held.sequence in settled.unsettled:
            return False
        if held.repeats:
            self._course.advance(held, held.next_fire(settled.through))
        else:
            self._purges.purge(held)
        return True

    yield Holdings, "pass_over", pass_over


def backlog_collapsed() -> Changes:
    """Make up the latest missed fire of a schedule that asked for each."""
    original = Held.due_fire

    def latest(held: Held, following: int | None, now: int) -> int | None:
        chosen = original(held, following, now)
        is_all = held.terms.policies.missed.kept is Kept.ALL
        return held.latest_due(held.fire_time, now) or chosen if is_all and held.repeats else chosen

    yield Held, "due_fire", latest


def backlog_unbounded() -> Changes:
    """Make up each missed fire, whatever number bounds them."""
    original = Held.due_fire

    def first(held: Held, following: int | None, now: int) -> int | None:
        return held.fire_time if held.terms.policies.missed.kept is Kept.ALL else original(held, following, now)

    yield Held, "due_fire", first


def backlog_forgotten_at_a_start() -> Changes:
    """Owe the latest missed fire of a schedule that was read just now."""

    def begin(_self: Holdings, held: Held, _settled: CheckpointLoaded) -> None:
        held.is_known = False

    yield Holdings, "_begin_backlog", begin


def missed_fires_not_skipped() -> Changes:
    """Make up a fire that was to be skipped."""
    original = Held.due_fire

    def latest(held: Held, following: int | None, now: int) -> int | None:
        chosen = original(held, following, now)
        return held.fire_time if chosen is None else chosen

    yield Held, "due_fire", latest


def grace_forgotten() -> Changes:
    """Skip what is late at all."""
    original = Held.due_fire

    def punctual(held: Held, following: int | None, now: int) -> int | None:
        chosen, is_skipped = original(held, following, now), held.terms.policies.missed.kept is Kept.SKIP
        return None if is_skipped and chosen is not None and now - held.send_time_of(chosen) > SECOND // 10 else chosen

    yield Held, "due_fire", punctual


def fire_before_forgotten() -> Changes:
    """Report as if no fire was stored before."""
    yield sending, "report_headers", lambda pattern, due, _previous, missed: report_headers(pattern, due, None, missed)


def dropped_counted_wrong() -> Changes:
    """Count the fire itself among those that were dropped before it."""
    original = Held.dropped_before
    yield Held, "dropped_before", lambda held, due, since: original(held, due, since) + 1


def fire_before_ignored() -> Changes:
    """Send each fire at its time, whether or not the one before is finished."""
    yield Overlaps, "holds_back", lambda _self, _held, _flight, _now: False


def first_fire_taken_for_the_one_before() -> Changes:
    """Ask about the first fire of a schedule again and again, and not about the last one."""
    original = Held.fire_is_stored

    def fire_is_stored(self: Held, fire_time: int, sequence: int, stored_at: int) -> None:
        if self.previous_fire is None:
            original(self, fire_time, sequence, stored_at)

    yield Held, "fire_is_stored", fire_is_stored


def waiting_fire_settled() -> Changes:
    """Let a checkpoint settle fires that wait for the one before."""
    yield Lifecycle, "all_held_back", lambda _self: []


def finished_fire_not_noticed() -> Changes:
    """Take every fire that was asked about for unfinished."""
    original = Overlaps.answered

    def answered(self: Overlaps, held: Held, request: Any, answer: Any, now: int) -> Any:
        if isinstance(answer, FinishChecked) and not answer.unfinished:
            answer = replace(answer, unfinished=request.through)
        return original(self, held, request, answer, now)

    yield Overlaps, "answered", answered


def question_asked_once() -> Changes:
    """Ask no more about a fire before if the answer came while the schedule was read again."""
    yield Overlaps, "answered_too_soon", lambda _self, _flight, _answer: None
