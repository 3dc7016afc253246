"""Notice that this process did not run for a while: it was stopped, its machine was suspended, or a clock was set.

What it knew before may be out of date, and other instances may have fired meanwhile.

The rule: `gap` has to be called often, since it returns the time since the last call.
"""

from collections.abc import Callable


class Standstill:
    """The time (ns) since the last call, by the clock that shows more: the other one may have stood still too."""

    def __init__(self, clock: Callable[[], int], other: Callable[[], int]) -> None:
        self._clock, self._other = clock, other
        self._called_at, self._called_other_at = clock(), other()

    def gap(self) -> int:
        """Return how long ago (ns) the last call was, and count from now on."""
        then, self._called_at = self._called_at, self._clock()
        other_then, self._called_other_at = self._called_other_at, self._other()
        return max(self._called_at - then, self._called_other_at - other_then)
