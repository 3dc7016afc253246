"""Let the creator of a replicated stream have the answer before anybody else touches the stream.

A server of a cluster answers `STREAM.CREATE` when the stream's first leader takes over, some milliseconds after the
stream can be seen.
An update that comes between makes it forget whom to answer: the creator waits in vain, and so does the updater.
So such a request is held back until the leader has taken over, which the server announces, and has had time to answer.

The rule: requests about one stream keep their order; what follows a held one releases it first.
Limit: where the announcement is not to be had (permissions, another domain), a wait stands for it.
"""

import asyncio
from collections.abc import Callable

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.watch import ConfigRequested, Request

LEADER_ELECTED = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED"

LONGEST_HOLD_SECONDS = 3.0
"""A creation is held no longer than this; the answer comes within a second, on a busy cluster."""

ANSWER_SECONDS = 0.25
"""So long after the announcement the answer is on its way: it takes the leader a few milliseconds."""


class CreationHold:
    """Passes requests on to `seen`, those for new replicated streams only when the stream has its first leader."""

    def __init__(self, connection: Connection, seen: Callable[[Request], None]) -> None:
        self._connection = connection
        self._seen = seen
        self._loop = asyncio.get_running_loop()
        self._held: dict[str, tuple[ConfigRequested, asyncio.TimerHandle]] = {}
        self._number = connection.subscribe(f"{LEADER_ELECTED}.*", self._leader_elected)

    def take(self, request: Request) -> None:
        """Pass a request on, now or when its time has come."""
        self._release(request.stream)
        if isinstance(request, ConfigRequested) and request.creates and _is_replicated(request):
            timer = self._loop.call_later(LONGEST_HOLD_SECONDS, self._release, request.stream)
            self._held[request.stream] = request, timer
        else:
            self._seen(request)

    def end(self) -> None:
        """Pass nothing on any more."""
        self._connection.unsubscribe(self._number)
        for _request, timer in self._held.values():
            timer.cancel()
        self._held.clear()

    def _leader_elected(self, subject: bytes, _reply: bytes, _block: bytes, _body: bytes) -> None:
        stream = subject[subject.rfind(b".") + 1 :].decode("utf-8", "replace")
        request, timer = self._held.get(stream, (None, None))
        if request is not None and timer is not None:
            timer.cancel()
            self._held[stream] = request, self._loop.call_later(ANSWER_SECONDS, self._release, stream)

    def _release(self, stream: str) -> None:
        request, timer = self._held.pop(stream, (None, None))
        if request is not None and timer is not None:
            timer.cancel()
            self._seen(request)


def _is_replicated(request: ConfigRequested) -> bool:
    replicas = request.config.get("num_replicas")
    return isinstance(replicas, int) and replicas > 1
