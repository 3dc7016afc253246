"""What a stream has removed without a word to us, and the end of what was held, listed or noted of it.

A schedule is read before each of its fires, so one that was removed never fires. But until then it would be listed, and
take memory and a place; and a rejected message is never read again.

The rules:

- A sequence is given once: what the leader of a stream has removed needs no further proof. What a killed server of
  2.10 brings back was removed all the same.
- What is in progress or due is left alone: it is read, or its guard is checked, before it fires.

Cost: 30 ns for each schedule that is held, each time that something was removed, in units of some 0.3 ms.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice

from nats_scheduler.engine.holding.lifecycle import Lifecycle
from nats_scheduler.engine.holding.lifetimes import Lifetimes
from nats_scheduler.engine.holding.roster import Row
from nats_scheduler.engine.inputs import SchedulesGone
from nats_scheduler.engine.reading.admission import Admission, Places
from nats_scheduler.engine.reading.inactive import Inactive, Misnaming

ROWS_PER_UNIT = 16
"""Rows of far schedules that are compared in one unit of work."""

OTHERS_PER_UNIT = 2_048
"""Rejected, paused and other messages that are compared in one unit of work."""

Found = list[tuple[str, int]]
"""Subjects and sequences."""


class Removals:
    """Finds and ends what one stream does not store any more."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        lifetimes: Lifetimes,
        admission: Admission,
        inactive: Inactive,
        places: Places,
        misnaming: Misnaming,
    ) -> None:
        self._lifecycle = lifecycle
        self._roster = lifecycle.roster
        self._lifetimes = lifetimes
        self._admission = admission
        self._inactive = inactive
        self._places = places
        self._misnaming = misnaming

    def __bool__(self) -> bool:
        """Return whether there is anything that could be removed."""
        return bool(len(self._roster) or self._inactive or self._misnaming.noted)

    def find(self, first: int, gone: AbstractSet[int]) -> Iterator[Found]:
        """Yield what is known of messages with sequences below `first` or in `gone`, after each unit of work.

        Much may happen between two units.
        """
        rows = self._roster.rows
        for begin in range(0, len(rows), ROWS_PER_UNIT):
            end = min(begin + ROWS_PER_UNIT, len(rows))
            yield [one for number in range(begin, end) for one in _in_row(rows[number], first, gone)]
        yield from _among(((one.subject, one.sequence) for one in list(self._inactive.rejected.values())), first, gone)
        yield from _among(((one.subject, one.sequence) for one in list(self._inactive.paused.values())), first, gone)
        yield from _among(((one.subject, one.sequence) for one in self._places.all_waiting()), first, gone)
        yield from _among(((one.subject, one.sequence) for one in list(self._misnaming.noted.values())), first, gone)

    def take(self, given: SchedulesGone, now: int) -> None:
        """End what is not stored any more."""
        for subject, sequence in given.schedules:
            held = self._roster.exactly(subject, sequence)
            if held is not None and held.flight is None and held.send_time > now:
                self._lifecycle.end(held, self._lifetimes.why_gone(held, now))
            self._admission.gone(subject, sequence)
            self._misnaming.gone(subject, sequence)


def _in_row(row: Row, first: int, gone: AbstractSet[int]) -> Iterator[tuple[str, int]]:
    for held in list(row.near.values()):
        if held.flight is None and (held.sequence < first or held.sequence in gone):
            yield held.subject, held.sequence
    for place in row.far.among(first, gone):
        yield row.far.subject(place).decode("utf-8", "surrogateescape"), row.far.sequences[place]


def _among(known: Iterable[tuple[str, int]], first: int, gone: AbstractSet[int]) -> Iterator[Found]:
    left = iter(known)
    while part := list(islice(left, OTHERS_PER_UNIT)):
        yield [one for one in part if one[1] < first or one[1] in gone]
