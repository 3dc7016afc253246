"""The readiness of an instance to fire: the stretches in which nothing excuses a missing or late fire.

Its rule: an instance is ready while it lives and nothing is broken for it or for all, once that has been so for as long
as the terms allow for recovery.
Where instances agree on one owner, one that is ready may stand by, and takes over from another in the same time: so
what befalls another counts too.
One that comes, goes, falls silent or sends again disturbs at that moment; one that is unable, until that is noticed;
one that is in another trouble stays the owner, and disturbs for as long as that lasts.
"""

from tests.judge.history import Fault, History, Life

Stretch = tuple[int, int]


class Readiness:
    """The stretches in which some instance was ready."""

    def __init__(self, history: History) -> None:
        self.stretches: list[Stretch] = []
        within = history.terms.resumes_within
        delays = sorted((f.begin, f.end) for f in history.faults if f.delays_only)
        for life in history.lives:
            for begin, end in _unbroken(history, life):
                ready = _recovered(begin, within, delays)
                if ready < end:
                    self.stretches.append((ready, end))

    def longest(self, begin: int, end: int) -> int:
        """Return how long (ns) an instance was ready within a stretch of time, at a time."""
        return max((min(end, e) - max(begin, b) for b, e in self.stretches), default=0)


def _recovered(begin: int, within: int, delays: list[Stretch]) -> int:
    """Return when a recovery is over that begins at `begin`, and again after each delay."""
    for delay_begin, delay_end in delays:
        if delay_begin < begin + within and delay_end >= begin:
            begin = max(begin, delay_end)
    return begin + within


def _unbroken(history: History, life: Life) -> list[Stretch]:
    """List the stretches of a life in which nothing was broken for it."""
    stretches = []
    begin = life.begin
    faults = [fault for fault in _troubles(history, life) if fault[1] >= life.begin]
    for broken, whole in sorted(faults):
        if broken >= life.end:
            break
        if broken > begin:
            stretches.append((begin, broken))
        begin = max(begin, whole)
    return [*stretches, (begin, life.end)] if begin < life.end else stretches


def _troubles(history: History, life: Life) -> list[Stretch]:
    """List when anything was broken that concerns an instance in this life."""
    faults = [fault for fault in history.faults if not fault.delays_only]
    own = [(fault.begin, fault.end) for fault in faults if fault.instance in (None, life.instance)]
    if not history.terms.elected:
        return own
    others = [fault for fault in faults if fault.instance not in (None, life.instance)]
    lives = [other for other in history.lives if other.instance != life.instance]
    changes = [instant for other in lives for instant in (other.begin, other.end)]
    return [*own, *(stretch for fault in others for stretch in _disturbs(fault)), *((at, at) for at in changes)]


def _disturbs(fault: Fault) -> list[Stretch]:
    noticed_after = 0 if fault.silences else fault.noticed_after
    if noticed_after is None:
        return [(fault.begin, fault.end)]
    return [(fault.begin, min(fault.begin + noticed_after, fault.end)), (fault.end, fault.end)]
