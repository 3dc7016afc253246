"""One timer for all periodic checks of one connection.

A thousand timers cost a thousand turns of the event loop; a thousand checks in one turn cost next to nothing.

The rule: a check is short, does not wait, and must not raise.
Limit: the first check comes within one period, not after it.
"""

import asyncio
from collections.abc import Callable

from nats_scheduler.jetstream.connection import Connection

Check = Callable[[], None]


class PeriodicChecks:
    """The checks, by their period."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._by_period: dict[float, dict[int, Check]] = {}
        self._begun = 0

    def every(self, seconds: float, check: Check) -> Callable[[], None]:
        """Call `check` once in so many seconds; return what ends that. The connection's end ends it too."""
        checks = self._by_period.setdefault(seconds, {})
        if not checks:
            self._loop.call_later(seconds, self._run_checks, seconds, checks)
        self._begun += 1
        number = self._begun
        checks[number] = check

        def end() -> None:
            checks.pop(number, None)
            if not checks and self._by_period.get(seconds) is checks:
                del self._by_period[seconds]

        return end

    def _run_checks(self, seconds: float, checks: dict[int, Check]) -> None:
        for check in list(checks.values()):
            check()
        if checks and not self._connection.is_lost:
            self._loop.call_later(seconds, self._run_checks, seconds, checks)
