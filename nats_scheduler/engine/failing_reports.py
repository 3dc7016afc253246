"""Report how many schedules are failing, and now and then of each that it still is.

The rule: a number is reported when it has changed, and a schedule again as often as `engine.refusals` says.
Cost: nothing while no fire is refused.
"""

from collections.abc import Callable

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import SchedulesFailing, StillRefused
from nats_scheduler.engine.refusals import Refusals


class FailingReports:
    """The reports about the failing schedules of one stream."""

    def __init__(self, refusals: Refusals, emit: Callable[[Action], None]) -> None:
        self._refusals = refusals
        self._emit = emit
        self._reported = 0

    def report(self, now: int) -> None:
        """Report what has changed by `now` (ns), and what lasts."""
        refusals = self._refusals
        if not refusals.held and not self._reported:
            return
        if len(refusals.held) != self._reported:
            self._reported = len(refusals.held)
            self._emit(Report(SchedulesFailing(self._reported)))
        for held, count in refusals.reminders(now):
            assert held.flight is not None, "what is refused is in progress"
            assert held.flight.failing is not None, "and known to be refused"
            code, description, since = held.flight.failing
            self._emit(Report(StillRefused(held.subject, held.sequence, code, description, since, count)))
