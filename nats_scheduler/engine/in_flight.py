"""How many fires are in flight, how many more may be, and whether there is a burst.

The rule: no fire is published beyond the cap, whatever made it due: its time, an answer that arrived late, a retry.
While a burst lasts, what can wait does: reports of what was stored, purges, removals.

Cost: an addition for each fire.
"""

from nats_scheduler.schedule.instants import SECOND

MAX_IN_FLIGHT = 256
"""Most fires in flight at once: enough that server and sidecar need not wait for each other.

A cancel cannot stop a fire that is in flight: of 3,000 cancelled when they were due, 600 were stored after their
cancels, and with twice as many in flight 1,500; a burst takes hardly less time.
"""

BURST_IN_FLIGHT = 64
"""More fires in flight than this are a burst."""

BURST_LIMIT_NS = 30 * SECOND
"""What lasts longer is no burst but the usual load: fires to a distant server, many each second."""

MAX_WAITING_IN_BURST = 200_000
"""If more than this waits, some of it is done although a burst lasts."""


class InFlight:
    """The fires of one stream that are in flight."""

    def __init__(self) -> None:
        self.count = 0
        self._burst_since: int | None = None

    @property
    def room(self) -> int:
        """How many more fires may be published; no more than 0 if the next have to wait for outcomes."""
        return MAX_IN_FLIGHT - self.count

    def begun(self) -> None:
        """Count a fire that was handed out to be published."""
        self.count += 1

    def concluded(self, count: int = 1) -> None:
        """Count the outcomes of so many fires."""
        self.count -= count

    def is_burst(self, waiting: int, now: int) -> bool:
        """Return whether a burst keeps what waits, so much of it, from being done."""
        if self.count <= BURST_IN_FLIGHT:
            self._burst_since = None
            return False
        if self._burst_since is None:
            self._burst_since = now
        return waiting <= MAX_WAITING_IN_BURST and now - self._burst_since < BURST_LIMIT_NS

    def clock_stepped_back(self, by: int) -> None:
        """Keep a burst as long as it was although the wall clock shows `by` ns less than before."""
        if self._burst_since is not None:
            self._burst_since -= by
