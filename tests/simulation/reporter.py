"""The reporter of a simulated sidecar: a line of the trace for each report.

Its rule: nothing is logged, and nothing depends on it.
"""

from collections.abc import Callable
from typing import Any

from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.schedule.rfc3339 import format_rfc3339

METRICS = Metrics()


class SilentReporter(Reporter):
    """Traces what a sidecar reports about other instances and about errors."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(METRICS)
        self._note = note

    def problem(self, action: str, **fields: Any) -> None:
        """Report something that needs attention."""
        self._note(f"{action} {fields}")

    def instances(self, count: int) -> None:
        """Report how many instances are alive."""
        self._note(f"knows of {count} instances")

    def instance_lost(self, name: str, count: int) -> None:
        """Report that an instance is gone."""
        self._note(f"considers {name} gone, {count} are left")

    def shards_changed(self, stream: str, held: int, gained: int, lost: int) -> None:
        """Report which shards of a stream this instance fires for from now on."""
        self._note(f"holds {held} shards, gained {gained}, lost {lost}")

    def instance_not_firing(self, stream: str, instance: str, since: int) -> None:
        """Report that an instance holds shards of a stream and does not fire for them."""
        self._note(f"takes {instance} for idle since {format_rfc3339(since)}")

    def cannot_serve(self, stream: str, reason: str) -> None:
        """Report that something is denied that a holder of the stream has to do."""
        self._note(f"cannot serve: {reason}")

    def can_serve_again(self, stream: str) -> None:
        """Report that nothing of that is denied any more."""
        self._note("can serve again")

    def snapshot_written(self, stream: str, schedules: int, through: int) -> None:
        """Report that a snapshot was written."""
        self._note(f"has written a snapshot of {schedules} through {through}")

    def snapshot_used(self, stream: str, schedules: int, through: int) -> None:
        """Report that the engine begins with a snapshot."""
        self._note(f"begins with a snapshot of {schedules} through {through}")
