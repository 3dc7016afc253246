"""Decide when each stream writes its checkpoint: once a second if there are few streams, and in turn if there are many.

A checkpoint is a request to the registry. A thousand a second would cost more than the fires that they cover.

What a late one costs: on a stream that keeps its fires, the fires themselves show what happened, and a checkpoint only
says how much of the stream need not be compared. On a stream whose fires may be gone before they are read again, no
checkpoint waits for a turn.

The rule: no stream waits longer for its turn than it may, however many there are, and the one that waits longest is
first.
Cost: a check of each stream twice a second.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

TURN_CHECK_INTERVAL_SECONDS = 0.5
"""How often it is checked which streams are next."""

CHECKPOINT_INTERVAL_SECONDS = 1.0
"""Shortest time between two checkpoints of a stream: well inside the shortest useful duplicate window."""

MAX_TURNS_PER_CHECK = 25
"""How many streams get their turn at each check: some 50 in a second."""


class Writer(Protocol):
    """What writes the checkpoints of one stream; see `runtime.checkpoint_writer`."""

    longest_wait_seconds: float
    """Longest time between two turns, however many others wait."""

    @property
    def has_news(self) -> bool:
        """Whether there is anything to write."""

    def take_turn(self) -> None:
        """Begin to write; must not raise."""


class Pace:
    """Gives the writers of one process their turns."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns: dict[int, tuple[Writer, float]] = {}
        """Each writer, and when (by the loop's clock) it had its last turn; the one that waits longest is first."""
        self._timer: asyncio.TimerHandle | None = None

    def join(self, writer: Writer) -> Callable[[], None]:
        """Give `writer` its turns; returns a function that ends this."""
        self._turns[id(writer)] = writer, self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(TURN_CHECK_INTERVAL_SECONDS, self._check)
        return lambda: self._leave(writer)

    def _leave(self, writer: Writer) -> None:
        self._turns.pop(id(writer), None)
        if not self._turns and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now, left = self._loop.time(), MAX_TURNS_PER_CHECK
        for key, (writer, turn) in list(self._turns.items()):
            waited = now - turn
            if waited < CHECKPOINT_INTERVAL_SECONDS:
                break  # all others had theirs later
            if (left > 0 or waited >= writer.longest_wait_seconds) and writer.has_news:
                left -= 1
                del self._turns[key]
                self._turns[key] = writer, now
                writer.take_turn()
        self._timer = self._loop.call_later(TURN_CHECK_INTERVAL_SECONDS, self._check)
