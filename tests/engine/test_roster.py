"""The agenda returns schedules by time and then by sequence, whatever was changed meanwhile."""

from array import array
from random import Random

import pytest

from nats_scheduler.engine.holding.far import FarRow
from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.roster import MAX_MOVED_PER_CALL, MIN_AGENDA_ENTRIES, SPAN_BITS, Roster
from nats_scheduler.engine.sharing.shards import subject_hash
from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.schedule.patterns import At

SUBJECTS = 40
PATTERN, TERMS = At("@at", 0), Terms(ADR51, "t", None, "", False)


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


def woken(roster: Roster, now: int) -> list[int]:
    """Return what is woken at `now`: step by step, as an engine does, until nothing is due any more."""
    found = []
    while True:
        one = pop(roster, now, 3)
        found += [held.sequence for held in one]
        wake = roster.next_wake()
        if not one and (wake is None or wake > now or wake == roster._agenda.first()):
            return found


def pop(roster: Roster, now: int, most: int) -> list[Held]:
    """Take what is woken in one step."""
    roster.comes_to(now)
    found = roster.pop_woken(now, most)
    roster.settle(())
    return found


def test_the_woken_come_by_time_and_then_by_sequence() -> None:
    roster = NearRoster()
    for sequence, instant in [(3, 20), (1, 20), (2, 10), (4, 30)]:
        one = held(sequence)
        roster.hold(one)
        roster.wake(one, instant)
    assert roster.next_wake() == 10
    assert woken(roster, 20) == [2, 1, 3]
    assert roster.next_wake() == 30


def test_the_last_wake_counts() -> None:
    roster, one = NearRoster(), held(1)
    roster.hold(one)
    for instant in (10, 30, 20):
        roster.wake(one, instant)
    assert roster.next_wake() == 20
    assert (woken(roster, 100), roster.next_wake()) == ([1], None)


def test_what_rests_or_was_dropped_or_replaced_is_not_woken() -> None:
    roster = NearRoster()
    resting, dropped, replaced = held(1), held(2), held(3, "s.same")
    for one in (resting, dropped, replaced):
        roster.hold(one)
        roster.wake(one, 10)
    roster.cancel_wake(resting)
    assert roster.remove("s.2") is dropped
    roster.hold(held(4, "s.same"))
    assert woken(roster, 100) == []
    assert replaced.wake == NO_WAKE
    assert roster.exactly("s.same", 3) is None


def test_a_rebuilt_agenda_keeps_the_order_and_stays_bounded() -> None:
    random, roster = Random(1), NearRoster()
    everyone = [held(sequence) for sequence in range(50)]
    for one in everyone:
        roster.hold(one)
    for _ in range(20 * MIN_AGENDA_ENTRIES):
        roster.wake(random.choice(everyone), random.randrange(100))
        assert len(roster._agenda) <= 2 * len(roster) + MIN_AGENDA_ENTRIES
    expected = sorted((one.wake, one.sequence) for one in everyone if one.wake != NO_WAKE)
    assert woken(roster, 100) == [sequence for _instant, sequence in expected]


def test_two_lives_of_one_message_do_not_collide_in_the_agenda() -> None:
    roster = NearRoster()
    for _ in range(3):
        one = held(1)
        roster.hold(one)
        roster.wake(one, 10)
    assert woken(roster, 10) == [1]


def fill_row(roster: Roster, first: int, wakes: list[int]) -> None:
    """Fill a row with schedules that are woken at these instants; the first one has the sequence `first`."""
    row, hashes = FarRow(roster.rows.kinds, 0), array("I")
    for place, wake in enumerate(wakes):
        one = held(first + place)
        one.wake = wake
        assert row.pack(place, one)
        hashes.append(subject_hash(one.subject.encode()))
    columns = row.columns()
    assert columns is not None
    roster.fill(columns, hashes, 0)


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
    assert [one.sequence for one in pop(roster, 10 * span, 3)] == [1]
    assert [woken(roster, 20 * span - 1), woken(roster, 20 * span)] == [[], [2]]


