"""Notice that this process did not run for a while: it was stopped, its machine was suspended, or a clock was set.

What it knew before may not be true any more, and others may have fired meanwhile.

The rule: whoever asks has to ask often, for the answer is how long ago it was asked last.
"""

from collections.abc import Callable


class Standstill:
    """How long it is since somebody asked, by the clock (ns) that says most: one may have stood still, too."""

    def __init__(self, clock: Callable[[], int], other: Callable[[], int]) -> None:
        self._clock, self._other = clock, other
        self._asked_at, self._asked_other_at = clock(), other()

    def gap(self) -> int:
        """Return how long (ns) it is since this was asked last, and count from now on."""
        then, self._asked_at = self._asked_at, self._clock()
        other_then, self._asked_other_at = self._asked_other_at, self._other()
        return max(self._asked_at - then, self._asked_other_at - other_then)
