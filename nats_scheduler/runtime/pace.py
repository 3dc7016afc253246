"""When each stream writes down how far it is: once a second where they are few, and in turn where they are many.

A checkpoint is a request to the registry. A thousand a second would cost more than the fires that they tell of.

What a late one costs: on a stream that keeps what was fired, that alone tells what happened, and a checkpoint only says
how much of it need not be compared. Where fires may be gone before they are read again, nobody waits for his turn.

The rule: no stream waits longer for its turn than it may, however many there are, and the longest waiting goes first.
Cost: a look at each stream twice a second.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

TURN_CHECK_INTERVAL_SECONDS = 0.5
"""How often it is looked at whose turn it is."""

CHECKPOINT_INTERVAL_SECONDS = 1.0
"""So long after its last checkpoint a stream's next one is due: well inside the shortest useful duplicate window."""

MAX_TURNS_PER_CHECK = 25
"""Streams that are given their turn at each look: some 50 in a second."""


class Writer(Protocol):
    """Whoever writes checkpoints."""

    longest_wait_seconds: float
    """So long after its last turn it is given the next one, whoever else waits."""

    @property
    def has_news(self) -> bool:
        """Whether there is anything to write."""

    def take_turn(self) -> None:
        """Begin to write; must not raise."""


class Pace:
    """Gives those who write their turns; they are many of one process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns: dict[int, tuple[Writer, float]] = {}
        """Who writes, and when (of the loop's clock) it had its last turn, the longest ago first."""
        self._timer: asyncio.TimerHandle | None = None

    def join(self, writer: Writer) -> Callable[[], None]:
        """Give `writer` its turns; returns what ends that."""
        self._turns[id(writer)] = writer, self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(TURN_CHECK_INTERVAL_SECONDS, self._look)
        return lambda: self._leave(writer)

    def _leave(self, writer: Writer) -> None:
        self._turns.pop(id(writer), None)
        if not self._turns and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now, left = self._loop.time(), MAX_TURNS_PER_CHECK
        for key, (writer, turn) in list(self._turns.items()):
            waited = now - turn
            if waited < CHECKPOINT_INTERVAL_SECONDS:
                break  # so did all behind it
            if (left > 0 or waited >= writer.longest_wait_seconds) and writer.has_news:
                left -= 1
                del self._turns[key]
                self._turns[key] = writer, now
                writer.take_turn()
        self._timer = self._loop.call_later(TURN_CHECK_INTERVAL_SECONDS, self._look)