@pytest.mark.parametrize("kind", [NearRoster, FarRoster, FilledRoster])
@pytest.mark.parametrize("seed", range(20))
def test_far_and_near_give_the_order_of_one_list(seed: int, kind: type[Roster]) -> None:
    """Wake, cancel, remove and replace at random over many spans while time passes; a list is the reference."""
    random, roster, now = Random(seed), kind(), random_start(seed)
    waking = fill(roster, random, now) if kind is FilledRoster else {}
    roster.comes_to(now)
    sequence = SUBJECTS
    for _ in range(3_000):
        subject = f"s.{1 + random.randrange(SUBJECTS)}"
        one, act = roster.on(subject), random.random()
        if one is None or act < 0.1:
            sequence += 1
            one = held(sequence, subject)
            roster.hold(one)
            waking.pop(subject, None)
        if act < 0.7:
            instant = now + random.randrange(-(1 << SPAN_BITS), 1 << random.choice((20, SPAN_BITS, SPAN_BITS + 5)))
            roster.wake(one, instant)
            waking[subject] = instant, one.sequence
        elif act < 0.8:
            roster.cancel_wake(one)
            waking.pop(subject, None)
        elif act < 0.9:
            roster.remove(subject)
            waking.pop(subject, None)
        else:
            roster.settle(())
            now += random.randrange(1 << random.choice((10, SPAN_BITS, SPAN_BITS + 4)))
            roster.comes_to(now)
            # A message concerns it in the step in which others are woken.
            roster.on(f"s.{1 + random.randrange(SUBJECTS)}")
            due = sorted(wake for wake in waking.values() if wake[0] <= now)
            assert woken(roster, now) == [number for _instant, number in due], f"seed {seed}"
            waking = {subject: wake for subject, wake in waking.items() if wake[0] > now}
        roster.settle(())
        earliest = min((instant for instant, _sequence in waking.values()), default=None)
        wake = roster.next_wake()
        assert earliest is None or (wake is not None and wake <= earliest), f"seed {seed}"
        assert len(roster._agenda) + roster._in_spans <= 2 * len(roster) + MIN_AGENDA_ENTRIES


def test_spans_that_have_passed_come_near_one_after_the_other() -> None:
    """A start after an outage must not move all overdue entries in one call."""
    roster = NearRoster()
    for sequence in range(30):
        one = held(sequence)
        roster.hold(one)
        roster.wake(one, (sequence % 3 + 1) << SPAN_BITS)
    assert len(pop(roster, 9 << SPAN_BITS, 1)) == 1
    assert (len(roster._agenda), roster._in_spans) == (9, 20)
    assert woken(roster, 9 << SPAN_BITS) == [*range(3, 30, 3), *range(1, 30, 3), *range(2, 30, 3)]


def test_a_herd_whose_span_has_passed_is_brought_near_in_pieces() -> None:
    """No schedule of the span is woken before the rest is moved, since the rest may be due earlier."""
    roster, count = NearRoster(), 3 * MAX_MOVED_PER_CALL
    for sequence in range(count):
        one = held(sequence)
        roster.hold(one)
        roster.wake(one, (5 << SPAN_BITS) + count - sequence)
    now = 7 << SPAN_BITS
    for pieces in (1, 2):
        assert pop(roster, now, 1) == []
        assert len(roster._agenda) == pieces * MAX_MOVED_PER_CALL
        wake = roster.next_wake()
        assert wake is not None
        assert wake <= now
    assert woken(roster, now) == list(reversed(range(count)))


def test_what_is_postponed_again_and_again_leaves_little_behind() -> None:
    """Neither entries nor spans: a fleet is replaced as a whole, and a schedule's wake is renewed for ever."""
    random, roster = Random(2), NearRoster()
    everyone = [held(sequence) for sequence in range(50)]
    for one in everyone:
        roster.hold(one)
    for number in range(20 * MIN_AGENDA_ENTRIES):
        roster.wake(random.choice(everyone), (1_000 + number // random.choice((1, 100))) << SPAN_BITS)
        assert sum(len(span.held) for span in roster._spans.values()) == roster._in_spans <= 2 * len(roster)
        assert len(roster._spans) <= len(roster)
        assert len(roster._order) <= 2 * len(roster) + MIN_AGENDA_ENTRIES + 1
    expected = sorted((one.wake, one.sequence) for one in everyone if one.wake != NO_WAKE)
    assert woken(roster, 1 << 50) == [sequence for _instant, sequence in expected]


def random_start(seed: int) -> int:
    """Begin at the epoch or in our time."""
    return 0 if seed % 2 else 1_790_000_000_000_000_000


def test_a_far_herd_is_brought_near_in_pieces_before_its_time() -> None:
    roster, due = NearRoster(), 5 << SPAN_BITS
    for sequence in range(3 * MAX_MOVED_PER_CALL):
        one = held(sequence)
        roster.hold(one)
        roster.wake(one, due)
    before = due - (1 << SPAN_BITS)
    assert (pop(roster, before - 1, 1), len(roster._agenda)) == ([], 0)
    for pieces in (1, 2, 3):
        assert roster.next_wake() == due
        assert pop(roster, before, 1) == []
        assert len(roster._agenda) == pieces * MAX_MOVED_PER_CALL
    assert woken(roster, due) == list(range(3 * MAX_MOVED_PER_CALL))
