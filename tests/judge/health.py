"""When somebody was ready to fire: the stretches of a history in which nothing excuses a missing or late fire.

Its rule: an instance is ready while it lives and nothing is broken for it or for all, once that has been so for as long
as the terms allow for recovery.
"""

from tests.judge.history import History, Life

Stretch = tuple[int, int]


class Readiness:
    """The stretches in which some instance was ready."""

    def __init__(self, history: History) -> None:
        self.stretches: list[Stretch] = []
        for life in history.lives:
            for begin, end in _unbroken(history, life):
                if begin + history.terms.resumes_within < end:
                    self.stretches.append((begin + history.terms.resumes_within, end))

    def longest(self, begin: int, end: int) -> int:
        """Return how long (ns) an instance was ready within a stretch of time, at a time."""
        return max((min(end, e) - max(begin, b) for b, e in self.stretches), default=0)


def _unbroken(history: History, life: Life) -> list[Stretch]:
    """List the stretches of a life in which nothing was broken for it."""
    stretches = []
    begin = life.begin
    faults = [f for f in history.faults if f.instance in (None, life.instance) and f.end > life.begin]
    for fault in sorted(faults, key=lambda fault: fault.begin):
        if fault.begin >= life.end:
            break
        if fault.begin > begin:
            stretches.append((begin, fault.begin))
        begin = max(begin, fault.end)
    return [*stretches, (begin, life.end)] if begin < life.end else stretches
