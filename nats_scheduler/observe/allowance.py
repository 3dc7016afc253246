"""Limit the log lines of one kind: at most 100 a minute, then one line with the number of lines that were left out.

The rule: a client that floods a stream with mistakes floods neither the log nor its disk; counters count all
mistakes. Cost: one dictionary entry for each kind and stream that had a line in the last minute.
"""

import asyncio
from collections.abc import Callable

MAX_LINES = 100
"""The maximum number of lines of one kind about one stream in one period."""

PERIOD_SECONDS = 60.0
"""How long a period lasts, from its first line on."""


class Allowance:
    """Decides which lines may be written; used on the event loop."""

    def __init__(
        self, left_out: Callable[[str, str, int], None], *, period: float = PERIOD_SECONDS, most: int = MAX_LINES
    ) -> None:
        """Begin; `left_out` is called with kind, stream and number at the end of a period (s) with too many lines."""
        self._left_out = left_out
        self._period = period
        self._most = most
        self._counts: dict[tuple[str, str], int] = {}

    def grants(self, kind: str, stream: str) -> bool:
        """Count one more line; return whether it may be written."""
        key = kind, stream
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if count == 0:
            asyncio.get_running_loop().call_later(self._period, self._end_period, key)
        return count < self._most

    def _end_period(self, key: tuple[str, str]) -> None:
        left_out = self._counts.pop(key) - self._most
        if left_out > 0:
            self._left_out(*key, left_out)
