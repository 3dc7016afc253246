"""A time without a server that serves us: what is to be told of it, when, and of its end.

The rule: one reason is reported at once, and again every `REPORT_INTERVAL_NS` while it lasts, however many attempts
fail meanwhile: the log shows that it lasts, and is not flooded.
"""

from collections.abc import Callable

from nats_scheduler.schedule.instants import SECOND

REPORT_INTERVAL_NS = 30 * SECOND
"""A reason that goes on is told again this often (ns)."""

MAX_REASONS_NOTED = 64
"""Reasons that are remembered as told: there may be any number of them."""

SoFar = dict[str, float | int]
"""For how many `seconds` it has lasted, and how many `attempts` failed; empty where there is nothing to say yet."""


class Outage:
    """From the loss of the connection, or the start of the process, until the streams can be served."""

    def __init__(self, monotonic: Callable[[], int]) -> None:
        """Begin; `monotonic` gives instants (ns) of a clock that is never set."""
        self._monotonic = monotonic
        self._since: int | None = monotonic()
        self._attempts = 0
        self._told: dict[tuple[str, str], int] = {}

    def begins(self) -> None:
        """Note that nobody serves us; within an outage nothing changes."""
        if self._since is None:
            self._since = self._monotonic()

    def failed(self, action: str, reason: str) -> SoFar | None:
        """Note that an attempt failed, and return what to tell beside the reason; None where it was told lately."""
        self.begins()
        self._attempts += 1
        now, key = self._monotonic(), (action, reason)
        if key in self._told and now - self._told[key] < REPORT_INTERVAL_NS:
            return None
        if len(self._told) >= MAX_REASONS_NOTED:
            self._told.clear()
        self._told[key] = now
        return self._so_far(now) if self._attempts > 1 else {}

    def over(self) -> SoFar:
        """Note that it is over, and return what to tell of it."""
        said = self._so_far(self._monotonic()) if self._attempts else {}
        self._since, self._attempts = None, 0
        self._told.clear()
        return said

    def _so_far(self, now: int) -> SoFar:
        lasted = 0 if self._since is None else now - self._since
        return {"seconds": round(lasted / SECOND, 3), "attempts": self._attempts}
