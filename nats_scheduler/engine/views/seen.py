"""What one engine holds at one moment, and the questions that are answered about it.

The rules:

- A question is work for the moment at which it begins: a generator that yields after each unit, which takes the
  interpreter a fraction of a millisecond. Who runs it decides what happens between two units.
- It may be done in another thread than the engine's, through a connection that only reads (`Rows.through`). The objects
  are looked at then while the engine goes on: what changes is seen before or after its change, and each once.
- Nothing is changed.

Cost: some 60 ns for each object when the moment is taken, one to two microseconds to judge one.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.lifetimes import PausedSchedule
from nats_scheduler.engine.holding.table import Table
from nats_scheduler.engine.views.conditions import Condition
from nats_scheduler.engine.views.rows import Rows

T = TypeVar("T")
P = TypeVar("P")

Work = Generator[None, None, T]
"""Work that yields after each unit, and returns a result."""

LEFT_OUT, JUDGED, SEARCHED = 1, 8, 64
"""The effort for a schedule that is left out, that is judged, and whose next fire is searched."""

EFFORT_PER_UNIT = 512
"""The effort of one unit of work: 0.1 to 0.2 ms."""


def done(work: Work[T], pause: Callable[[], object] = lambda: None) -> T:
    """Do work, with a pause after each unit, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        pause()


@dataclass(frozen=True, slots=True)
class Seen:
    """What is there."""

    objects: Sequence[Held]
    rows: Rows
    paused: Sequence[PausedSchedule]

    def each(self, now: int, condition: Condition, take: Callable[[Held], int]) -> Work[None]:
        """Give each object to `take`, and each row for which a condition is true and that is due at `now` (ns).

        `take` returns its effort. The objects are all of them, whatever the condition is.
        """
        effort = 0
        for held in self.objects:
            effort += take(held)
            if effort >= EFFORT_PER_UNIT:
                effort = 0
                yield
        yield from self.each_row(now, condition.both(Condition("fire_time <= :due", {"due": now})), take)

    def each_row(self, through: int, condition: Condition, take: Callable[[Held], int]) -> Work[None]:
        """Give each row to `take` that is woken up to an instant (ns) and for which a condition is true."""
        for portion in self.rows.by_wake(NO_WAKE, through):
            for some in self.rows.held(portion, condition):
                yield from taken(some, take)
            yield


def taken(some: Sequence[Held], take: Callable[[Held], int]) -> Work[None]:
    """Give some rows that were just read to `take`."""
    effort = 0
    for held in some:
        effort += take(held)
        if effort >= EFFORT_PER_UNIT:
            effort = 0
            yield
    yield


@dataclass(frozen=True, slots=True)
class Part(Generic[P]):
    """What a question asks of one engine."""

    table: Table
    """The rows of the engine."""
    see: Callable[[], Seen]
    """Returns what is there at the moment of the call, which has to be one between two steps of the engine."""
    work: Callable[[Seen], Work[P]]

    def here(self) -> Work[P]:
        """Answer it beside the engine, through the connection of the engine, beginning with the first unit."""
        return (yield from self.of(self.see()))

    def of(self, seen: Seen) -> Work[P]:
        """Answer it about what was seen."""
        try:
            yield from seen.rows.begin()
            return (yield from self.work(seen))
        finally:
            seen.rows.end()


class Question(Generic[T]):
    """A question about a stream: to one engine, or to both that know schedules of it."""

    def __init__(self, parts: Sequence[Part[P]], merge: Callable[[list[P]], T]) -> None:
        """Ask these parts, and `merge` what they answer."""
        self.parts: Sequence[Part[Any]] = parts
        self.merge: Callable[[list[Any]], T] = merge

    def answer(self) -> T:
        """Answer it at once, beside the engines: for programs that fire nothing meanwhile."""
        return self.merge([done(part.here()) for part in self.parts])
