"""The interface of a scenario, and the steps that several share.

The rule: a scenario does the same work on each side, and takes every figure from the stream or from the kernel.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tests.bench.fires import Fire, WrongFiresError, read_fires_of
from tests.bench.load import GROUP, SECOND
from tests.bench.sides import Side

FIRES_SECONDS = 180.0
"""Longest wait for the fires and the purges of a scenario, past the last due time."""

READ_AGAIN_SECONDS = 0.2
"""Pause between two checks of what was generated so far."""


@dataclass(frozen=True)
class Scenario(ABC):
    """One thing to do on a side."""

    FAMILY: ClassVar[str] = ""
    sidecars: ClassVar[int | None] = None
    """The number of instances of the sidecar that serve the stream at the start; None: as many as the side has."""

    count: int
    """The number in its name: of schedules, messages or streams, or of either a second."""

    @property
    def name(self) -> str:
        """The name under which it is asked for, saved and compared."""
        return f"{self.FAMILY}-{self.count}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The settings of the sidecar that are not its defaults."""
        return ()

    @property
    @abstractmethod
    def title(self) -> str:
        """A description in a few words."""

    @abstractmethod
    async def run(self, side: Side) -> dict[str, float]:
        """Do it, and return the figures by the names of their measures."""


async def until(instant: int) -> None:
    """Wait for an instant (ns)."""
    await asyncio.sleep(max(0.0, (instant - time.time_ns()) / SECOND))


def refuse_if_late(first_due: int) -> None:
    """Raise if the first schedule was due before the load was done, since the load would be measured then."""
    if time.time_ns() > first_due:
        raise WrongFiresError("schedules were due before all were stored and followed: too slow, or too busy a machine")


async def all_fires(side: Side, streams: Sequence[str], count: int, group: str = GROUP) -> list[Fire]:
    """Wait until `count` messages were generated on the targets of a group in these streams, and return them.

    Raises `TimeoutError`.
    """
    async with asyncio.timeout(FIRES_SECONDS):
        # The server does not notify us.
        while len(found := await read_fires_of(side.connection, side.api, streams, group)) < count:  # noqa: ASYNC110
            await asyncio.sleep(READ_AGAIN_SECONDS)
    return found
