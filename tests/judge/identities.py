"""The fires whose identity a forged message has: what the end of its duplicate window excuses, and no more.

Its rule, as in `docs/concepts/promises.md`: a fire waits for its own identity if that is free soon, and otherwise gets
another one at once. The server does not compare the two. So once the first one is free, the fire can be stored a second
time by an instance that had not received the stored one, or that cannot receive it because it is gone.
Limit: the forger takes first identities only.
"""

from collections import defaultdict

from tests.judge.health import Stretch
from tests.judge.history import SECOND, FireKey, FireSeen, FireSent, History, IdentityTaken

FREE_SOON = 3 * SECOND // 4
"""The longest time (ns) that a fire waits for its own identity."""

KEPT_LONGER = SECOND // 2
"""From this time (ns) after its own identity should be free on, a fire may get another one: clocks differ then."""


class Identities:
    """The identities that were taken in a history."""

    def __init__(self, history: History) -> None:
        self._window = history.terms.duplicate_window
        self._in_transit = history.terms.window
        self._taken: dict[FireKey, list[IdentityTaken]] = defaultdict(list)
        self._sent: dict[tuple[FireKey, int], list[FireSent]] = defaultdict(list)
        for taken in history.taken:
            self._taken[taken.fire].append(taken)
        for sent in history.sent:
            self._sent[sent.fire, sent.taken].append(sent)

    def waits(self, fire: FireKey) -> list[Stretch]:
        """List the stretches of time in which a fire that is due waits for its own identity."""
        free = sorted(taken.stored_at + self._window for taken in self._taken.get(fire, ()))
        return [(instant - FREE_SOON, instant) for instant in free]

    def excuse(self, first: FireSeen, second: FireSeen, *, is_gone: bool) -> bool:
        """Return whether nothing showed the first fire when it was stored again; `is_gone` if it was gone by then."""
        own, other = (second, first) if first.taken else (first, second)
        if own.taken or not other.taken or own.schedule_sequence is None or own.fire_time is None:
            return False
        fire = FireKey(own.schedule_sequence, own.fire_time)
        free = [taken.stored_at + self._window for taken in self._taken[fire] if taken.sequence == other.taken]
        if not free or own.stored_at < free[0] or not self._were_in_time(self._sent[fire, other.taken], free[0]):
            return False
        begin, known_by = second.stored_at - self._in_transit, first.stored_at + self._in_transit
        return is_gone or any(begin <= sent.sent_at <= known_by for sent in self._sent[fire, second.taken])

    def _were_in_time(self, sent: list[FireSent], free: int) -> bool:
        """Return whether no instance chose another identity when the first one was to be free soon, by its clock."""
        chosen = {one.instance: one.clock for one in reversed(sent)}
        return all(clock <= free - FREE_SOON or clock >= free + KEPT_LONGER for clock in chosen.values())
