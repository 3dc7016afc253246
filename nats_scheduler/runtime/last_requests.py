"""The last configuration that others requested for each stream, and what may have been overtaken by an update of ours.

A stream's configuration has no revision: an update writes all of it, and the last one wins. So if another client's
update reaches the server between our read of a stream and our update of it, theirs is undone, and no client is
notified. And if two requests follow each other closely, it can no longer be seen whether the flag of the first was
in force.

The rules: the last request that was seen for a stream should be in force; if it is not, and an update of ours was
in progress when it came, it is repeated. If the next request is in force, a flag that is still waited for counts as
set: the flag cannot be switched off. What is settled is discarded: any client can send requests, with any names. A
request of another sidecar is not noted here: it is a hint to check the stream, and not what a user wants.
"""

from collections.abc import Callable
from itertools import takewhile

from nats_scheduler.jetstream.api import Config
from nats_scheduler.jetstream.request_watch import ConfigRequested
from nats_scheduler.jetstream.streams import TTL_FLAG
from nats_scheduler.message.stream_rules import FLAG

MAX_REQUEST_OVERLAP_SECONDS = 1.0
"""A request that was seen up to this time after the answer to our update may have reached the server before it."""


class LastRequests:
    """The last configuration that others requested for each stream, and when we wrote one ourselves."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._seen: dict[str, tuple[ConfigRequested, float]] = {}
        self._written: dict[str, float] = {}
        self._waited_for: dict[str, list[ConfigRequested]] = {}

    def seen(self, request: ConfigRequested) -> None:
        """Note a request of another client."""
        self._seen[request.stream] = (request, self._time())
        self._waited_for.setdefault(request.stream, []).append(request)

    def settled(self, request: ConfigRequested) -> None:
        """Note that a request is not waited for any more, whether it is in force or not."""
        waited_for = [one for one in self._waited_for.pop(request.stream, ()) if one is not request]
        if waited_for:
            self._waited_for[request.stream] = waited_for
        last, _seen_at = self._seen.get(request.stream, (None, 0.0))
        if last is request:
            del self._seen[request.stream]

    def discard(self, stream: str) -> None:
        """Note a request to delete a stream: earlier requests do not concern the next stream of that name."""
        self._waited_for.pop(stream, None)

    def is_waited_for(self, request: ConfigRequested) -> bool:
        """Return whether a request is still waited for."""
        return any(one is request for one in self._waited_for.get(request.stream, ()))

    def with_flag(self, request: ConfigRequested) -> Config:
        """Return the requested configuration, with the flag of an earlier request that is still waited for.

        The flag of a later request does not count: its configuration is not in force yet.
        """
        waited_for = self._waited_for.get(request.stream, [])
        earlier = takewhile(lambda one: one is not request, waited_for)
        flagged = [one.config for one in earlier if one.config.get(FLAG) is True]
        carried = {key: True for key in (FLAG, TTL_FLAG) if any(config.get(key) is True for config in flagged)}
        return {**request.config, **carried}

    def written(self, stream: str) -> None:
        """Note that an update of ours has been answered, or may have been carried out."""
        self._written[stream] = self._time()

    def may_be_undone(self, request: ConfigRequested) -> bool:
        """Return whether an update of ours may have undone a request: True once for each update of ours."""
        last, seen_at = self._seen.get(request.stream, (None, 0.0))
        written_at = self._written.get(request.stream)
        if last is not request or written_at is None or written_at < seen_at - MAX_REQUEST_OVERLAP_SECONDS:
            return False
        del self._written[request.stream]
        return True
