"""The editor of calendars: they leave every day, or except those of the round, or are gone or invalid.

Its rule: an edit is repeated until it is acknowledged; from its first request until then nobody knows what counts.
"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.jetstream.calendar_bucket import CalendarBucket
from tests.harness.waiting import time_reached
from tests.judge.history import NEVER, CalendarSeen, Leaves
from tests.nemesis.ground import CALENDARS, Ground
from tests.nemesis.record import Record, now

NAMES = ("work", "more")
LONGEST_STRETCH = 3.0
"""The longest time (s) for which all calendars stay as they are."""
EDITED_SECONDS = 2.0
AGAIN_SECONDS = 0.1


class Editor:
    """The editor of the calendars that schedules name."""

    def __init__(self, ground: Ground, record: Record, seed: int) -> None:
        self._ground = ground
        self._record = record
        self._random = Random(f"the calendar {seed}")
        self._last = Random(f"how a calendar ends {seed}").choice([*Leaves])
        self._texts = _texts()
        self._one_at_a_time = asyncio.Lock()
        self._is_over = False

    async def begin(self) -> None:
        """Make all calendars."""
        for name in NAMES:
            await self._edit(name, Leaves.ALL)

    async def edit_now_and_again(self) -> None:
        """Edit a calendar, with pauses, until the end."""
        loop = asyncio.get_running_loop()
        while not self._is_over:
            await time_reached(loop.time() + self._random.uniform(0, LONGEST_STRETCH))
            async with self._one_at_a_time:
                if not self._is_over:
                    await self._edit(self._random.choice(NAMES), self._random.choice([Leaves.ALL, *Leaves]))

    async def end(self) -> None:
        """Edit no more; one calendar leaves everything in the end, and the other one what the seed says."""
        self._is_over = True
        async with self._one_at_a_time:
            await self._edit(NAMES[0], Leaves.ALL)
            await self._edit(NAMES[1], self._last)

    async def _edit(self, name: str, leaves: Leaves) -> None:
        """Edit a calendar, however long that takes."""
        loop, text = asyncio.get_running_loop(), self._random.choice(self._texts[leaves])
        edits = self._record.history.calendars
        edits.append(CalendarSeen(name, now(), leaves, certain_from=NEVER))
        place = len(edits) - 1
        while not await self._is_written(name, text):
            await time_reached(loop.time() + AGAIN_SECONDS)
        edits[place] = replace(edits[place], certain_from=now())
        self._record.tell(f"the calendar {name} leaves {leaves}: {text!r}", edits[place].since)

    async def _is_written(self, name: str, text: str | None) -> bool:
        try:
            async with asyncio.timeout(EDITED_SECONDS), self._ground.account() as account:
                bucket = CalendarBucket(account.connection, account.api, CALENDARS)
                await bucket.open()
                _found, revision = await bucket.revised_text(name)
                return await bucket.write(name, None if text is None else text.encode(), revision)
        except (SchedulerError, OSError):  # TimeoutError is one
            return False


def _texts() -> dict[Leaves, list[str | None]]:
    """Return what the calendar may say; the days of a round are those around its beginning."""
    today = datetime.now(UTC).date()
    around = f"{today - timedelta(days=1)}..{today + timedelta(days=1)}"
    return {Leaves.ALL: ["", "2020-01-01"], Leaves.NOTHING: [around], Leaves.GONE: [None, "soon"]}
