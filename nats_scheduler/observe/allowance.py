"""How many log lines of a kind are written: so many a minute, then one that says how many were left out.

The rule: whoever floods a stream with mistakes floods neither the log nor the disk below it; counters count them all.
Cost: one dictionary entry for each kind and stream with a line in the last minute.
"""

import asyncio
from collections.abc import Callable

LINES = 100
"""Lines of one kind about one stream in one stretch."""

STRETCH_SECONDS = 60.0
"""How long a stretch lasts, from its first line on."""


class Allowance:
    """Grants lines; used on the event loop."""

    def __init__(self, left_out: Callable[[str, str, int], None], *, stretch: float = STRETCH_SECONDS) -> None:
        self._left_out = left_out
        self._stretch = stretch
        self._asked: dict[tuple[str, str], int] = {}

    def grants(self, kind: str, stream: str) -> bool:
        """Count one more line, and tell whether it may be written."""
        key = kind, stream
        asked = self._asked.get(key, 0)
        self._asked[key] = asked + 1
        if asked == 0:
            asyncio.get_running_loop().call_later(self._stretch, self._over, key)
        return asked < LINES

    def _over(self, key: tuple[str, str]) -> None:
        left_out = self._asked.pop(key) - LINES
        if left_out > 0:
            self._left_out(*key, left_out)
