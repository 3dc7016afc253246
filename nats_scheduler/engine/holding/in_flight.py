"""The number of fires in flight, the number that may follow, and whether there is a burst.

The rule: no fire is published beyond the cap, whatever made it due: its time, an answer that arrived late, a retry.
While a burst lasts, what can wait does: reports of what was stored, purges, removals.

Cost: an entry for each fire; to conclude one a second time changes nothing.
"""

from nats_scheduler.engine.fire import Fire
from nats_scheduler.schedule.instants import SECOND

MAX_IN_FLIGHT = 256
"""Most fires in flight at once: enough that server and sidecar need not wait for each other.

A cancel cannot stop a fire that is in flight: of 3,000 cancelled when they were due, 600 were stored after their
cancels, and with twice as many in flight 1,500; a burst takes hardly less time.
"""

BURST_IN_FLIGHT = 64
"""More fires in flight than this are a burst."""

BURST_LIMIT_NS = 30 * SECOND
"""A burst that lasts longer than this (ns) is the usual load: fires to a distant server, many each second."""

MAX_WAITING_IN_BURST = 200_000
"""If more than this waits, some of it is done although a burst lasts."""


class InFlight:
    """The fires of one stream that are in flight."""

    def __init__(self) -> None:
        self.fires: set[Fire] = set()
        """These fires."""
        self.burst_since: int | None = None
        """Since when (ns) a burst lasts, None if none does."""

    @property
    def count(self) -> int:
        """The number of fires in flight."""
        return len(self.fires)

    @property
    def room(self) -> int:
        """The number of further fires that may be published; no more than 0 if the next have to wait for outcomes."""
        return MAX_IN_FLIGHT - len(self.fires)

    def begin(self, fire: Fire) -> None:
        """Count a fire that is handed out, or looked for."""
        self.fires.add(fire)

    def conclude(self, *fires: Fire) -> None:
        """Count these fires no longer: their outcomes are known."""
        self.fires.difference_update(fires)

    def note_burst(self, now: int) -> None:
        """Note whether a burst lasts, at each time (ns) that one may begin or end: `burst_since` tells whether."""
        if len(self.fires) <= BURST_IN_FLIGHT:
            self.burst_since = None
        elif self.burst_since is None:
            self.burst_since = now

    def is_burst(self, waiting: int, now: int) -> bool:
        """Return whether a burst keeps what waits, `waiting` pieces of it, from being done."""
        if len(self.fires) <= BURST_IN_FLIGHT:
            return False
        since = now if self.burst_since is None else self.burst_since
        return waiting <= MAX_WAITING_IN_BURST and now - since < BURST_LIMIT_NS

    def clock_stepped_back(self, by: int) -> None:
        """Keep a burst as long as it was although the wall clock shows `by` ns less than before."""
        if self.burst_since is not None:
            self.burst_since -= by
