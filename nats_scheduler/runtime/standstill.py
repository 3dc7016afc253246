"""Notice that this process did not run for a while: it was stopped, its machine was suspended, or a clock was set.

What it knew before may not be true any more, and others may have fired meanwhile.

The rule: whoever asks has to ask often, for the answer is how long ago it was asked last.
"""

from collections.abc import Callable


class Standstill:
    """How long it is since somebody asked, by the clock (ns) that says most: one may have stood still, too."""

    def __init__(self, *clocks: Callable[[], int]) -> None:
        self._clocks = clocks
        self._asked_at = [clock() for clock in clocks]

    def gap(self) -> int:
        """Return how long (ns) it is since this was asked last, and count from now on."""
        before, self._asked_at = self._asked_at, [clock() for clock in self._clocks]
        return max(now - then for now, then in zip(self._asked_at, before, strict=True))
