"""A time in which no server serves us: what to report about it, when, and about its end.

The rule: one reason is reported at once, and again every `REPORT_INTERVAL_NS` while it lasts, however many attempts
fail meanwhile: the log shows that it lasts, and is not flooded.
"""

from collections.abc import Callable

from nats_scheduler.schedule.instants import SECOND

REPORT_INTERVAL_NS = 30 * SECOND
"""How often (ns) a reason that lasts is reported."""

MAX_REASONS_NOTED = 64
"""How many reported reasons are noted: there may be any number of them."""

SoFar = dict[str, float | int]
"""For how many `seconds` it has lasted, and how many `attempts` failed; empty if there is nothing to report yet."""


class Outage:
    """From the loss of the connection, or the start of the process, until the streams can be served."""

    def __init__(self, monotonic: Callable[[], int]) -> None:
        """Begin; `monotonic` gives instants (ns) of a clock that is never set."""
        self._monotonic = monotonic
        self._since: int | None = monotonic()
        self._attempts = 0
        self._reported_at: dict[tuple[str, str], int] = {}

    def begins(self) -> None:
        """Note that no server serves us; within an outage nothing changes."""
        if self._since is None:
            self._since = self._monotonic()

    def failed(self, action: str, reason: str) -> SoFar | None:
        """Note a failed attempt, and return what to report besides the reason; None if it was reported recently."""
        self.begins()
        self._attempts += 1
        now, key = self._monotonic(), (action, reason)
        if key in self._reported_at and now - self._reported_at[key] < REPORT_INTERVAL_NS:
            return None
        if len(self._reported_at) >= MAX_REASONS_NOTED:
            self._reported_at.clear()
        self._reported_at[key] = now
        return self._so_far(now) if self._attempts > 1 else {}

    def over(self) -> SoFar:
        """Note that it is over, and return what to report about it."""
        lasted = self._so_far(self._monotonic()) if self._attempts else {}
        self._since, self._attempts = None, 0
        self._reported_at.clear()
        return lasted

    def _so_far(self, now: int) -> SoFar:
        lasted = 0 if self._since is None else now - self._since
        return {"seconds": round(lasted / SECOND, 3), "attempts": self._attempts}
