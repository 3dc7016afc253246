"""The schedules that are held, and when each of them has to be woken next.

The rule: a held schedule has at most one valid entry in the agenda, the one whose instant equals its `wake`.
Entries are never searched for; a stale one is skipped when its time comes.
If more than half of the entries are stale, of a span or of all, they are discarded: memory follows what is held.

Of a million schedules nearly all are far from their next fire. `settle`, at the end of a step, packs what has its next
wake more than a few minutes later (`engine.holding.far`): then it is an object no more. It becomes one again if it is
asked for by its subject, and before its time comes. So code that keeps a schedule from one step to the next keeps one
that is in progress or set aside, which is never packed.

Near schedules have their entries here. Entries of the current and the next span of 17 s are kept in order
(`engine.holding.roster`); later ones are in lists, one for each span.
A list is put in order a piece at a time during the span before its own, so that a burst is not late.
A span whose time has passed, as after an outage, is put in order a piece at a time as well, and then woken from.

Cost: a lookup per message; a wake is entered once or twice; 4 bytes for the entry of a far schedule.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import ClassVar

from nats_scheduler.engine.holding.far import (
    MAX_ROW_BYTES,
    FarAgenda,
    FarColumns,
    FarEntry,
    FarRow,
    Kinds,
    SubjectIndex,
    Window,
    columns_of,
    read_text,
    subject_in,
)
from nats_scheduler.engine.holding.held import NO_PLACE, NO_WAKE, Held
from nats_scheduler.message.definition import Definition

# The wakes of schedules in order: by time, and at one instant by sequence.
#
# A burst is thousands of entries of one instant. So the instants are a heap, and the entries of each instant are a
# list.
#
# The rule: an entry is valid while its schedule's `wake` is the instant it is entered for; others are skipped.
#
# Cost: a heap push and pop for each instant, an append and a pop for each entry, a sort when the time of a list
# comes.


class Agenda:
    """The entries of the agenda that are in order."""

    def __init__(self) -> None:
        self._instants: list[int] = []
        self._at: dict[int, list[Held]] = {}
        self._sorted = NO_WAKE
        """The instant whose entries are sorted, in reverse, so that the first one is popped from the end."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, held: Held, instant: int) -> None:
        """Enter a schedule that is to be woken when `instant` (ns) comes."""
        entries = self._at.get(instant)
        if entries is None:
            self._at[instant] = [held]
            heapq.heappush(self._instants, instant)
        else:
            entries.append(held)
            if instant == self._sorted:
                self._sorted = NO_WAKE
        self._count += 1

    def first(self) -> int | None:
        """Return the earliest instant with a valid entry."""
        while self._instants:
            instant = self._instants[0]
            entries = self._at[instant]
            while entries and entries[-1].wake != instant:
                entries.pop()
                self._count -= 1
            if entries:
                return instant
            self._close(instant)
        return None

    def pop(self, through: int, most: int) -> list[Held]:
        """Take the first valid entries up to the instant `through` (ns), at most `most`."""
        instants = self._instants
        popped: list[Held] = []
        if not instants or instants[0] > through:
            return popped  # most steps are made for what arrived
        while len(popped) < most and instants and (instant := instants[0]) <= through:
            entries = self._at[instant]
            if instant != self._sorted:
                entries.sort(key=_sequence, reverse=True)
                self._sorted = instant
            taken = entries[: -1 - (most - len(popped)) : -1]
            del entries[-len(taken) :]
            self._count -= len(taken)
            if not entries:
                self._close(instant)
            for held in taken:
                if held.wake == instant:
                    held.wake = NO_WAKE
                    popped.append(held)
        return popped

    def discard_stale(self) -> None:
        """Discard all entries that are not valid."""
        valid = {instant: _valid(entries, instant) for instant, entries in self._at.items()}
        self._at = {instant: entries for instant, entries in valid.items() if entries}
        self._instants = sorted(self._at)
        self._count = sum(map(len, self._at.values()))

    def _close(self, instant: int) -> None:
        heapq.heappop(self._instants)
        del self._at[instant]


def _sequence(held: Held) -> int:
    return held.sequence


def _valid(entries: Iterable[Held], instant: int) -> list[Held]:
    return list(dict.fromkeys(held for held in entries if held.wake == instant))


