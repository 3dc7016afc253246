"""What the metrics read of the sidecar at the moment of a scrape, in the thread of the scrape.

The rule: everything here is a copy that is made at once, or a single value; nothing is changed, and nothing waits for
the event loop.
"""

from collections.abc import Mapping, Sequence

from nats_scheduler.engine.leases import Leases
from nats_scheduler.observe.gauges import StreamReading
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.runtime.stream_service import StreamService


class SidecarReadings:
    """The readings of one sidecar."""

    def __init__(
        self, services: Mapping[str, StreamService], leases: Leases, clock: ServerClock, machine: Clock
    ) -> None:
        """Read the served streams; `machine` is the clock of this machine."""
        self._services = services
        self._leases = leases
        self._clock = clock
        self._machine = machine
        self.connected_version = ""
        """The version of the server of the current or last connection."""

    def streams(self) -> Sequence[StreamReading]:
        """Return the streams that are served."""
        now = self._clock.now()
        return [
            StreamReading(one.state.name, str(one.mode), one.is_ready, one.figures(now), now)
            for one in list(self._services.values())
        ]

    def unable(self) -> int:
        """Return how many of them this instance cannot serve."""
        ability = self._leases.ability
        return sum(not ability.can_serve(one.key) for one in list(self._services.values()))

    def clock_offset(self) -> int | None:
        """Return the server's clock minus this machine's (ns), None before a server has reported its time."""
        if not self._clock.is_set:
            return None
        before, server, after = self._machine.now(), self._clock.now(), self._machine.now()
        return server - (before + after) // 2

    def server_version(self) -> str:
        """Return the version of the server of the current or last connection, empty before the first."""
        return self.connected_version
