"""Bugs in policies that are planted on purpose.

Its rule: a bug is one small change of the product, undone when the block of `tests.simulation.planted` ends.
"""

from itertools import count
from typing import Any

from nats_scheduler.engine import held as held_module
from nats_scheduler.engine import intake
from nats_scheduler.engine.held import Held, HeldWithPolicies
from nats_scheduler.engine.holdings import Holdings, _had_read
from nats_scheduler.message.jitter import jittered
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule import bounds
from nats_scheduler.schedule.bounds import Bounded
from tests.simulation.planted_division import Changes


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

    class HeldElsewhere(HeldWithPolicies):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._number = next(numbers)

        def send_time_of(self, fire_time: int) -> int:
            return jittered(self, self.subject, self._number, self.terms.policies.jitter or 0, fire_time)

    yield held_module, "HeldWithPolicies", HeldElsewhere


def jitter_forgotten() -> Changes:
    """Send each fire at its fire time."""
    yield intake, "held_schedule", Held


def delayed_fire_settled() -> Changes:
    """Let a checkpoint settle each fire whose fire time has passed, whether or not it was sent."""

    def pass_over(self: Holdings, held: Held) -> bool:
        settled = self._settled[held.shard]
        if held.fire_time > settled.through or not _had_read(settled, held) or held.sequence in settled.unsettled:
            return False
        if held.repeats:
            self._outcomes.advance(held, held.next_fire(settled.through))
        else:
            self._purges.purge(held)
        return True

    yield Holdings, "pass_over", pass_over
