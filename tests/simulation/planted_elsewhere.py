"""Bugs in targets in other streams that are planted on purpose.

Its rule: a bug is one small change of the product, undone when the block of `tests.simulation.planted` ends.
"""

from nats_scheduler.engine.firing import sending
from nats_scheduler.engine.firing.outcomes import Outcomes
from nats_scheduler.engine.firing.sending import Firing
from nats_scheduler.engine.holding.lifecycle import Ownership
from tests.judge.history import NEVER
from tests.simulation.planted_division import Changes


def fire_elsewhere_not_looked_for() -> Changes:
    """Send a fire into another stream, whether or not it may be stored there already."""
    yield Firing, "_is_to_be_looked_for", lambda *_given: False


def fire_of_a_holder_before_not_looked_for() -> Changes:
    """Look for a fire in another stream only if this instance sent it before."""
    yield Ownership, "may_be_stored", lambda *_given: False
    yield sending, "UNLOOKED_LIMIT_NS", NEVER


def guard_believed_elsewhere() -> Changes:
    """Take a schedule for guarded whose fires are in another stream."""
    yield Firing, "is_guarded", lambda self, held: self._limits.guard and not self._landed.covers(held)


def found_elsewhere_ignored() -> Changes:
    """Send a fire although it was found in the other stream."""
    yield Outcomes, "_latest_found", lambda _self, _held, look: (look.first, None)
