"""Bugs of the schedules that are kept as numbers while they are far, planted on purpose.

Its rule: a bug is one small change of the product, undone when the block of `tests.simulation.planted` ends.
"""

from nats_scheduler.engine.holding.far import FarAgenda, SubjectIndex
from tests.simulation.planted_division import Changes


def far_schedules_left_far() -> Changes:
    """Take the places of a span, and unpack only every other one."""
    original = FarAgenda.take
    yield FarAgenda, "take", lambda self, most: original(self, most)[::2]


def far_schedules_not_found_by_subject() -> Changes:
    """Do not look among the far schedules when a message concerns one."""
    yield SubjectIndex, "pop", lambda _self, _subject: None
