"""The findings of the checkers about schedules and fires that expire, and about sources, in histories made by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.judge.checkers import verdict
from tests.judge.history import SECOND, Fault, History, Life, Operation, ScheduleSeen, SourceSeen, Verb
from tests.judge.made_by_hand import at, fire, history
from tests.judge.patterns import Pattern


def expired(made: History) -> None:
    """Let the schedule live until 7 s, on a server that acts on TTLs."""
    made.operations[0].ttl = 5 * SECOND
    made.fires = [fire(4, 14), fire(6, 16)]
    made.remaining = set()


def expired_while_nobody_could_fire(made: History) -> None:
    """Let the sidecar act on the TTL after an outage: what was due before is made up."""
    expired(made)
    made.terms = replace(made.terms, guard=False)
    made.lives = [Life("i0", at(0), at(5)), Life("i0", at(8.5), at(12))]
    made.fires[1] = fire(6, 16, late=3.4)


def has_fires_that_expire(made: History) -> None:
    made.operations[0].fire_ttl = 3
    ttl = (("Nats-TTL", "3s"),)
    made.fires = [replace(known, headers=(*known.headers, *ttl)) for known in made.fires]
    made.remaining_fires = {known.sequence for known in made.fires if known.stored_at >= at(9)}


def was_repeated_after_it_expired(made: History) -> None:
    has_fires_that_expire(made)
    made.terms = replace(made.terms, duplicate_window=3 * SECOND)
    made.fires.append(replace(made.fires[1], sequence=99, stored_at=at(9.5)))


def samples(made: History) -> None:
    """Let it sample a source that holds nothing, from 5 s on something, and from 9 s on nothing again."""
    made.operations[0].source = "src.1"
    sampled = (("X-Sample", "1"),)
    made.sources = [SourceSeen("src.1", at(5), b"sample", sampled), SourceSeen("src.1", at(9), None)]
    for index in (1, 2):
        made.fires[index] = replace(made.fires[index], body=b"sample", headers=(*sampled, *made.fires[index].headers))


def samples_what_lay_there_when_it_was_due(made: History) -> None:
    samples(made)
    made.sources[1] = replace(made.sources[1], since=at(8.0005))


def was_uncovered(made: History) -> None:
    """Let it be replaced at 6.5 s by a version that expires at 7.5 s, and then fire again."""
    made.operations.append(
        Operation(Verb.STORE, "s.1", at(6.4), at(6.6), 17, None, Pattern("every", 20), "t.1", b"two", ttl=SECOND)
    )
    made.schedules.append(ScheduleSeen("s.1", 17, at(6.5), b"two"))


@pytest.mark.parametrize(
    "change",
    [
        expired,
        expired_while_nobody_could_fire,
        has_fires_that_expire,
        was_repeated_after_it_expired,
        samples,
        samples_what_lay_there_when_it_was_due,
        was_uncovered,
    ],
)
def test_what_the_promises_allow_is_no_violation(change: Callable[[History], None]) -> None:
    made = history()
    change(made)
    assert [str(violation) for violation in verdict(made)] == []


def fired_for_a_time_after_its_ttl(made: History) -> None:
    expired(made)
    made.terms = replace(made.terms, guard=False)
    made.fires.append(fire(8, 18))


def fired_after_its_ttl_on_a_guarded_stream(made: History) -> None:
    expired(made)
    made.fires[1] = fire(6, 16, late=1.1)
    made.faults = [Fault("partition", "i0", at(5), at(7))]


def is_still_stored_after_its_ttl(made: History) -> None:
    expired(made)
    made.remaining = {1}


def is_missing_before_its_ttl(made: History) -> None:
    expired(made)
    del made.fires[1]


def was_not_made_up_before_it_was_removed(made: History) -> None:
    expired_while_nobody_could_fire(made)
    del made.fires[1]


def has_a_fire_that_outlived_its_ttl(made: History) -> None:
    has_fires_that_expire(made)
    made.remaining_fires = {known.sequence for known in made.fires}


def has_a_fire_that_was_removed_early(made: History) -> None:
    has_fires_that_expire(made)
    made.remaining_fires = set()


def was_repeated_before_it_expired(made: History) -> None:
    was_repeated_after_it_expired(made)
    made.fires[-1] = replace(made.fires[-1], stored_at=at(8.9))


def has_another_header(made: History) -> None:
    made.fires[2] = replace(made.fires[2], headers=(("Nats-Schedule", "x"), *made.fires[2].headers))


def sampled_what_had_been_there(made: History) -> None:
    samples(made)
    made.sources[1] = replace(made.sources[1], since=at(7))


def sampled_what_came_later(made: History) -> None:
    samples(made)
    made.sources[0] = replace(made.sources[0], since=at(7))


def fired_before_it_was_uncovered(made: History) -> None:
    was_uncovered(made)
    made.operations[-1].ttl = 3 * SECOND


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (fired_for_a_time_after_its_ttl, "Gone"),
        (fired_after_its_ttl_on_a_guarded_stream, "Gone"),
        (is_still_stored_after_its_ttl, "Gone"),
        (is_missing_before_its_ttl, "Complete"),
        (was_not_made_up_before_it_was_removed, "Complete"),
        (has_a_fire_that_outlived_its_ttl, "Gone"),
        (has_a_fire_that_was_removed_early, "Complete"),
        (was_repeated_before_it_expired, "Unique"),
        (has_another_header, "Faithful"),
        (sampled_what_had_been_there, "Faithful"),
        (sampled_what_came_later, "Faithful"),
        (fired_before_it_was_uncovered, "Latest"),
    ],
)
def test_a_broken_promise_is_called_by_its_name(change: Callable[[History], None], promise: str) -> None:
    made = history()
    change(made)
    assert {violation.promise for violation in verdict(made)} == {promise}