# The held schedules in rows, so that all of them can be visited a row at a time while they change.
#
# A dictionary cannot be read in parts: a change ends its iteration, and a copy of a million entries takes too long
# between two fires.
#
# The rule: a schedule has one place until it is removed, whether it is near (an object) or far
# (`engine.holding.far`). So a visit of all rows, one after the other, finds each schedule that is held all the time
# exactly once; one that is added meanwhile may be missed.
#
# Cost: a fraction of a microsecond to add or to remove; some 100 bytes for each near schedule.
# Limit: rows that became empty stay, and are filled again first.

ROW_BITS = 8
ROW_LENGTH = 1 << ROW_BITS
"""Places in a row."""

_PLACE_IN_ROW = ROW_LENGTH - 1


class Row:
    """The places of one row."""

    __slots__ = ("far", "free", "near", "used")

    def __init__(self, kinds: Kinds, number: int) -> None:
        self.near: dict[int, Held] = {}
        """The near schedules by their places in the row."""
        self.far = FarRow(kinds, number << ROW_BITS)
        self.free: list[int] = []
        """Places that became free."""
        self.used = 0
        """The number of places that were ever used: the first ones."""

    @property
    def has_room(self) -> bool:
        """True if a place is free."""
        return bool(self.free) or self.used < ROW_LENGTH

    def visit(self, first: int = 0, end: int = ROW_LENGTH, window: Window | None = None) -> list[Held]:
        """Return the schedules in some places of the row, to look at: those that are far are copies.

        With a window, without the far ones that it leaves out.
        """
        near, far = self.near, self.far
        found = []
        for place in range(first, min(end, self.used)):
            held = near.get(place)
            if held is not None:
                found.append(held)
            elif far.has(place) and not (window and far.is_left_out(place, window)):
                found.append(far.unpacked(place))
        return found

    def current(self, held: Held) -> Held | None:
        """Return a schedule that was visited, as it is now; None if it is not held any more."""
        place = held.place & _PLACE_IN_ROW
        near = self.near.get(place)
        if near is not None:
            return near if near.sequence == held.sequence else None
        return held if self.far.has(place) and self.far.sequences[place] == held.sequence else None


