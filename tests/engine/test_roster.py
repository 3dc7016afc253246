"""The agenda gives schedules back by time and then by sequence, whatever was changed meanwhile."""

from random import Random

from nats_scheduler.engine.roster import MIN_AGENDA_ENTRIES, NO_WAKE, Held, Roster
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.schedule.patterns import At

DEFINITION = Definition(ADR51, At("@at", 0), "t", None, "", False)


def held(sequence: int, subject: str = "") -> Held:
    return Held(subject or f"s.{sequence}", sequence, 0, DEFINITION, 0)


def woken(roster: Roster, now: int) -> list[int]:
    found = []
    while (one := roster.pop_woken(now)) is not None:
        found.append(one.sequence)
    return found


def test_the_woken_come_by_time_and_then_by_sequence() -> None:
    roster = Roster()
    for sequence, instant in [(3, 20), (1, 20), (2, 10), (4, 30)]:
        one = held(sequence)
        roster.hold(one)
        roster.wake(one, instant)
    assert roster.next_wake() == 10
    assert woken(roster, 20) == [2, 1, 3]
    assert roster.next_wake() == 30


def test_the_last_wake_counts() -> None:
    roster, one = Roster(), held(1)
    roster.hold(one)
    for instant in (10, 30, 20):
        roster.wake(one, instant)
    assert roster.next_wake() == 20
    assert (woken(roster, 100), roster.next_wake()) == ([1], None)


def test_what_rests_or_was_dropped_or_replaced_is_not_woken() -> None:
    roster = Roster()
    resting, dropped, replaced = held(1), held(2), held(3, "s.same")
    for one in (resting, dropped, replaced):
        roster.hold(one)
        roster.wake(one, 10)
    roster.rest(resting)
    assert roster.drop("s.2") is dropped
    roster.hold(held(4, "s.same"))
    assert woken(roster, 100) == []
    assert replaced.wake == NO_WAKE
    assert roster.exactly("s.same", 3) is None


def test_a_rebuilt_agenda_keeps_the_order_and_stays_bounded() -> None:
    random, roster = Random(1), Roster()
    everyone = [held(sequence) for sequence in range(50)]
    for one in everyone:
        roster.hold(one)
    for _ in range(20 * MIN_AGENDA_ENTRIES):
        roster.wake(random.choice(everyone), random.randrange(100))
        assert len(roster._agenda) <= 2 * len(roster) + MIN_AGENDA_ENTRIES
    expected = sorted((one.wake, one.sequence) for one in everyone if one.wake != NO_WAKE)
    assert woken(roster, 100) == [sequence for _instant, sequence in expected]


def test_two_lives_of_one_message_do_not_collide_in_the_agenda() -> None:
    roster = Roster()
    for _ in range(3):
        one = held(1)
        roster.hold(one)
        roster.wake(one, 10)
    assert woken(roster, 10) == [1]
