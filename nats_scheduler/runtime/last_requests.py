"""Whether an update of our own may have undone what somebody else asked for.

A stream's configuration has no revision: whoever updates it, writes all of it, and the last one wins.
So when somebody's update reaches the server between our reading of a stream and our update of it, theirs is undone, and
nobody is told.

The rule: the last request that was seen of a stream is to be in force; where it is not, and an update of ours was under
way when it came, it is asked for again.
Limit: two sidecars take each other's updates for requests like any other.
"""

from collections.abc import Callable

from nats_scheduler.jetstream.watch import ConfigRequested

OVERLAP_SECONDS = 1.0
"""A request that was seen up to so long after our update had been answered may have reached the server before it."""


class LastRequests:
    """The last configuration that others asked for, of each stream, and when we wrote one ourselves."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._seen: dict[str, tuple[ConfigRequested, float]] = {}
        self._written: dict[str, float] = {}

    def seen(self, request: ConfigRequested) -> None:
        """Note a request of somebody else."""
        self._seen[request.stream] = (request, self._time())

    def written(self, stream: str) -> None:
        """Note that an update of ours has been answered, or may have been carried out."""
        self._written[stream] = self._time()

    def may_be_undone(self, request: ConfigRequested) -> bool:
        """Tell whether a request that is not in force may have been undone by us: once for each update of ours."""
        last, seen_at = self._seen[request.stream]
        written_at = self._written.get(request.stream)
        if last is not request or written_at is None or written_at < seen_at - OVERLAP_SECONDS:
            return False
        del self._written[request.stream]
        return True
