"""Know a stream by the acknowledgements of our own fires, while a herd of them is nearly all that is stored.

Each acknowledgement says under which sequence its fire lies, and they come in the order of the stream: what they leave
out was stored by others, and is asked for by its sequence.
So a herd need not be read back, which costs the server as much again as to store it.

The rule: what others stored is told once and in the order of the stream, or the consumer takes over before it.
Only a herd is read in this way, and only for as long as it lasts: without acknowledgements nobody tells of the others.

Cost: a comparison an acknowledgement, one request for each message of another.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.message.stored import StoredMessage

MIN_BURST_FIRES = 1_000
"""So many fires in a row make a herd."""

MIN_FIRES_PER_OTHER = 20
"""One message of another among so many of ours is rare; where they are not, the consumer reads them for less."""

MAX_OTHERS_WAITING = 128
"""Where more than this wait to be read, the consumer reads them."""

BURST_PAUSE_SECONDS = 0.03
"""After so long without an acknowledgement the herd is over: nothing tells of what others store."""

BURST_CHECK_INTERVAL_SECONDS = 0.01

BURST_STALL_SECONDS = 0.25
"""The same while acknowledgements are owed: a server that stores a herd stands still for some 30 ms now and then."""


class Burst:
    """The fires of one stream that come back as acknowledgements, and what is stored between them."""

    def __init__(
        self, api: JetStreamApi, stream: str, in_flight: Callable[[], int], when_read: Callable[[], None]
    ) -> None:
        """Begin without a herd; `in_flight` tells how many acknowledgements are owed.

        `when_read` is called when a message of another was read.
        """
        self._api = api
        self._when_read = when_read
        self._in_flight = in_flight
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._last_stored = 0
        self._run = self._others = 0
        """Acknowledgements since the herd began, and sequences that they left out."""
        self._last_acknowledged_at = 0.0
        self._known_since: int | None = None
        """Of all that lies behind this sequence it is known whether it is ours; None while track of it is lost."""
        self._delivered_through: int | None = None
        """Up to here everything was told, since the herd was joined; None while a consumer tells."""
        self._waiting: deque[int] = deque()
        """Left out and not told yet, in order."""
        self._read: dict[int, StoredMessage | None] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def acknowledged(self, sequences: Sequence[int]) -> None:
        """Note under which sequences fires of ours were stored just now."""
        now = self._loop.time()
        if self._known_since is None and now - self._last_acknowledged_at > BURST_PAUSE_SECONDS:
            self._run = self._others = 0
        self._last_acknowledged_at = now
        for sequence in sequences:
            if sequence != self._last_stored + 1:
                self._note_others(self._last_stored + 1, sequence)
            self._last_stored = max(self._last_stored, sequence)
        self._run += len(sequences)
        if (
            self._others * MIN_FIRES_PER_OTHER > max(self._run, MIN_BURST_FIRES)
            or len(self._waiting) > MAX_OTHERS_WAITING
        ):
            self._lose_track()
        elif self._known_since is None and self._delivered_through is None and self._run >= MIN_BURST_FIRES:
            self._known_since = self._last_stored

    def is_known_after(self, last: int) -> bool:
        """Tell whether no consumer is needed behind the message `last`."""
        return self._known_since is not None and last >= self._known_since

    def begin(self, last: int) -> None:
        """Tell of the others from behind the message `last` on, where no consumer is needed."""
        if self.is_known_after(last):
            self._delivered_through = last

    def take_others(self) -> tuple[list[StoredMessage], int]:
        """Return what others stored and was not told yet, and up to where all is known; 0 where track was lost."""
        before = self._delivered_through
        if self._known_since is None or before is None:
            return [], 0
        messages = []
        while self._waiting and (self._waiting[0] <= before or self._waiting[0] in self._read):
            sequence = self._waiting.popleft()
            message = self._read.pop(sequence, None)
            if message is not None and sequence > before:
                messages.append(message._replace(body=None))
        self._delivered_through = max(before, self._waiting[0] - 1 if self._waiting else self._last_stored)
        return messages, self._delivered_through

    async def wait_until_over(self) -> None:
        """Wait until the herd that was joined is over, or track of it is lost."""
        while self._known_since is not None and self._delivered_through is not None:
            silent = self._loop.time() - self._last_acknowledged_at
            if silent > (BURST_STALL_SECONDS if self._in_flight() else BURST_PAUSE_SECONDS):
                return
            await asyncio.sleep(BURST_CHECK_INTERVAL_SECONDS)

    def end(self) -> None:
        """Let a consumer go on behind what was told last."""
        self._delivered_through = None
        self._lose_track()

    def _lose_track(self) -> None:
        """Know nothing any more of what others stored."""
        self._run = self._others = 0
        self._known_since = None
        self._waiting.clear()
        self._read.clear()
        for task in self._asking:
            task.cancel()

    def _note_others(self, first: int, end: int) -> None:
        """Note that what lies from `first` to before `end` is not ours, and have it read."""
        if self._run == 0 or end < first:
            return  # nothing is known of what lies before a herd
        self._others += end - first
        if self._known_since is None or self._others > self._run:
            return
        for sequence in range(first, end):
            self._waiting.append(sequence)
            task = self._loop.create_task(self._ask(sequence))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(self, sequence: int) -> None:
        try:
            message = await self._api.message(self._stream, seq=sequence)
        except JetStreamError:
            self._lose_track()  # the consumer finds out what is wrong
            return
        if self._known_since is not None:
            self._read[sequence] = message
            self._when_read()
