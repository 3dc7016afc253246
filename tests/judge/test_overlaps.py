"""The judge of overlaps, on histories made by hand: fires of 4 to 12 s, each two seconds, and their worker.

The fire of a due instant `d` has the sequence `10 + d`.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.judge.checkers import verdict
from tests.judge.history import EVERYTHING, SECOND, FireSeen, History, Life, Operation, Verb
from tests.judge.made_by_hand import at, fire, history
from tests.judge.patterns import Pattern, Policies

SOON = 0.3
"""The time (s) that the work on a fire takes unless a test says otherwise."""


def worked(overlap: str, finished: Mapping[int, float | None], *fires: FireSeen, timeout: int | None = None) -> History:
    """Make a history with these fires; `finished` says when the work on a fire ended, of those that took longer."""
    made = history()
    policies = Policies(overlap=overlap, consumer="worker-1", timeout=timeout)
    made.operations[0].pattern = Pattern("every", 2, policies)
    made.fires = list(fires) or [*made.fires]
    ends = {due: finished.get(due, due + SOON) for due in range(4, 13, 2)}
    made.acknowledged = {10 + due: at(end) for due, end in ends.items() if end is not None}
    made.finished = dict(made.acknowledged)
    return made


def fires(*dues: int, late: Mapping[int, float] = {}) -> list[FireSeen]:
    """Make the fires of some due instants."""
    return [fire(due, 10 + due, late=0 if due == 12 else late.get(due, 0.001)) for due in dues]


def broken(made: History) -> list[str]:
    return [violation.promise for violation in verdict(made)]


def without(made: History, due: int) -> History:
    """Leave out one fire."""
    made.fires = [one for one in made.fires if one.fire_time != at(due)]
    return made


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_fires_that_wait_for_nothing_are_owed_and_sound(overlap: str) -> None:
    assert broken(worked(overlap, {})) == []
    assert broken(without(worked(overlap, {}), 6)) == ["Complete"]


@pytest.mark.parametrize("overlap", ["skip", "queue"])
@pytest.mark.parametrize("finished", [None, 7.5], ids=["never", "afterwards"])
def test_a_fire_that_is_stored_before_the_one_before_is_finished_is_found(overlap: str, finished: float | None) -> None:
    assert "Overlap" in broken(worked(overlap, {4: finished}))


def test_without_the_policy_no_fire_has_to_wait() -> None:
    assert broken(worked("allow", dict.fromkeys(range(4, 13, 2)))) == []


@pytest.mark.parametrize("stored_after", [0.04, 0.2], ids=["at once", "later"])
def test_a_fire_that_is_stored_at_once_after_another_may_be_of_an_instance_that_did_not_know_it(
    stored_after: float,
) -> None:
    made = worked("queue", {4: None, 6: 6.3})
    made.fires = [*fires(4, late={4: 2}), *fires(6, late={6: stored_after}), *fires(8, 10, 12)]
    assert ("Overlap" in broken(made)) == (stored_after > 0.05)


def test_what_is_acknowledged_itself_excuses_whatever_lies_before_it() -> None:
    """Something before it may have expired, and then it is finished."""
    made = worked("skip", {})
    made.finished = {}
    assert broken(made) == []


def test_what_may_wait_for_something_before_it_is_not_owed() -> None:
    made = without(worked("skip", {}), 6)
    made.finished = {}
    assert broken(made) == []


@pytest.mark.parametrize(("timeout", "is_found"), [(1_000, False), (3_000, True)])
def test_a_fire_that_has_timed_out_holds_nothing_back(timeout: int, is_found: bool) -> None:
    made = worked("queue", {4: None}, timeout=timeout)
    assert ("Overlap" in broken(made)) == is_found
    assert ("Complete" in broken(without(worked("skip", {4: None}, timeout=timeout), 6))) != is_found


def test_what_is_due_while_the_one_before_is_unfinished_is_skipped_and_the_next_one_is_owed() -> None:
    assert broken(worked("skip", {4: 7}, *fires(4, 8, 10, 12))) == []
    assert broken(worked("skip", {4: 7}, *fires(4, 10, 12))) == ["Complete"]


def test_what_was_finished_just_before_the_next_one_was_due_may_be_skipped_too() -> None:
    assert broken(worked("skip", {4: 5.8}, *fires(4, 8, 10, 12))) == []
    assert broken(worked("skip", {4: 5.4}, *fires(4, 8, 10, 12))) == ["Complete"]


@pytest.mark.parametrize(("ahead", "is_found"), [(0.0, True), (1.2, False)])
def test_an_instance_whose_clock_is_ahead_may_skip_by_what_was_unfinished_so_much_earlier(
    ahead: float, is_found: bool
) -> None:
    made = without(worked("skip", {4: 5.0}), 6)
    made.terms = replace(made.terms, clock_ahead=int(ahead * SECOND))
    assert ("Complete" in broken(made)) == is_found


def test_the_latest_that_waited_is_owed_once_the_one_before_is_finished() -> None:
    assert broken(worked("queue", {4: 8.5}, *fires(4, 8, 10, 12, late={8: 0.7}))) == []
    assert broken(worked("queue", {4: 8.5}, *fires(4, 10, 12))) == ["Complete"]


def test_a_fire_that_waited_is_late_only_if_it_is_not_sent_soon_after() -> None:
    assert broken(worked("queue", {4: 6.2}, *fires(4, 6, 8, 10, 12, late={6: 0.9}))) == []
    assert broken(worked("queue", {4: 6.2}, *fires(4, 6, 8, 10, 12, late={6: 1.6}))) == ["Live"]


def with_missed(made: History, missed: str) -> History:
    """Give the schedule a policy for missed fires, with a grace of a second."""
    pattern = made.operations[0].pattern
    assert pattern is not None
    made.operations[0].pattern = replace(pattern, policies=replace(pattern.policies, missed=missed, grace=1))
    return made


@pytest.mark.parametrize("missed", ["all", "all 3", "skip"])
def test_what_waited_is_not_missed_so_the_latest_stands_for_the_others(missed: str) -> None:
    waited = fires(4, 8, 10, 12, late={8: 1.8})
    assert broken(with_missed(worked("queue", {4: 9.5}, *waited), missed)) == []
    nothing = with_missed(worked("queue", {4: 6.9}, *fires(4, 10, 12)), missed)
    assert broken(nothing) == ["Complete"]


def test_a_fire_that_waited_through_an_outage_is_no_missed_one() -> None:
    """A fire that comes due in an outage waits too, as the one before is unfinished, and is stored after its grace."""
    for finished, is_found in ((9.4, False), (5.0, True)):
        made = with_missed(worked("queue", {4: finished}, *fires(4, 8, 10, 12, late={8: 1.6})), "skip")
        made.lives = [Life("i0", at(0), at(5.5)), Life("i0", at(9.5), at(12))]
        assert ("Unique" in broken(made)) == is_found


@pytest.mark.parametrize(("missed", "is_found"), [("all", True), ("", False)])
def test_a_backlog_is_owed_as_far_as_nothing_in_it_has_to_wait(missed: str, is_found: bool) -> None:
    """An outage until 8.5 s; the fire of 4 s is finished, so that of 6 s is sent, and that of 8 s waits for it."""
    made = with_missed(worked("queue", {}, *fires(4, 8, 10, 12, late={8: 0.7})), missed)
    made.terms = replace(made.terms, resumes_within=SECOND // 10)
    made.lives = [Life("i0", at(0), at(5.5)), Life("i0", at(8.5), at(12))]
    assert ("Complete" in broken(made)) == is_found
    made.fires[1:1] = fires(6, late={6: 2.62})
    made.acknowledged[16] = made.finished[16] = at(8.66)
    assert "Complete" not in broken(made)


def test_what_consumers_take_at_once_is_finished_then() -> None:
    made = worked("skip", {4: None})
    made.terms = replace(made.terms, consumed=True)
    assert broken(made) == []
    assert broken(without(made, 6)) == ["Complete"]


def test_what_workers_remove_is_unfinished_until_they_do() -> None:
    made = worked("skip", {4: None})
    made.terms = replace(made.terms, consumed=True, removed_by_workers=True)
    assert broken(made) == ["Overlap"]
    assert broken(without(made, 6)) == ["Overlap"]  # of 8 s: nothing is acknowledged yet


@pytest.mark.parametrize("purged", [EVERYTHING, "t.1"])
def test_what_may_have_been_purged_is_finished(purged: str) -> None:
    made = worked("queue", {4: None})
    made.operations.append(Operation(Verb.PURGE, purged, at(1)))
    assert "Overlap" not in broken(made)


def test_a_fire_of_the_version_before_holds_nothing_back() -> None:
    made = worked("queue", {})
    first = replace(made.fires[0], schedule_sequence=0, sequence=13)
    made.fires.insert(0, first)
    del made.acknowledged[14]
    assert "Overlap" in broken(made)
    made.fires[1] = replace(made.fires[1], schedule_sequence=0, sequence=14)
    assert "Overlap" not in broken(made)


def test_a_schedule_may_be_gone_whose_last_fire_was_skipped_and_no_other() -> None:
    for overlap, is_found in (("skip", False), ("allow", True)):
        made = worked(overlap, {8: None}, *fires(4, 6, 8))
        assert made.operations[0].pattern is not None
        policies = replace(made.operations[0].pattern.policies, limit=4)
        made.operations[0].pattern, made.remaining = Pattern("every", 2, policies), set()
        assert ("Complete" in broken(made)) == is_found


def test_what_still_waits_when_its_schedule_expires_is_not_owed() -> None:
    for ttl, is_found in ((6.5, False), (8.0, True)):  # stored at 2 s; the fire of 8 s waits until 8.7 s
        made = worked("queue", {4: 8.3}, *fires(4))
        made.operations[0].ttl = at(ttl) - at(0)
        made.end, made.remaining = at(10.5), set()
        made.lives = [replace(made.lives[0], end=made.end)]
        assert ("Complete" in broken(made)) == is_found
