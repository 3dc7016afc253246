"""The roster wakes schedules by time and by sequence, and a visit sees each once, whatever changes meanwhile."""

import sys
from collections import Counter
from itertools import count as numbers_from
from itertools import takewhile
from random import Random

import pytest

from nats_scheduler.engine.holding.far import (
    BUCKETS_PER_UNIT,
    FarEntry,
    FarRow,
    SubjectIndex,
    Window,
    index_hash,
    kind_and_text,
)
from nats_scheduler.engine.holding.held import NO_EXPIRY, NO_WAKE, Held
from nats_scheduler.engine.holding.roster import MAX_MOVED_PER_CALL, MIN_AGENDA_ENTRIES, ROW_LENGTH, SPAN_BITS, Roster
from nats_scheduler.engine.views.view import PLACES_PER_UNIT, visit
from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import At
from tests.harness.seeds import generator, seeds

SUBJECTS = 40
PATTERN, TERMS = At("@at", 0), Terms(ADR51, "t", None, "", False)
NOW = 1_790_000_000 * SECOND
FAR = NOW + 3_600 * SECOND
MONTH = 1 << 51
"""In ns: far from 0, where a roster begins."""


class NearRoster(Roster):
    """A roster in which nothing is ever far."""

    far_bits = 62


class FarRoster(Roster):
    """A roster in which everything is far that is woken in some seconds."""

    far_bits = 31


class FilledRoster(FarRoster):
    """A roster that begins with rows of far schedules."""


def held(sequence: int, subject: str = "") -> Held:
    return Held(subject or f"s.{sequence}", sequence, Definition(PATTERN, TERMS), 0)


def waking(roster: Roster, sequence: int, instant: int, subject: str = "") -> Held:
    """Hold a schedule that is woken at an instant."""
    one = held(sequence, subject)
    roster.hold(one)
    roster.wake(one, instant)
    return one


def pop(roster: Roster, now: int, most: int = 3) -> list[int]:
    """Take what is woken in one step."""
    roster.comes_to(now)
    found = roster.pop_woken(now, most)
    roster.settle(())
    return [one.sequence for one in found]


def woken(roster: Roster, now: int) -> list[int]:
    """Return what is woken at `now`: step by step, as an engine does, until nothing is due any more."""
    found, steps_without = [], 0
    while steps_without < 20:  # a wake that has come may be of an entry that is stale
        one = pop(roster, now)
        found += one
        steps_without = 0 if one else steps_without + 1
        wake = roster.next_wake()
        if not one and (wake is None or wake > now):
            break
    return found


def ordered(schedules: list[Held]) -> list[int]:
    """Return the sequences of those that are woken, by time and then by sequence."""
    return [one.sequence for one in sorted(schedules, key=lambda one: (one.wake, one.sequence)) if one.wake != NO_WAKE]


# -- who is woken when ------------------------------------------------------------------------------------------------


def test_the_woken_come_by_time_and_then_by_sequence_and_the_last_wake_counts() -> None:
    roster = NearRoster()
    for sequence, instant in [(3, 20), (1, 20), (2, 10), (4, 30)]:
        waking(roster, sequence, instant)
    assert roster.next_wake() == 10
    assert woken(roster, 20) == [2, 1, 3]
    assert roster.next_wake() == 30
    one = waking(roster, 5, 10)
    for instant in (60, 50):
        roster.wake(one, instant)
    assert (woken(roster, 49), roster.next_wake()) == ([4], 50)
    assert (woken(roster, 100), roster.next_wake()) == ([5], None)


def test_what_rests_or_was_dropped_or_replaced_is_not_woken() -> None:
    roster = NearRoster()
    resting, dropped, replaced = waking(roster, 1, 10), waking(roster, 2, 10), waking(roster, 3, 10, "s.same")
    roster.cancel_wake(resting)
    assert roster.remove("s.2") is dropped
    roster.hold(held(4, "s.same"))
    assert woken(roster, 100) == []
    assert replaced.wake == NO_WAKE
    assert roster.exactly("s.same", 3) is None


def test_two_lives_of_one_message_are_woken_as_one() -> None:
    roster = NearRoster()
    for _ in range(3):
        waking(roster, 1, 10)
    assert woken(roster, 10) == [1]


