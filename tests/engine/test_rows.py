"""A visit of the rows sees each schedule that is held all the time once, whatever changes meanwhile."""

from collections import Counter
from random import Random

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.roster import ROW_LENGTH, Roster
from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.schedule.patterns import At

MONTH = 1 << 51
"""In ns: far from now, which is 0."""
PATTERN, TERMS = At("@at", 0), Terms(ADR51, "t", None, "", False)


def held(sequence: int, subject: str = "") -> Held:
    return Held(subject or f"s.{sequence}", sequence, Definition(PATTERN, TERMS), 0)


def subjects_in_rows(roster: Roster) -> list[str]:
    return [one.subject for number in range(len(roster.rows)) for one in roster.rows[number].visit()]


def test_rows_hold_what_the_roster_holds_after_any_changes() -> None:
    random, roster, known = Random(7), Roster(), set[str]()
    for sequence in range(1, 20_000):
        subject = f"s.{random.randrange(1_500)}"
        if random.random() < 0.45:
            roster.remove(subject)
            known.discard(subject)
        else:
            roster.hold(held(sequence, subject))
            known.add(subject)
    assert sorted(subjects_in_rows(roster)) == sorted(known)
    places = [one.place for number in range(len(roster.rows)) for one in roster.rows[number].visit()]
    assert len(set(places)) == len(known)


def test_what_is_held_all_the_time_is_visited_once_and_what_is_replaced_is_too() -> None:
    random, roster = Random(8), Roster()
    for sequence in range(1, 10 * ROW_LENGTH):
        roster.hold(held(sequence))
    staying = [f"s.{number}" for number in range(1, 10 * ROW_LENGTH) if number % 3]
    replaced = set(random.sample(staying, 500))
    visited, sequence = Counter[str](), 100_000
    for number in range(len(roster.rows)):
        visited.update(one.subject for one in roster.rows[number].visit())
        for _ in range(60):  # schedules end, others begin, and some are replaced, while the visit rests
            sequence += 1
            roster.remove(f"s.{random.randrange(0, 10 * ROW_LENGTH, 3)}")
            roster.hold(held(sequence, f"new.{random.randrange(300)}"))
            roster.hold(held(sequence, random.choice(sorted(replaced))))
    assert {visited[subject] for subject in staying} == {1}


def test_rooms_that_became_free_are_filled_again() -> None:
    roster = Roster()
    for sequence in range(1, 5 * ROW_LENGTH + 1):
        roster.hold(held(sequence))
    for sequence in range(1, 5 * ROW_LENGTH + 1):
        roster.remove(f"s.{sequence}")
        roster.hold(held(sequence, f"again.{sequence}"))
    assert len(roster.rows) == 5


def test_a_schedule_that_is_held_again_stays_in_its_row() -> None:
    roster, one = Roster(), held(1)
    roster.hold(one)
    roster.hold(one)
    assert (subjects_in_rows(roster), one.place) == (["s.1"], 0)


def new(subject: str, sequence: int) -> tuple[str, int, Definition, int, int, int]:
    return subject, sequence, Definition(At(None, MONTH), TERMS), 0, MONTH, MONTH - 10


def test_full_rows_of_far_schedules_have_no_room_to_grow_and_change_like_others() -> None:
    random, roster = Random(9), Roster()
    known = {f"s.{number}": number for number in range(1, 4 * ROW_LENGTH + 1)}
    for subject, sequence in known.items():
        assert roster.hold_far(*new(subject, sequence)) is not None
    assert [len(roster.rows[number].far.sequences) for number in range(4)] == [ROW_LENGTH] * 4
    for sequence in range(10_000, 14_000):
        if random.random() < 0.5:
            subject = random.choice(list(known))
            del known[subject]
            assert roster.remove(subject) is not None
        else:
            known[f"s.{sequence}"] = sequence
            assert roster.hold_far(*new(f"s.{sequence}", sequence)) is not None
        subject = random.choice(list(known))
        assert roster.hold_far(*new(subject, sequence)) is None
        one = roster.on(subject)  # it is near, and far again at the end of the step
        assert one is not None
        assert (one.sequence, one.fire_time, one.terms) == (known[subject], MONTH, TERMS)
        roster.settle(())
    found = {one.subject: one.sequence for number in range(len(roster.rows)) for one in roster.rows[number].visit()}
    assert found == known
    assert roster.rows.far_count == len(known)
