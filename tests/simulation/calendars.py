"""The calendars of a simulated account, and their editor.

Its rule: an instance receives what is there when the notice of an edit arrives, however many edits there were.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from nats_scheduler.schedule.calendars import Calendar, InvalidCalendar, KnownCalendars, read_calendar
from tests.judge.history import SECOND, CalendarSeen, Leaves
from tests.simulation.scenario import MILLISECOND
from tests.simulation.timeline import Timeline

if TYPE_CHECKING:
    from tests.simulation.instance import Instance

NAMES = ("work", "more")

MOVING = "moving"
"""A calendar of schedules that fire on 30 December, and on 1 January if the days before are excepted."""

Texts = dict[Leaves, list[str | None]]
TEXTS: Texts = {
    Leaves.ALL: [""],
    Leaves.NOTHING: ["2025-12-31..2026-01-01"],
    Leaves.GONE: [None, "soon"],
}
"""The day of all simulated worlds is the first of January."""

MOVING_TEXTS: Texts = {
    **TEXTS,
    Leaves.ALL: ["2025-12-30..2025-12-31"],
    Leaves.NOTHING: ["", "2025-12-30..2026-01-01"],
}

LONGEST_WAY = 300 * MILLISECOND
"""The longest time (ns) that the notice of an edit is in transit."""

LONGEST_STRETCH = 12 * SECOND
"""The longest time (ns) for which a calendar stays as it is."""


class SimulatedCalendars:
    """The calendars as they are."""

    def __init__(self, seed: int, timeline: Timeline, edits: list[CalendarSeen], trace: Callable[[str], None]) -> None:
        self._random = Random(f"calendars are edited {seed}")
        self._reading = Random(f"calendars are read {seed}")
        self._moving = Random(f"a calendar that moves is edited {seed}")
        self._timeline = timeline
        self._edits = edits
        self._trace = trace
        self._texts: dict[str, str] = {}
        self.readers: list[Instance] = []
        self.is_over = False

    @property
    def known(self) -> KnownCalendars:
        """The calendars that a sidecar reads."""
        found: dict[str, Calendar | InvalidCalendar] = {
            name: read_calendar(name, text.encode()) for name, text in self._texts.items()
        }
        return KnownCalendars(found)

    def begin(self) -> None:
        """Make all calendars, and edit them from now on."""
        for name in (*NAMES, MOVING):
            self._edit(name, Leaves.ALL)
        self._edit_later()
        self._edit_moving_later()

    def end(self) -> None:
        """Edit no more; one calendar leaves everything in the end."""
        self.is_over = True
        self._edit(NAMES[0], Leaves.ALL)
        self._edit(NAMES[1], self._random.choice([*Leaves]))
        self._edit(MOVING, self._moving.choice([*Leaves]))

    def deliver_all(self, to: Callable[[], None]) -> None:
        """Deliver the calendars after a while, to a reader that has just connected."""
        self._timeline.after(int(self._reading.random() * LONGEST_WAY), to)

    def _deliver(self, to: Callable[[], None], random: Random) -> None:
        """Deliver the notice of an edit after a while."""
        self._timeline.after(int(random.random() * LONGEST_WAY), to)

    def _edit_later(self) -> None:
        self._timeline.after(int(self._random.random() * LONGEST_STRETCH), self._edit_one)

    def _edit_one(self) -> None:
        if not self.is_over:
            self._edit(self._random.choice(NAMES), self._random.choice([*Leaves, Leaves.ALL]))
            self._edit_later()

    def _edit_moving_later(self) -> None:
        self._timeline.after(int(self._moving.random() * LONGEST_STRETCH), self._edit_moving)

    def _edit_moving(self) -> None:
        if not self.is_over:
            self._edit(MOVING, self._moving.choice([*Leaves, Leaves.ALL]))
            self._edit_moving_later()

    def _edit(self, name: str, leaves: Leaves) -> None:
        random, texts = (self._moving, MOVING_TEXTS) if name == MOVING else (self._random, TEXTS)
        text = random.choice(texts[leaves])
        self._trace(f"calendars: {name} leaves {leaves}: {text!r}")
        self._texts.pop(name, None)
        if text is not None:
            self._texts[name] = text
        self._edits.append(CalendarSeen(name, self._timeline.now, leaves))
        for reader in self.readers:
            cut = max(reader.weather.cut_until - self._timeline.now, 0)
            self._timeline.after(cut, partial(self._deliver, reader.receive_calendars, random))
