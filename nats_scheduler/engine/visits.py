"""Visit all schedules that an engine holds, a few at a time, while it goes on.

The rules:

- Each schedule that is held all the time is visited once. One that is added meanwhile may be missed, and one that is
  removed before its turn is not visited.
- A schedule that is visited is there to be looked at, until the next one is asked for: if it is far it is a copy.

Cost: a fraction of a microsecond for each near schedule, two for each far one, a tenth for a far one that a `Window`
leaves out.
"""

from collections.abc import Iterator

from nats_scheduler.engine.far import Window
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.outlook import is_searched
from nats_scheduler.engine.rows import ROW_LENGTH, Rows

SEARCHED_PER_UNIT = 16
"""Schedules whose next fire is searched in one unit of work, tens of microseconds each."""

PLACES_PER_UNIT = 64
"""Places that are visited in one unit of work."""


def visit(rows: Rows, now: int, window: Window | None = None) -> Iterator[Held | None]:
    """Yield each schedule that is held, and None after each unit of work."""
    number, searched = 0, 0
    while number < len(rows):
        row = rows[number]
        for first in range(0, ROW_LENGTH, PLACES_PER_UNIT):
            if first >= row.used:
                break
            for seen in row.visit(first, first + PLACES_PER_UNIT, window):
                if is_searched(seen, now):
                    searched += 1
                    if searched % SEARCHED_PER_UNIT == 0:
                        yield None
                if (held := row.current(seen)) is not None:  # else it was removed while the visit rested
                    yield held
            yield None
        number += 1
