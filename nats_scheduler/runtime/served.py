"""The streams that this instance serves, and which of them were stepped since they were last checked.

What is known of a stream (whether all of it is read, what was denied, which holders neglect it) changes only in a step
of its engine. So periodic checks visit the streams that were stepped, and not all of them: a stream without activity
costs nothing.

The rule: a driver notifies before its engine steps, so that no check misses a step, even one that fails.
If any stream came, went, or got a new engine, all are checked once more.
"""

from collections.abc import Mapping
from functools import partial

from nats_scheduler.runtime.stream_service import StreamService


class ServedStreams:
    """The services by the keys that streams have among instances."""

    def __init__(self, services: Mapping[str, StreamService]) -> None:
        """Watch `services`, which have the names of their streams, and may change at any time."""
        self._services = services
        self._known: tuple[StreamService, ...] = ()
        self._by_key: dict[str, StreamService] = {}
        self._stepped: dict[str, None] = {}
        """Which were stepped since the last check; a dictionary, because it keeps the order of the steps."""
        self._live: dict[str, None] = {}
        self._to_judge: dict[str, None] = {}

    def by_key(self) -> dict[str, StreamService]:
        """Return the services by their keys; the result is kept until one comes or goes, since this is called often."""
        services = tuple(self._services.values())
        if services != self._known:
            self._known, self._by_key = services, {service.key: service for service in services}
            self._live.clear()
            for key, service in self._by_key.items():
                service.notify_of_steps(partial(self._stepped.setdefault, key))
                self._stepped[key] = None
        return self._by_key

    def live(self) -> Mapping[str, None]:
        """Return the keys of the streams of which everything stored has been read."""
        services = self.by_key()
        self._to_judge.update(self._stepped)
        for key in self._stepped:
            service = services.get(key)
            if service is not None and service.is_live:
                self._live[key] = None
            else:
                self._live.pop(key, None)
        self._stepped.clear()
        return self._live

    def take_stepped(self) -> list[str]:
        """Return the keys of the streams that were stepped since the last call."""
        self.live()
        stepped = list(self._to_judge)
        self._to_judge.clear()
        return stepped