class Rows:
    """The rows of one stream's schedules."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._with_room: list[int] = []
        self._kinds = Kinds()
        self.far_count = 0
        """The number of far schedules."""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Row:
        """Return the row with this number, from 0 on."""
        return self._rows[number]

    def add(self, held: Held) -> None:
        """Give a near schedule a place."""
        row, number, place = self._room()
        row.near[place] = held
        held.place = number << ROW_BITS | place

    @property
    def kinds(self) -> Kinds:
        """The kinds of the far schedules."""
        return self._kinds

    def fill(self, columns: FarColumns) -> int:
        """Put far schedules into a new row; returns the place of the first one, and the others follow."""
        number, count = len(self._rows), len(columns.sequences)
        row = Row(self._kinds, number)
        row.far.fill(columns)
        row.used = count
        self._rows.append(row)
        if row.has_room:
            self._with_room.append(number)
        self.far_count += count
        return number << ROW_BITS

    def add_far(self, entry: FarEntry) -> int | None:
        """Give a far schedule a place, and return it; None if it cannot be in the row that has room."""
        row, number, place = self._room()
        if not row.far.put(place, entry):
            self._take_back(row, number, place)
            return None
        self.far_count += 1
        if row.far.count == ROW_LENGTH:
            row.far.trim()
        return number << ROW_BITS | place

    def discard(self, place: int) -> None:
        """Take the place of a far schedule, which is not held any more."""
        number, within = place >> ROW_BITS, place & _PLACE_IN_ROW
        row = self._rows[number]
        row.far.remove(within)
        self._take_back(row, number, within)
        self.far_count -= 1

    def emptied(self) -> Iterator[None]:
        """Remove all schedules, and yield after each row."""
        while self._rows:
            self._rows.pop()
            yield
        self._with_room.clear()
        self.far_count = 0

    def replace(self, before: Held, held: Held) -> None:
        """Put a schedule where the version before it is, so that a visit sees one of the two."""
        place = before.place
        before.place, held.place = NO_PLACE, place
        self._rows[held.place >> ROW_BITS].near[held.place & _PLACE_IN_ROW] = held

    def remove(self, held: Held) -> None:
        """Take the place of a near schedule."""
        number, place = held.place >> ROW_BITS, held.place & _PLACE_IN_ROW
        row = self._rows[number]
        del row.near[place]
        self._take_back(row, number, place)
        held.place = NO_PLACE

    def _room(self) -> tuple[Row, int, int]:
        """Take a free place: its row, the number of that, and where it is there."""
        if not self._with_room:
            self._with_room.append(len(self._rows))
            self._rows.append(Row(self._kinds, len(self._rows)))
        number = self._with_room[-1]
        row = self._rows[number]
        if row.free:
            place = row.free.pop()
        else:
            place = row.used
            row.used += 1
        if not row.has_room:
            self._with_room.pop()
        return row, number, place

    def _take_back(self, row: Row, number: int, place: int) -> None:
        """Have a place free again."""
        if not row.has_room:
            self._with_room.append(number)
        row.free.append(place)

    # -- far schedules -------------------------------------------------------------------------------------------

    def pack(self, held: Held) -> bool:
        """Have a near schedule kept as a far one in its place; returns whether that was possible."""
        row, place = self._rows[held.place >> ROW_BITS], held.place & _PLACE_IN_ROW
        if not row.far.pack(place, held):
            return False
        del row.near[place]
        if not row.near:
            row.near = {}  # a dictionary that became empty keeps the room for all that were in it
            if row.far.count == ROW_LENGTH:
                row.far.trim()
        self.far_count += 1
        return True

    def unpack(self, place: int) -> Held:
        """Make the far schedule in a place a near one."""
        row, within = self._rows[place >> ROW_BITS], place & _PLACE_IN_ROW
        held = row.near[within] = row.far.unpacked(within)
        row.far.remove(within)
        self.far_count -= 1
        return held

    def copy(self, place: int) -> Held:
        """Return a copy of the far schedule in a place, to look at."""
        return self._rows[place >> ROW_BITS].far.unpacked(place & _PLACE_IN_ROW)

    def subject(self, place: int) -> bytes:
        """Return the subject of the far schedule in a place."""
        return self._rows[place >> ROW_BITS].far.subject(place & _PLACE_IN_ROW)

    def far_wake(self, place: int) -> int | None:
        """Return when (ns) the far schedule in a place is woken; None if none is there."""
        far, within = self._rows[place >> ROW_BITS].far, place & _PLACE_IN_ROW
        return far.wakes[within] if far.has(within) else None

    def far_wakes(self, first: int) -> list[tuple[int, int]]:
        """Return the places of the far schedules in a row, whose first place is given, and their wakes (ns)."""
        far = self._rows[first >> ROW_BITS].far
        return [(first | within, far.wakes[within]) for within in far.places()]


MIN_AGENDA_ENTRIES = 1024
"""Stale entries up to this number are kept until their time comes."""

SPAN_BITS = 34
"""A span is 2 to this power of nanoseconds, 17 s."""

MAX_MOVED_PER_CALL = 2_048
"""Entries of the next span that are put in order in one call, which takes about a millisecond."""


MAX_UNPACKED_PER_CALL = 512
"""Far schedules that are unpacked in one call, which takes about a millisecond."""


class _Span:
    """The entries of one span that are not in order yet."""

    __slots__ = ("first", "held", "stale")

    def __init__(self, first: int) -> None:
        self.first = first
        """No entry has an earlier instant (ns)."""
        self.held: list[Held] = []
        self.stale = 0
        """The most of them that can be stale."""


class Roster:
    """The held schedules by subject, and the agenda."""

    far_bits: ClassVar[int] = 37
    """Schedules to be woken in the next 2 to this power of ns (137 s) are near, and some in up to twice that time."""

    min_filled: ClassVar[int] = 64
    """So many new far schedules get a row of their own; fewer go into the places that are free."""

    def __init__(self) -> None:
        self._near: dict[str, Held] = {}
        self.rows = Rows()
        """All schedules, near and far, for visits that are spread over many steps."""
        self._places = SubjectIndex(self.rows.subject)
        """Where the far schedules are."""
        self._far_agenda = FarAgenda(self.far_bits)
        self._far_order = self._far_agenda.order
        self.comes_to = self._far_agenda.comes_to
        """Notes the time (ns), which decides what is far: to be called at the beginning of each step."""
        self._unsettled: list[tuple[Held, int]] = []
        """Near schedules whose wake (ns) is far; their entries are made by `settle`."""
        self._fetched: list[tuple[int, int]] = []
        """The place and the wake (ns) of each far schedule that was fetched since: its entry may be valid again."""
        self._agenda = Agenda()
        self._spans: dict[int, _Span] = {}
        self._order: list[int] = []
        """The numbers of the spans, as a heap; some may be gone."""
        self._in_spans = 0
        """The number of entries in spans."""
        self._ordered_through = 0
        """The number of the last span whose new entries are put in order at once."""

    def __len__(self) -> int:
        return len(self._near) + self.rows.far_count

    def __iter__(self) -> Iterator[Held]:
        """Yield all schedules, to look at: those that are far are copies."""
        for number in range(len(self.rows)):
            yield from self.rows[number].visit()

    def on(self, subject: str) -> Held | None:
        """Return the schedule held on a subject."""
        held = self._near.get(subject)
        return held if held is not None or not self.rows.far_count else self._fetch(subject)

    def peek(self, subject: str) -> Held | None:
        """Return the schedule held on a subject, to look at: one that is far is a copy, and stays far."""
        held = self._near.get(subject)
        if held is not None or not self.rows.far_count:
            return held
        key = subject.encode("utf-8", "surrogateescape")
        place = self._places.find(key)
        return None if place is None else self.rows.copy(place)

    def exactly(self, subject: str, sequence: int) -> Held | None:
        """Return the schedule held on a subject if it is still the one with this sequence."""
        held = self.on(subject)
        return held if held is not None and held.sequence == sequence else None

    def hold(self, held: Held) -> None:
        """Hold a schedule; it replaces the one that was held on its subject."""
        before = self.on(held.subject)
        if before is None:
            self.rows.add(held)
        else:
            del self._near[held.subject]
            self.cancel_wake(before)
            self.rows.replace(before, held)
        self._near[held.subject] = held

    @property
    def first_far_wake(self) -> int:
        """The first instant (ns) at which a schedule is woken that is far."""
        return self._far_agenda.first_far()

    def has(self, subject: str, key: bytes) -> bool:
        """Return whether a schedule is on a subject; `key` is that as UTF-8."""
        return subject in self._near or self._places.find(key) is not None

    def hold_far(self, entries: Sequence[FarEntry]) -> None:
        """Hold new schedules without a TTL as far ones: each is far."""
        for first in range(0, len(entries), ROW_LENGTH):
            part = entries[first : first + ROW_LENGTH]
            if len(part) < self.min_filled or not self._fill_with(part):
                for entry in part:
                    self._hold_far(entry)

    def _fill_with(self, entries: Sequence[FarEntry]) -> bool:
        """Hold new far schedules in a row of their own; returns whether that was possible."""
        kinds, wanted = self.rows.kinds, set({id(entry.kind): entry.kind for entry in entries}.values())
        numbers = {kind: number for kind in wanted if (number := kinds.take(kind)) is not None}
        has_room = len(numbers) == len(wanted) and sum(len(entry.text) for entry in entries) <= MAX_ROW_BYTES
        if has_room:
            self.fill(columns_of(entries, numbers.__getitem__))
        for number in numbers.values():
            kinds.release(number)
        return has_room

    def _hold_far(self, entry: FarEntry) -> None:
        if (place := self.rows.add_far(entry)) is not None:
            self._places.add(subject_in(entry.text), place)
            self._far_agenda.add(place, entry.wake)
            return
        kind, text, sequence, stored_at, fire_time, wake, _expires, mark = entry
        subject, pattern, terms = read_text(kind, text, fire_time)
        held = Held(subject, sequence, Definition(pattern, terms), stored_at, fire_time)
        held.mark = mark
        self.put(held, wake)

    def remove(self, subject: str) -> Held | None:
        """Hold no schedule on a subject any more; returns the one that was held."""
        held = self.on(subject)
        if held is not None:
            del self._near[subject]
            self.cancel_wake(held)
            self.rows.remove(held)
        return held

    # -- many at once: to fill one that was never used ------------------------------------------------------------

    def fill(self, columns: FarColumns, gone: Iterable[int] = ()) -> None:
        """Hold far schedules in a row of their own, but those in places of `gone`; the row is entered."""
        first = self.rows.fill(columns)
        self._places.fill(map(subject_in, columns.each_text()), first)
        self._far_agenda.add_row(first, columns.wakes)
        for place in gone:
            self._places.pop(self.rows.subject(first | place))
            self.rows.discard(first | place)

    def put(self, held: Held, wake: int) -> bool:
        """Hold a near schedule that is woken at `wake` (ns); False if one is held near on its subject."""
        if held.subject in self._near:
            return False
        self.rows.add(held)
        self._near[held.subject] = held
        self.wake(held, wake)
        return True

    def twice(self) -> Iterator[bytes | None]:
        """Yield each subject that has two schedules, and None after each unit of work."""
        yield from self._places.twice()
        for number, subject in enumerate(self._near):
            encoded = subject.encode("utf-8", "surrogateescape")
            if self._places.find(encoded) is not None:
                yield encoded
            if number % ROW_LENGTH == 0:
                yield None

    def adopt(self, other: Roster) -> None:
        """Hold what another roster holds, which is not used any more."""
        assert not len(self.rows), "nothing was ever held"
        vars(self).update(vars(other))

    def emptied(self) -> Iterator[None]:
        """Hold nothing any more, and yield after each unit of work; for an engine that is not used any more."""
        self._unsettled.clear()
        for span in self._spans.values():
            while span.held:
                del span.held[-ROW_LENGTH:]
                yield
        while self._near:
            for _ in range(min(ROW_LENGTH, len(self._near))):
                self._near.popitem()
            yield
        yield from self.rows.emptied()
        yield from self._places.emptied()

    def wake(self, held: Held, instant: int) -> None:
        """Wake the schedule when `instant` (ns) comes, instead of any time set before."""
        if held.wake != NO_WAKE:
            self.cancel_wake(held)
        held.wake = instant
        if self._far_agenda.is_far(instant) and not held.has_history:
            self._unsettled.append((held, instant))
        else:
            self._enter(held, instant)

    def settle(self, near: Container[int]) -> None:
        """Pack the schedules whose next wake is far; those with the sequences in `near` are not packed.

        To be called at the end of each step: no code may use a schedule after that unless it is in progress.
        """
        if not (self._unsettled or self._fetched):
            return
        agenda, entered = self._far_agenda, set(self._fetched)
        for held, wake in self._unsettled:
            place, subject = held.place, held.subject
            if held.wake != wake or self._near.get(subject) is not held:
                continue
            if agenda.is_far(wake) and held.sequence not in near and self.rows.pack(held):
                held.wake = NO_WAKE  # a stale entry may still have the object
                del self._near[subject]
                self._places.add(subject.encode("utf-8", "surrogateescape"), place)
                if (place, wake) not in entered:
                    agenda.add(place, wake)
            else:
                self._enter(held, wake)
        self._unsettled.clear()
        for place, wake in self._fetched:
            if self.rows.far_wake(place) != wake:
                agenda.became_stale(wake, self.rows.far_wake)
        self._fetched.clear()

    def cancel_wake(self, held: Held) -> None:
        """Remove the wake of a schedule, until another one is set."""
        instant, held.wake = held.wake, NO_WAKE
        if instant == NO_WAKE:
            return
        span = self._spans.get(instant >> SPAN_BITS)
        if span is not None:
            self._became_stale(span, instant >> SPAN_BITS)
        if len(self._agenda) + self._in_spans >= 2 * len(self._near) + MIN_AGENDA_ENTRIES:
            self._agenda.discard_stale()

    def next_wake(self) -> int | None:
        """Return the earliest instant of an entry, or an earlier one at which far schedules become near.

        It may be of an entry that is stale.
        """
        if not (self._spans or self._far_order or self._unsettled):
            return self._agenda.first()
        number = self._first_span()
        instants = [self._agenda.first(), self._far_agenda.next_unpacking()]
        if number is not None:
            instants.append(self._spans[number].first)
        instants += [self._far_agenda.unpacking_of(wake) for held, wake in self._unsettled if held.wake == wake]
        return min((instant for instant in instants if instant is not None), default=None)

    def pop_woken(self, now: int, most: int) -> list[Held]:
        """Take the next schedules whose time has come, at most `most`, by time and then by sequence.

        Fewer if there are no more, or if more have to be unpacked or put in order first: then `next_wake` has come
        already.
        """
        if not (self._spans or self._far_order):
            return self._agenda.pop(now, most)
        until = self._unpack_some(now)
        current = until >> SPAN_BITS
        woken: list[Held] = []
        while True:
            number = self._first_span()
            # Entries of a span that has begun may be earlier than those that are in order.
            bound = until if number is None else min(until, (number << SPAN_BITS) - 1)
            woken += self._agenda.pop(bound, most - len(woken))
            if len(woken) == most or number is None or number > current + 1:
                return woken
            is_rest_left = self._order_some(number)
            if is_rest_left or number > current:
                return woken

    def _fetch(self, subject: str) -> Held | None:
        """Return the far schedule on a subject, which becomes near until the end of the step."""
        place = self._places.pop(subject.encode("utf-8", "surrogateescape"))
        if place is None:
            return None
        held = self._near[subject] = self.rows.unpack(place)
        if self._far_agenda.is_far(held.wake):
            self._unsettled.append((held, held.wake))
            self._fetched.append((place, held.wake))
        else:
            self._enter(held, held.wake)  # it was to be unpacked soon
        return held

    def _unpack_some(self, now: int) -> int:
        """Unpack some of the schedules that are not far any more; returns the instant up to which all are near."""
        agenda = self._far_agenda
        if (row := agenda.take_row()) is not None:
            for place, instant in self.rows.far_wakes(row):
                agenda.add(place, instant)
            # Those of it that are fetched at the moment were not entered.
            self._fetched = [one for one in self._fetched if not row <= one[0] < row + ROW_LENGTH]
        for place in agenda.take(MAX_UNPACKED_PER_CALL):
            wake = self.rows.far_wake(place)
            if wake is None or agenda.is_far(wake):
                continue  # it was fetched since, or another one took its place
            self._places.pop(self.rows.subject(place))
            held = self.rows.unpack(place)
            self._near[held.subject] = held
            self._enter(held, held.wake)
        return agenda.near_through(now)

    def _enter(self, held: Held, instant: int) -> None:
        number = instant >> SPAN_BITS
        if number <= self._ordered_through:
            self._agenda.add(held, instant)
            return
        span = self._spans.get(number)
        if span is None:
            span = self._spans[number] = _Span(instant)
            heapq.heappush(self._order, number)
        elif instant < span.first:
            span.first = instant
        span.held.append(held)
        self._in_spans += 1

    def _first_span(self) -> int | None:
        """Return the number of the first span."""
        while self._order and self._order[0] not in self._spans:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None

    def _order_some(self, number: int) -> bool:
        """Put some entries of the first span in order; returns whether more of it is left."""
        self._ordered_through = max(self._ordered_through, number)
        entries = self._spans[number].held
        rest = max(len(entries) - MAX_MOVED_PER_CALL, 0)
        for held in entries[rest:]:
            if held.wake >> SPAN_BITS == number:
                self._agenda.add(held, held.wake)
        self._in_spans -= len(entries) - rest
        del entries[rest:]
        if not entries:
            del self._spans[number]
        return bool(entries)

    def _became_stale(self, span: _Span, number: int) -> None:
        """Count an entry of a span as stale; once more than half are, discard them."""
        span.stale += 1
        if 2 * span.stale <= len(span.held):
            return
        valid = dict.fromkeys(held for held in span.held if held.wake >> SPAN_BITS == number)
        self._in_spans -= len(span.held) - len(valid)
        span.held, span.stale = list(valid), 0
        if not valid:
            del self._spans[number]
            if len(self._order) > 2 * len(self._spans) + MIN_AGENDA_ENTRIES:
                self._order = sorted(self._spans)
