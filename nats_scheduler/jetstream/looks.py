"""One timer for all who look at something again and again on one connection.

A thousand timers cost a thousand turns of the event loop, and a thousand looks in one turn cost next to nothing.

The rule: a look is short, does not wait, and must not raise.
Limit: the first look comes within one period, not after it.
"""

import asyncio
from collections.abc import Callable

from nats_scheduler.jetstream.connection import Connection

Look = Callable[[], None]


class Looks:
    """Those who look, by their period."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._by_period: dict[float, dict[int, Look]] = {}
        self._begun = 0

    def every(self, seconds: float, look: Look) -> Callable[[], None]:
        """Call `look` once in so many seconds; returns what ends that. It ends with the connection, too."""
        looks = self._by_period.setdefault(seconds, {})
        if not looks:
            self._loop.call_later(seconds, self._look, seconds, looks)
        self._begun += 1
        number = self._begun
        looks[number] = look

        def end() -> None:
            looks.pop(number, None)
            if not looks and self._by_period.get(seconds) is looks:
                del self._by_period[seconds]

        return end

    def _look(self, seconds: float, looks: dict[int, Look]) -> None:
        for look in list(looks.values()):
            look()
        if looks and not self._connection.is_lost:
            self._loop.call_later(seconds, self._look, seconds, looks)
