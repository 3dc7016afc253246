"""The judge of policies for missed fires: an outage from 4.5 to 8.5 s, made by hand, and what is owed after it."""

from dataclasses import replace

import pytest

from tests.judge.checkers import verdict
from tests.judge.history import SECOND, FireSeen, Headers, History, Life
from tests.judge.made_by_hand import EVERY_2S, at, fire, history
from tests.judge.patterns import Pattern, Policies, written


def outage(policies: Policies, *fires: FireSeen) -> History:
    """Make a history with an outage in which 6 and 8 came due; the fires given are stored after it."""
    made = history()
    made.terms = replace(made.terms, resumes_within=SECOND // 2)
    made.end = at(14)
    made.operations[0].pattern = Pattern("every", 2, policies)
    made.lives = [Life("i0", at(0), at(4.5)), Life("i0", at(8.5), at(14))]
    made.fires = [fire(4, 14), *fires, fire(10, 20), fire(12, 22), fire(14, 24, late=0)]
    return made


def late(due: int) -> FireSeen:
    """Make a fire that is made up after the outage."""
    return fire(due, 10 + due, late=8.6 - due)


@pytest.mark.parametrize(
    ("policies", "stored", "broken"),
    [
        (Policies(), (8,), []),
        (Policies(), (6, 8), ["Unique"]),
        (Policies(missed="once"), (6, 8), ["Unique"]),
        (Policies(missed="all"), (6, 8), []),
        (Policies(missed="all"), (8,), ["Complete"]),
        (Policies(missed="all"), (), ["Complete", "Complete"]),
        (Policies(missed="all 1", grace=1), (8,), []),
        (Policies(missed="all 1", grace=1), (6, 8), ["Unique"]),
        (Policies(missed="all 1", grace=5), (6, 8), []),
        (Policies(missed="all 2", grace=1), (6, 8), []),
        (Policies(missed="all 3", grace=1), (8,), ["Complete"]),
        (Policies(missed="skip", grace=3), (8,), []),
        (Policies(missed="skip", grace=3), (), ["Complete"]),
        (Policies(missed="skip", grace=3), (6, 8), ["Unique"]),
        (Policies(missed="skip", grace=1), (), []),
    ],
)
def test_what_is_made_up_after_an_outage_follows_from_the_policy(
    policies: Policies, stored: tuple[int, ...], broken: list[str]
) -> None:
    made = outage(policies, *(late(due) for due in stored))
    assert [violation.promise for violation in verdict(made)] == broken


def test_a_fire_that_was_to_be_skipped_is_found_however_it_came() -> None:
    made = outage(Policies(missed="skip", grace=1), late(6))
    made.fires = [one for one in made.fires if one.fire_time != at(8)]
    made.lives = [Life("i0", at(0), at(4.5)), Life("i0", at(8.1), at(14))]
    assert "Unique" in [violation.promise for violation in verdict(made)]


def test_no_backlog_is_owed_by_an_instance_that_found_no_checkpoint_before_a_fire_that_it_can_see() -> None:
    made = outage(Policies(missed="all"), late(8))
    made.fires = made.fires[1:]
    made.lives = [Life("i0", at(1), at(1.5)), Life("i0", at(8.5), at(14))]
    assert [violation.promise for violation in verdict(made)] == ["Complete", "Complete"]
    made.found_no_checkpoint = [at(8.55)]
    assert verdict(made) == []


def test_a_schedule_whose_only_fire_is_skipped_may_be_gone_and_another_may_not() -> None:
    for missed, broken in (("skip", []), ("", ["Complete", "Complete"])):
        made = outage(Policies())
        made.operations[0].pattern = Pattern("at", at(5) // SECOND, Policies(missed=missed, grace=1))
        made.fires, made.remaining = [], set()
        assert [violation.promise for violation in verdict(made)] == broken


def reported(due: int, previous: int | None, missed: int) -> FireSeen:
    """Make a fire with a report; times in seconds after the beginning."""
    said: Headers = (("X-Nats-Schedule-X-Due", written(at(due))),)
    if previous is not None:
        said += (("X-Nats-Schedule-X-Previous", written(at(previous))),)
    made = late(due) if due == 8 else fire(due, 10 + due, late=0 if due == 14 else 0.001)
    return replace(made, headers=(*made.headers, *said, ("X-Nats-Schedule-X-Missed", str(missed))))


@pytest.mark.parametrize(
    ("previous", "missed", "is_true"),
    [(4, 1, True), (4, 0, False), (4, 2, False), (6, 0, False), (None, 1, False), (None, 0, False)],
)
def test_a_report_names_the_fire_before_and_counts_what_lies_between(
    previous: int | None, missed: int, is_true: bool
) -> None:
    made = outage(Policies(report=True))
    made.fires = [reported(4, None, 0), reported(8, previous, missed)]
    made.fires += [reported(10, 8, 0), reported(12, 10, 0), reported(14, 12, 0)]
    assert [violation.promise for violation in verdict(made)] == ([] if is_true else ["Faithful"])


def test_a_schedule_without_a_report_has_none() -> None:
    made = outage(Policies(), late(8))
    made.fires[0] = reported(4, None, 0)
    assert [violation.promise for violation in verdict(made)] == ["Faithful"]
    assert EVERY_2S.policies == Policies()
