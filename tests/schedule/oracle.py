"""The independent oracle for cron: it draws patterns together with their meaning and checks every second.

The rule: it uses nothing of the grammar or the search under test. The meaning of a field is the set of values that it
was drawn with, and wall clocks come from the standard library.
"""

from dataclasses import dataclass
from datetime import datetime, tzinfo

from hypothesis import strategies as st

LOW = (0, 0, 0, 1, 1, 0)
HIGH = (59, 59, 23, 31, 12, 6)

Wall = tuple[int, int, int, int, int, int]
"""The time on a wall clock: second, minute, hour, day of month, month, day of week (Sunday is 0)."""


def wall_at(second: int, zone: tzinfo) -> Wall:
    """Read the wall clock of a zone."""
    wall = datetime.fromtimestamp(second, zone)
    return wall.second, wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7


@dataclass(frozen=True)
class Drawn:
    """One field: its text, the values that it stands for, and whether it is unrestricted."""

    text: str
    values: frozenset[int]
    star: bool = False


@dataclass(frozen=True)
class Meaning:
    """Six fields."""

    fields: tuple[Drawn, ...]

    @property
    def text(self) -> str:
        """The pattern."""
        return " ".join(field.text for field in self.fields)

    def matches(self, wall: Wall) -> bool:
        """Return whether the pattern fires when the wall clock shows this."""
        second, minute, hour, day, month, weekday = self.fields
        if wall[0] not in second.values or wall[1] not in minute.values:
            return False
        if wall[2] not in hour.values or wall[4] not in month.values:
            return False
        if day.star or weekday.star:
            return wall[3] in day.values and wall[5] in weekday.values
        return wall[3] in day.values or wall[5] in weekday.values


def _everything(number: int) -> frozenset[int]:
    return frozenset(range(LOW[number], HIGH[number] + 1))


def _list_of(values: set[int]) -> Drawn:
    return Drawn(",".join(map(str, sorted(values))), frozenset(values))


def _range(ends: tuple[int, int]) -> Drawn:
    first, last = sorted(ends)
    return Drawn(f"{first}-{last}", frozenset(range(first, last + 1)))


def fields(number: int, near: int | None = None) -> st.SearchStrategy[Drawn]:
    """Draw a field; `near`, if given, is likely to be one of its values or next to one."""
    low, high = LOW[number], HIGH[number]
    values = st.integers(low, high)
    steps = st.integers(2, high).map(lambda step: Drawn(f"*/{step}", frozenset(range(low, high + 1, step))))
    drawn = st.one_of(
        st.just(Drawn("*", _everything(number), star=True)),
        st.sets(values, min_size=1, max_size=4).map(_list_of),
        st.tuples(values, values).map(_range),
        steps,
    )
    if near is None:
        return drawn
    close = st.integers(max(near - 2, low), min(near + 2, high))
    return st.one_of(
        st.just(Drawn("*", _everything(number), star=True)),
        st.sets(close, min_size=1, max_size=3).map(_list_of),
        drawn,
    )


def meanings(near: Wall | None = None) -> st.SearchStrategy[Meaning]:
    """Draw a whole pattern; with a wall-clock time, one that is likely to fire near it."""
    drawn = [fields(number, None if near is None else near[number]) for number in range(6)]
    return st.tuples(*drawn).map(Meaning)