@pytest.mark.parametrize("bits", [0, SPAN_BITS], ids=["in order", "in spans"])
def test_what_is_postponed_again_and_again_leaves_little_behind(bits: int) -> None:
    """A fleet is replaced as a whole, and a schedule's wake is renewed for ever."""
    random, roster = generator(bits), NearRoster()
    everyone = [held(sequence) for sequence in range(50)]
    for one in everyone:
        roster.hold(one)
    before, most = sum(map(sys.getrefcount, everyone)), 2 * len(roster) + (0 if bits else MIN_AGENDA_ENTRIES)
    for number in range(4 * MIN_AGENDA_ENTRIES):
        roster.wake(random.choice(everyone), (1_000 + number // random.choice((1, 100))) << bits)
        if number % 64 == 0:
            assert sum(map(sys.getrefcount, everyone)) - before <= most
    expected = ordered(everyone)
    assert woken(roster, 1 << 50) == expected


def fill_row(roster: Roster, first: int, wakes: list[int]) -> None:
    """Fill a row with schedules that are woken at these instants; the first one has the sequence `first`."""
    row = FarRow(roster.rows.kinds, 0)
    for place, wake in enumerate(wakes):
        one = held(first + place)
        one.wake = wake
        assert row.pack(place, one)
    columns = row.columns()
    assert columns is not None
    roster.fill(columns)


def fill(roster: Roster, random: Random, now: int) -> dict[str, tuple[int, int]]:
    """Fill some rows; returns when each of the schedules is woken, and its sequence."""
    wakes = [now + random.randrange(1 << (SPAN_BITS + 5)) for _ in range(SUBJECTS)]
    first = 0
    while first < SUBJECTS:
        end = random.randrange(first, SUBJECTS) + 1
        fill_row(roster, first + 1, wakes[first:end])
        first = end
    return {f"s.{sequence}": (wake, sequence) for sequence, wake in enumerate(wakes, 1)}


def test_what_is_fetched_while_its_row_is_entered_is_woken() -> None:
    roster, span = FilledRoster(), 1 << FilledRoster.far_bits
    fill_row(roster, 1, [10 * span, 20 * span])
    roster.comes_to(9 * span)
    assert roster.peek("s.2") is not roster.on("s.2"), "it is far"
    assert pop(roster, 10 * span) == [1]
    assert [woken(roster, 20 * span - 1), woken(roster, 20 * span)] == [[], [2]]


@pytest.mark.parametrize("kind", [NearRoster, FarRoster, FilledRoster])
def test_far_and_near_give_the_order_of_one_list(kind: type[Roster]) -> None:
    """Wake, cancel, remove and replace at random over many spans while time passes; a list is the reference."""
    for seed in seeds(4):
        roster = kind()
        compare_with_a_list(roster, Random(seed), 0 if seed % 2 else NOW, f"seed {seed}")


def compare_with_a_list(roster: Roster, random: Random, now: int, which: str) -> None:
    expected = fill(roster, random, now) if isinstance(roster, FilledRoster) else {}
    roster.comes_to(now)
    sequence = SUBJECTS
    for _ in range(1_000):
        subject = f"s.{1 + random.randrange(SUBJECTS)}"
        one, act = roster.on(subject), random.random()
        if one is None or act < 0.1:
            sequence += 1
            one = held(sequence, subject)
            roster.hold(one)
            expected.pop(subject, None)
        if act < 0.7:
            instant = now + random.randrange(-(1 << SPAN_BITS), 1 << random.choice((20, SPAN_BITS, SPAN_BITS + 5)))
            roster.wake(one, instant)
            expected[subject] = instant, one.sequence
        elif act < 0.9:
            if act < 0.8:
                roster.cancel_wake(one)
            else:
                roster.remove(subject)
            expected.pop(subject, None)
        else:
            roster.settle(())
            now += random.randrange(1 << random.choice((10, SPAN_BITS, SPAN_BITS + 4)))
            roster.comes_to(now)
            # A message concerns it in the step in which others are woken.
            roster.on(f"s.{1 + random.randrange(SUBJECTS)}")
            due = sorted(wake for wake in expected.values() if wake[0] <= now)
            assert woken(roster, now) == [number for _instant, number in due], which
            expected = {subject: wake for subject, wake in expected.items() if wake[0] > now}
        roster.settle(())
        earliest = min((instant for instant, _sequence in expected.values()), default=None)
        wake = roster.next_wake()
        assert earliest is None or (wake is not None and wake <= earliest), which


def calls_without_a_wake(roster: Roster, now: int) -> int:
    """Return how many calls give nothing before the first one that gives something."""
    return sum(1 for _ in takewhile(lambda found: not found, (pop(roster, now, 1) for _ in range(10))))


def test_a_herd_is_brought_near_in_pieces_after_its_time_and_before_it() -> None:
    """No schedule of the span is woken before the rest is moved, since the rest may be due earlier."""
    count, due = 2 * MAX_MOVED_PER_CALL + 1, 5 << SPAN_BITS
    late, far = NearRoster(), NearRoster()
    for sequence in range(count):
        waking(late, sequence, due + count - sequence)
        waking(far, sequence, due)
    assert calls_without_a_wake(late, 7 << SPAN_BITS) == 2
    assert woken(late, 7 << SPAN_BITS) == list(reversed(range(count - 1)))
    before = due - (1 << SPAN_BITS)
    assert pop(far, before - 1, 1) == []
    for _ in range(3):
        assert (far.next_wake(), pop(far, before, 1)) == (due, [])
    assert calls_without_a_wake(far, due) == 0
    assert woken(far, due) == list(range(1, count))


# -- rows and visits --------------------------------------------------------------------------------------------------


def in_rows(roster: Roster) -> list[Held]:
    return [one for number in range(len(roster.rows)) for one in roster.rows[number].visit()]


def test_rows_hold_what_the_roster_holds_after_any_changes_and_fill_rooms_that_became_free() -> None:
    random, roster, known = generator("rows"), Roster(), dict[str, int]()
    for sequence in range(1, 3_000):
        subject = f"s.{random.randrange(600)}"
        if random.random() < 0.45:
            roster.remove(subject)
            known.pop(subject, None)
        else:
            roster.hold(held(sequence, subject))
            known[subject] = sequence
    assert {one.subject: one.sequence for one in in_rows(roster)} == known
    assert len({one.place for one in in_rows(roster)}) == len(in_rows(roster)) == len(known)
    full = Roster()
    for sequence in range(1, 3 * ROW_LENGTH + 1):
        full.hold(held(sequence))
    for sequence in range(1, 3 * ROW_LENGTH + 1):
        full.remove(f"s.{sequence}")
        full.hold(held(sequence, f"again.{sequence}"))
    assert len(full.rows) == 3


def test_a_schedule_that_is_held_again_stays_in_its_row() -> None:
    roster, one = Roster(), held(1)
    roster.hold(one)
    roster.hold(one)
    assert ([held.subject for held in in_rows(roster)], one.place) == (["s.1"], 0)


def hold_new(roster: Roster, subject: str, sequence: int) -> bool:
    """Hold a far schedule, if none is on its subject."""
    key = subject.encode()
    packed = kind_and_text(subject, At(None, MONTH), TERMS, MONTH)
    assert packed is not None
    if roster.has(subject, key):
        return False
    roster.hold_far([FarEntry(*packed, sequence, 0, MONTH, MONTH - 10, NO_EXPIRY)])
    return True


def test_full_rows_of_far_schedules_have_no_room_to_grow_and_change_like_others() -> None:
    random, roster = generator("far rows"), Roster()
    known = {f"s.{number}": number for number in range(1, 2 * ROW_LENGTH + 1)}
    for subject, sequence in known.items():
        assert hold_new(roster, subject, sequence)
    assert [len(roster.rows[number].far.sequences) for number in range(2)] == [ROW_LENGTH] * 2
    for sequence in range(10_000, 11_500):
        if random.random() < 0.5:
            subject = random.choice(list(known))
            del known[subject]
            assert roster.remove(subject) is not None
        else:
            known[f"s.{sequence}"] = sequence
            assert hold_new(roster, f"s.{sequence}", sequence)
        subject = random.choice(list(known))
        assert not hold_new(roster, subject, sequence)
        one = roster.on(subject)  # it is near, and far again at the end of the step
        assert one is not None
        assert (one.sequence, one.fire_time, one.terms) == (known[subject], MONTH, TERMS)
        roster.settle(())
    assert {one.subject: one.sequence for one in in_rows(roster)} == known
    assert roster.rows.far_count == len(known)


def put(roster: Roster, number: int, sequence: int, fire_time: int = FAR) -> None:
    one = Held(f"s.{number}", sequence, Definition(At(None, fire_time), TERMS), NOW)
    roster.hold(one)
    roster.wake(one, fire_time)


def filled(count: int) -> Roster:
    """Make a roster of which a third is near."""
    roster = Roster()
    roster.comes_to(NOW)
    for number in range(count):
        put(roster, number, number + 1, FAR if number % 3 else NOW + 5 * SECOND)
    roster.settle(())
    assert 0 < roster.rows.far_count < count
    return roster


def test_each_that_stays_is_visited_once_while_others_come_go_become_near_and_become_far() -> None:
    random, roster, count = generator("visit"), filled(2_000), 2_000
    staying, visited, sequence = set(range(0, count, 2)), Counter[str](), count
    for seen in visit(roster.rows, NOW):
        if seen is not None:
            visited[seen.subject] += 1
            assert roster.peek(seen.subject) is not None
            continue
        for _ in range(20):
            number, act, sequence = random.randrange(count), random.random(), sequence + 1
            one = roster.on(f"s.{number}")  # what was far is near until the end of the step
            if one is not None and act < 0.3:
                roster.wake(one, random.choice((FAR, NOW + 5 * SECOND)))
            elif act < 0.6 and number not in staying:
                roster.remove(f"s.{number}")
            elif act < 0.8:
                put(roster, number, sequence)
        roster.settle(())
    assert {visited[f"s.{number}"] for number in staying} == {1}


def test_a_row_that_is_not_full_does_not_end_the_visit() -> None:
    roster = FilledRoster()
    for first, count in ((1, 3), (4, PLACES_PER_UNIT), (100, 2)):
        fill_row(roster, first, [FAR] * count)
    seen = [one.sequence for one in visit(roster.rows, NOW) if one is not None]
    assert seen == [*range(1, 4 + PLACES_PER_UNIT), 100, 101]


def test_what_was_replaced_or_removed_while_the_visit_rested_is_not_shown() -> None:
    roster = filled(2 * PLACES_PER_UNIT)
    seen = visit(roster.rows, NOW)
    assert next(seen) is not None
    for number in range(1, 10):
        roster.remove(f"s.{number}")
    put(roster, 10, 5_000)
    roster.settle(())
    rest = [one for one in seen if one is not None]
    assert not {one.subject for one in rest} & {f"s.{number}" for number in range(1, 10)}
    assert [one.sequence for one in rest if one.subject == "s.10"] in ([], [5_000])


def test_a_window_leaves_out_far_schedules_only() -> None:
    roster = filled(100)
    shown = [one for one in visit(roster.rows, NOW, Window(NOW, FAR + 1)) if one is not None]
    assert len(shown) == len(roster) - roster.rows.far_count
    assert len([one for one in visit(roster.rows, NOW, Window(NOW, FAR)) if one is not None]) == 100


# -- the index of subjects --------------------------------------------------------------------------------------------


class Indexed:
    """An index, and the subjects at its places."""

    def __init__(self, *subjects: bytes) -> None:
        self.subjects: dict[int, bytes] = {}
        self.index = SubjectIndex(self.subjects.__getitem__)
        for place, subject in enumerate(subjects):
            self.add(subject, place)

    def add(self, subject: bytes, place: int) -> None:
        self.subjects[place] = subject
        self.index.add(subject, place)

    def find(self, subject: bytes) -> int | None:
        return self.index.find(subject)

    def pop(self, subject: bytes) -> int | None:
        place = self.index.pop(subject)
        if place is not None:
            del self.subjects[place]
        return place


def test_the_index_finds_what_a_dictionary_finds() -> None:
    random, indexed, known = generator("index"), Indexed(), dict[bytes, int]()
    for step in range(12_000):
        subject = b"orders.%d" % random.randrange(5_000)
        if subject not in known and random.random() < (0.8 if step < 9_000 else 0.2):
            known[subject] = step
            indexed.add(subject, step)
        elif random.random() < 0.3:
            assert indexed.pop(subject) == known.pop(subject, None)
        else:
            assert indexed.find(subject) == known.get(subject)
    assert all(indexed.find(subject) == place for subject, place in known.items())


def test_subjects_with_the_same_hash_are_told_apart() -> None:
    seen = dict[int, bytes]()
    one, other = next(
        (seen[hashed], subject)
        for subject in map(b"s.%d".__mod__, numbers_from())
        if seen.setdefault(hashed := index_hash(subject), subject) != subject
    )
    indexed = Indexed(one, other)
    assert (indexed.find(one), indexed.find(other)) == (0, 1)
    assert (indexed.pop(one), indexed.find(one), indexed.find(other)) == (0, None, 1)


def test_a_place_that_looks_like_a_hash_is_none() -> None:
    wanted = b"wanted"
    indexed = Indexed(b"before")
    indexed.add(b"other", index_hash(wanted))
    assert (indexed.find(wanted), indexed.pop(wanted)) == (None, None)
    indexed.add(wanted, 7)
    assert (indexed.find(wanted), indexed.pop(wanted), indexed.find(b"other")) == (7, 7, index_hash(wanted))


def test_the_index_is_emptied_in_pieces_and_can_be_used_again() -> None:
    indexed = Indexed(*(b"s.%d" % place for place in range(5 * BUCKETS_PER_UNIT)))
    assert sum(1 for _ in indexed.index.emptied()) >= 3
    assert (indexed.find(b"s.1"), indexed.pop(b"s.1")) == (None, None)
    indexed.add(b"s.1", 1)
    assert indexed.find(b"s.1") == 1
