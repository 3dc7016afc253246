"""Fires to which long work gives way (`service.turns.Fires`), as a test says."""

from collections.abc import Iterable
from math import inf


class Fires:
    """By default there are none."""

    def __init__(self, bursts: Iterable[bool] = (), spare: Iterable[float] = ()) -> None:
        """Answer each call with the next of `bursts` and of `spare` (s), and behind them as if there were none."""
        self._bursts, self._spare = iter(bursts), iter(spare)

    def is_burst(self) -> bool:
        """Return whether a burst lasts."""
        return next(self._bursts, False)

    def spare_seconds(self) -> float:
        """Return how long (s) nothing is due."""
        return next(self._spare, inf)
