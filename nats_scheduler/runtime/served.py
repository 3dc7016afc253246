"""The streams that this instance serves, and which of them changed since they were last checked.

Periodic checks visit the streams of which something changed that concerns instances: whether all of it is read, what
was denied, which holders neglect it. A stream that only fires costs nothing here.

The rule: a driver notifies after each step that changed any of it, and after one that failed.
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
        self._changed: dict[str, None] = {}
        """Which changed since the last check; a dictionary, because it keeps the order of the changes."""
        self._live: dict[str, None] = {}
        self._to_judge: dict[str, None] = {}

    def by_key(self) -> dict[str, StreamService]:
        """Return the services by their keys; the result is kept until one comes or goes, since this is called often."""
        services = tuple(self._services.values())
        if services != self._known:
            self._known, self._by_key = services, {service.key: service for service in services}
            self._live.clear()
            for key, service in self._by_key.items():
                service.notify_of_changes(partial(self._changed.setdefault, key))
                self._changed[key] = None
        return self._by_key

    def live(self) -> Mapping[str, None]:
        """Return the keys of the streams of which everything stored has been read."""
        services = self.by_key()
        self._to_judge.update(self._changed)
        for key in self._changed:
            service = services.get(key)
            if service is not None and service.is_live:
                self._live[key] = None
            else:
                self._live.pop(key, None)
        self._changed.clear()
        return self._live

    def take_changed(self) -> list[str]:
        """Return the keys of the streams that changed since the last call."""
        self.live()
        changed = list(self._to_judge)
        self._to_judge.clear()
        return changed
