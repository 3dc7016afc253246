"""Each checker finds the violations of its promise, in histories made by hand, and no others."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.judge.checkers import ALL_SHARDS, verdict
from tests.judge.history import SECOND, Fault, FireSeen, History, Life, Operation, ScheduleSeen, Verb
from tests.judge.made_by_hand import EVERY_2S, at, fire, history
from tests.judge.matching import matched
from tests.judge.patterns import Pattern, Policies


def asked(made: History, verb: Verb, seconds: float, *, sequence: int | None = None, known: bool = True) -> None:
    """Let a publisher do something that takes a tenth of a second."""
    names = 1 if verb is Verb.DELETE else None
    made.operations.append(
        Operation(verb, "s.1", at(seconds), at(seconds + 0.1) if known else None, sequence, names=names)
    )


def is_kept(_made: History) -> None:
    """Change nothing."""


def was_late_in_a_fault(made: History) -> None:
    made.faults.append(Fault("partition", "i0", at(5), at(7)))
    made.fires[1] = fire(6, 16, late=1.5)


def was_missed_in_an_outage(made: History) -> None:
    made.lives = [Life("i0", at(0), at(5)), Life("i0", at(8.5), at(12))]
    made.fires = [fire(4, 14), fire(8, 18, late=0.6), fire(10, 20), fire(12, 22, late=0)]


def was_removed_with_unknown_outcome(made: History) -> None:
    asked(made, Verb.PURGE, 7, known=False)
    del made.fires[3]


def was_stored_with_unknown_outcome(made: History) -> None:
    made.operations[0].completed_at = made.operations[0].sequence = None


def was_never_stored(made: History) -> None:
    made.operations[0].completed_at = made.operations[0].sequence = None
    made.schedules, made.fires, made.remaining = [], [], set()


def was_repeated_after_it_was_consumed(made: History) -> None:
    made.terms = replace(made.terms, consumed=True, duplicate_window=2 * SECOND)
    made.fires.append(fire(6, 99, late=3))


def has_no_identity(made: History) -> None:
    made.fires = [replace(known, schedule_sequence=None, fire_time=None) for known in made.fires]


def was_stored_in_the_window_without_a_guard(made: History) -> None:
    made.terms = replace(made.terms, guard=False)
    asked(made, Verb.PURGE, 7.9)
    made.fires = [fire(4, 14), fire(6, 16), fire(8, 18, late=0.04)]
    made.remaining = set()


def was_held_by_a_node_on_its_way_to_another_stream(made: History) -> None:
    made.terms = replace(made.terms, guard=True, held_elsewhere=5 * SECOND)
    asked(made, Verb.PURGE, 7)
    made.faults.append(Fault("node-stop", None, at(5.5), at(9.5)))
    held = fire(6, 1_000_016, late=3)
    headers = tuple((f"X-{name}", value) for name, value in held.headers)
    made.fires = [fire(4, 14), replace(held, headers=headers, elsewhere=True)]
    made.remaining = set()


def was_held_by_a_node_and_is_guarded(made: History) -> None:
    was_held_by_a_node_on_its_way_to_another_stream(made)
    made.fires[1] = fire(6, 16, late=3)


def was_stored_in_the_window_on_what_had_landed(made: History) -> None:
    """Another schedule fires onto it; on streams with replicas there is no guard from then on."""
    was_stored_in_the_window_without_a_guard(made)
    made.terms = replace(made.terms, guard=True, lands_unguarded=True)
    landed = Operation(Verb.STORE, "s.2", at(1), at(1.1), 0, pattern=Pattern("at", at(7) // SECOND), target="s.1")
    made.operations.append(landed)
    made.schedules.append(ScheduleSeen("s.2", 0, at(1.05), b""))
    headers = (("Nats-Scheduler", "s.2"), ("Nats-Schedule-Next", "purge"))
    made.fires.append(FireSeen("s.2", 0, at(7), "s.1", at(7.001), 17, b"", headers))


def ended_with_its_last_fire(made: History) -> None:
    """Three fires are what its policies leave."""
    policies = Policies(start=at(5) // SECOND, end=at(11) // SECOND, limit=9)
    made.operations[0].pattern = replace(EVERY_2S, policies=policies)
    last = (("Nats-Scheduler", "s.1"), ("Nats-Schedule-Next", "purge"))
    made.fires = [fire(6, 16), fire(8, 18), replace(fire(10, 20), headers=last)]
    made.remaining = set()


def was_taken_over(made: History) -> None:
    """The holder dies at 5.2 s, another one lives all the time, and takes over 1.3 s later."""
    made.terms = replace(made.terms, divided=True)
    made.lives = [Life("i0", at(0), at(5.2)), Life("i1", at(0), at(12))]
    made.fires[1] = fire(6, 16, late=0.5)
    made.holders = {shard: ["i1"] for shard in ALL_SHARDS}


def was_taken_over_from_one_that_is_silent(made: History) -> None:
    was_taken_over(made)
    made.lives[0] = Life("i0", at(0), at(12))
    made.faults = [Fault("partition", "i0", at(5.2), at(12), silences=True)]


def was_held_up_until_a_later_one_stood_for_it(made: History) -> None:
    was_taken_over_from_one_that_is_silent(made)
    made.faults = [Fault("partition", "i0", at(5.2), at(10.5), silences=True)]
    made.fires[1] = fire(6, 21, late=4.6)


def was_held_by_one_in_trouble_that_is_heard(made: History) -> None:
    was_taken_over_from_one_that_is_silent(made)
    made.faults = [Fault("slow", "i0", at(5.2), at(7))]
    made.fires[1] = fire(6, 16, late=1.4)


def was_taken_over_when_that_could_be_written(made: History) -> None:
    was_taken_over(made)
    made.faults = [Fault("bucket silent", None, at(5.5), at(6.5), delays_only=True)]
    made.fires[1] = fire(6, 16, late=1.4)


@pytest.mark.parametrize(
    "change",
    [
        is_kept,
        was_held_up_until_a_later_one_stood_for_it,
        was_taken_over,
        was_taken_over_from_one_that_is_silent,
        was_held_by_one_in_trouble_that_is_heard,
        was_taken_over_when_that_could_be_written,
        was_late_in_a_fault,
        was_missed_in_an_outage,
        was_removed_with_unknown_outcome,
        was_stored_with_unknown_outcome,
        was_never_stored,
        was_repeated_after_it_was_consumed,
        has_no_identity,
        was_stored_in_the_window_without_a_guard,
        was_held_by_a_node_on_its_way_to_another_stream,
        was_stored_in_the_window_on_what_had_landed,
        ended_with_its_last_fire,
    ],
)
def test_what_the_promises_allow_is_no_violation(change: Callable[[History], None]) -> None:
    made = history()
    change(made)
    assert [str(violation) for violation in verdict(made)] == []


def is_missing(made: History) -> None:
    del made.fires[2]


def is_missing_without_identities(made: History) -> None:
    has_no_identity(made)
    del made.fires[2]


def has_vanished(made: History) -> None:
    made.remaining = set()


def is_doubled(made: History) -> None:
    made.fires.append(fire(8, 99, late=0.002))


def was_asked_for_by_nobody(made: History) -> None:
    made.fires.append(fire(7, 99))


def is_of_a_schedule_that_nobody_stored(made: History) -> None:
    made.fires.append(fire(8, 99, of=77))


def was_made_up_although_a_later_one_stands_for_it(made: History) -> None:
    was_missed_in_an_outage(made)
    made.fires.append(fire(6, 17, late=2.7))


def was_repeated_within_the_window(made: History) -> None:
    was_repeated_after_it_was_consumed(made)
    made.terms = replace(made.terms, duplicate_window=120 * SECOND)


def is_early(made: History) -> None:
    made.fires[2] = fire(8, 18, late=-0.001)


def has_another_body(made: History) -> None:
    made.fires[2] = replace(made.fires[2], body=b"two")


def says_another_next_fire(made: History) -> None:
    made.fires[2] = fire(8, 18, following=11)


def fired_after_its_replacement(made: History) -> None:
    asked(made, Verb.OVERWRITE, 7, sequence=17)
    del made.fires[3:]


def fired_after_its_removal(made: History) -> None:
    asked(made, Verb.DELETE, 7)
    del made.fires[3:]
    made.remaining = set()


def fired_long_after_its_removal_without_a_guard(made: History) -> None:
    was_stored_in_the_window_without_a_guard(made)
    made.fires[2] = fire(8, 18, late=0.06)


def fired_after_its_cancel(made: History) -> None:
    asked(made, Verb.CANCEL, 7, sequence=17)
    del made.fires[3:]
    made.remaining = set()


def is_still_stored_after_its_cancel(made: History) -> None:
    asked(made, Verb.CANCEL, 7, sequence=17)
    del made.fires[2:]


def is_late(made: History) -> None:
    made.fires[2] = fire(8, 18, late=0.9)


def was_taken_over_late(made: History) -> None:
    was_taken_over(made)
    made.fires[1] = fire(6, 16, late=0.9)


def was_taken_over_late_from_one_that_is_silent(made: History) -> None:
    was_taken_over_from_one_that_is_silent(made)
    made.fires[1] = fire(6, 16, late=0.9)


def was_late_although_nothing_was_to_be_written(made: History) -> None:
    made.faults = [Fault("bucket silent", None, at(5.5), at(7.5), delays_only=True)]
    made.fires[1] = fire(6, 16, late=1.4)


def has_two_holders(made: History) -> None:
    made.holders = {shard: ["i0", "i1"] if shard == 7 else ["i0"] for shard in ALL_SHARDS}


def has_no_holder(made: History) -> None:
    made.holders = {shard: ["i0"] for shard in ALL_SHARDS if shard != 7}


def has_restless_holders(made: History) -> None:
    has_no_holder(made)
    made.hand_overs = 11


def was_stored_in_the_window_although_nothing_had_landed(made: History) -> None:
    was_stored_in_the_window_on_what_had_landed(made)
    made.fires.pop()
    del made.operations[-1], made.schedules[-1]


def fired_beyond_its_last_fire(made: History) -> None:
    ended_with_its_last_fire(made)
    made.fires.append(fire(12, 22, late=0))


def fired_before_its_start(made: History) -> None:
    ended_with_its_last_fire(made)
    made.fires.append(fire(4, 14))


def is_stored_after_its_last_fire(made: History) -> None:
    ended_with_its_last_fire(made)
    made.operations[0].pattern = replace(EVERY_2S, policies=Policies(limit=1))
    made.fires = [replace(made.fires[-1], fire_time=at(4), stored_at=at(4.001), sequence=14)]
    made.remaining = {1}


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (was_held_by_a_node_and_is_guarded, "Gone"),
        (was_stored_in_the_window_although_nothing_had_landed, "Gone"),
        (fired_beyond_its_last_fire, "Unique"),
        (fired_before_its_start, "Unique"),
        (is_stored_after_its_last_fire, "Gone"),
        (has_restless_holders, "Divided"),
        (was_taken_over_late, "Live"),
        (was_taken_over_late_from_one_that_is_silent, "Live"),
        (was_late_although_nothing_was_to_be_written, "Live"),
        (has_two_holders, "Divided"),
        (has_no_holder, "Divided"),
        (is_missing, "Complete"),
        (is_missing_without_identities, "Complete"),
        (has_vanished, "Complete"),
        (is_doubled, "Unique"),
        (was_asked_for_by_nobody, "Unique"),
        (is_of_a_schedule_that_nobody_stored, "Unique"),
        (was_made_up_although_a_later_one_stands_for_it, "Unique"),
        (was_repeated_within_the_window, "Unique"),
        (is_early, "Timely"),
        (has_another_body, "Faithful"),
        (says_another_next_fire, "Faithful"),
        (fired_after_its_replacement, "Latest"),
        (fired_after_its_removal, "Gone"),
        (fired_long_after_its_removal_without_a_guard, "Gone"),
        (fired_after_its_cancel, "Gone"),
        (is_still_stored_after_its_cancel, "Gone"),
        (is_late, "Live"),
    ],
)
def test_a_broken_promise_is_called_by_its_name(change: Callable[[History], None], promise: str) -> None:
    made = history()
    change(made)
    found = verdict(made)
    assert {violation.promise for violation in found} == {promise}
    assert all(violation.schedule in ("s.1", "shard 7", "record") and violation.evidence for violation in found)


def test_silence_after_the_last_fault_is_neither_complete_nor_live() -> None:
    made = history()
    made.faults = [Fault("partition", "i0", at(3), at(5))]
    made.fires = []
    assert {violation.promise for violation in verdict(made)} == {"Complete", "Live"}


def test_a_candidate_is_taken_once_and_moves_on_for_another() -> None:
    assert matched({"a": [1, 2], "b": [1], "c": [1, 2]}) == {"b": 1, "a": 2}


@pytest.mark.parametrize(
    ("early", "is_early"),
    [
        (3.9, False),
        (4.1, True),
    ],
)
def test_a_fire_may_be_early_by_what_a_clock_was_ahead(early: float, *, is_early: bool) -> None:
    assert violations_of_a_clock_ahead(8, early) == (["Timely"] if is_early else [])


def test_no_fire_may_be_early_before_a_clock_was_ahead_or_once_it_showed_that_time_again() -> None:
    assert violations_of_a_clock_ahead(6, 2.5) == ["Timely"]
    assert violations_of_a_clock_ahead(10, 1) == ["Timely"]


def violations_of_a_clock_ahead(due: float, early: float) -> list[str]:
    """Let a fire be early where clocks were 4 s ahead from 3.8 s on, and what they showed had come by 9 s."""
    made = history()
    made.terms = replace(made.terms, clock_ahead=4 * SECOND)
    made.faults = [Fault("clock", None, at(3.8), at(9), ahead=4 * SECOND)]
    place = next(place for place, one in enumerate(made.fires) if one.fire_time == at(due))
    made.fires[place] = fire(due, made.fires[place].sequence, late=-early)
    return [violation.promise for violation in verdict(made)]
