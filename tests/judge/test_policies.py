"""The judge of policies, in histories made by hand: missed fires, reports, overlaps and calendars.

The fire of a due instant `d` has the sequence `10 + d`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.judge.checkers import verdict
from tests.judge.history import (
    EVERYTHING,
    SECOND,
    CalendarSeen,
    FireSeen,
    Headers,
    History,
    Leaves,
    Life,
    Operation,
    Verb,
)
from tests.judge.made_by_hand import KEPT, at, fire, history
from tests.judge.patterns import Pattern, Policies, written


def broken(made: History) -> list[str]:
    return [violation.promise for violation in verdict(made)]


def is_found(promise: str, *made: History) -> list[bool]:
    return [promise in broken(one) for one in made]


def fires(*dues: int, late: Mapping[int, float] = {}) -> list[FireSeen]:
    """Make the fires of some due instants."""
    return [fire(due, 10 + due, late=late.get(due, 0 if due == 12 else 0.001)) for due in dues]


# -- missed fires: 6 and 8 came due in an outage from 4.5 to 8.5 s


def outage(policies: Policies, *stored: int, **fields: Any) -> History:
    """Make a history with the fires of some due instants that are stored after the outage."""
    made_up = [fire(due, 10 + due, late=8.6 - due) for due in stored]
    last = [fire(10, 20), fire(12, 22), fire(14, 24, late=0)]
    changes: dict[str, Any] = {
        "lives": [Life("i0", at(0), at(4.5)), Life("i0", at(8.5), at(14))],
        "fires": dict.fromkeys((6, 8, 10, 12)),
        "more": [*made_up, *last],
        **fields,
    }
    return history(
        terms={"resumes_within": SECOND // 2}, store={"pattern": Pattern("every", 2, policies)}, end=at(14), **changes
    )


def test_what_is_made_up_after_an_outage_follows_from_the_policy() -> None:
    expected: dict[tuple[Policies, tuple[int, ...]], list[str]] = {
        (Policies(), (8,)): [],
        (Policies(), (6, 8)): ["Unique"],
        (Policies(missed="once"), (6, 8)): ["Unique"],
        (Policies(missed="all"), (6, 8)): [],
        (Policies(missed="all"), (8,)): ["Complete"],
        (Policies(missed="all"), ()): ["Complete", "Complete"],
        (Policies(missed="all 1", grace=1), (8,)): [],
        (Policies(missed="all 1", grace=1), (6, 8)): ["Unique"],
        (Policies(missed="all 1", grace=5), (6, 8)): [],
        (Policies(missed="all 2", grace=1), (6, 8)): [],
        (Policies(missed="all 3", grace=1), (8,)): ["Complete"],
        (Policies(missed="skip", grace=3), (8,)): [],
        (Policies(missed="skip", grace=3), ()): ["Complete"],
        (Policies(missed="skip", grace=3), (6, 8)): ["Unique"],
        (Policies(missed="skip", grace=1), ()): [],
    }
    assert {(policies, stored): broken(outage(policies, *stored)) for policies, stored in expected} == expected


def test_a_fire_that_was_to_be_skipped_is_found_however_it_came() -> None:
    lives = [Life("i0", at(0), at(4.5)), Life("i0", at(8.1), at(14))]
    assert is_found("Unique", outage(Policies(missed="skip", grace=1), 6, lives=lives)) == [True]


def test_no_backlog_is_owed_by_an_instance_that_found_no_checkpoint_before_a_fire_that_it_can_see() -> None:
    lives = [Life("i0", at(1), at(1.5)), Life("i0", at(8.5), at(14))]
    made = outage(Policies(missed="all"), 8, lives=lives, fires=dict.fromkeys((4, 6, 8, 10, 12)))
    assert broken(made) == ["Complete", "Complete"]
    assert broken(history(made, found_no_checkpoint=[at(8.55)])) == []


def test_a_schedule_whose_only_fire_is_skipped_may_be_gone_and_another_may_not() -> None:
    for missed, expected in (("skip", []), ("", ["Complete", "Complete"])):
        pattern = Pattern("at", at(5) // SECOND, Policies(missed=missed, grace=1))
        none_fired = dict.fromkeys(range(4, 15, 2))
        assert (
            broken(history(outage(Policies()), store={"pattern": pattern}, fires=none_fired, remaining=set()))
            == expected
        )


def reported(due: int, previous: int | None, missed: int) -> FireSeen:
    """Make a fire with a report; times in seconds after the beginning."""
    said: Headers = (("X-Nats-Schedule-X-Due", written(at(due))),)
    if previous is not None:
        said += (("X-Nats-Schedule-X-Previous", written(at(previous))),)
    made = fire(due, 10 + due, late={8: 0.6, 14: 0}.get(due, 0.001))
    return replace(made, headers=(*made.headers, *said, ("X-Nats-Schedule-X-Missed", str(missed))))


def test_a_report_names_the_fire_before_and_counts_what_lies_between() -> None:
    found = {}
    for previous, missed in ((4, 1), (4, 0), (4, 2), (6, 0), (None, 1), (None, 0)):
        seen = [(4, None, 0), (8, previous, missed), (10, 8, 0), (12, 10, 0), (14, 12, 0)]
        more = [reported(*one) for one in seen]
        made = outage(Policies(report=True), fires=dict.fromkeys(range(4, 13, 2)), more=more)
        found[previous, missed] = broken(made)
    assert {told for told, violations in found.items() if not violations} == {(4, 1)}
    assert [violations for violations in found.values() if violations] == [["Faithful"]] * 5
    assert broken(history(outage(Policies(), 8), fires={4: reported(4, None, 0)})) == ["Faithful"]


# -- overlaps


def worked(
    overlap: str, finished: Mapping[int, float | None], *stored: FireSeen, timeout: int | None = None, missed: str = ""
) -> History:
    """Make a history with these fires; `finished` says when the work on a fire ended, of those that took over 0.3 s.

    A policy for missed fires has a grace of a second.
    """
    grace = 1 if missed else None
    policies = Policies(overlap=overlap, consumer="worker-1", timeout=timeout, missed=missed, grace=grace)
    ends = {due: finished.get(due, due + 0.3) for due in range(4, 13, 2)}
    done = {10 + due: at(end) for due, end in ends.items() if end is not None}
    return history(
        store={"pattern": Pattern("every", 2, policies)},
        fires=dict.fromkeys(range(4, 13, 2)),
        more=stored or KEPT.fires,
        acknowledged=done,
        finished=done,
    )


def without(made: History, *dues: int) -> History:
    """Leave out fires."""
    return history(made, fires=dict.fromkeys(dues))


def test_fires_that_wait_for_nothing_are_owed_and_sound() -> None:
    for overlap in ("skip", "queue"):
        assert broken(worked(overlap, {})) == []
        assert broken(without(worked(overlap, {}), 6)) == ["Complete"]
    assert broken(worked("allow", dict.fromkeys(range(4, 13, 2)))) == []


def test_a_fire_that_is_stored_before_the_one_before_is_finished_is_found() -> None:
    """One that is stored at once after another may be of an instance that did not know it."""
    made = [worked(overlap, {4: finished}) for overlap in ("skip", "queue") for finished in (None, 7.5)]
    assert is_found("Overlap", *made) == [True] * 4
    late = [{4: 2, 6: after} for after in (0.04, 0.2)]
    made = [worked("queue", {4: None, 6: 6.3}, *fires(4, 6, 8, 10, 12, late=one)) for one in late]
    assert is_found("Overlap", *made) == [False, True]


def test_a_fire_that_nobody_finished_in_time_is_owed_a_report_and_one_that_was_finished_gets_none() -> None:
    policies = Policies(done_within=1, consumer="worker-1")
    headers = tuple((f"X-{name}", value) for name, value in policies.deadline_headers())
    stored = [replace(one, headers=(*one.headers, *headers)) for one in KEPT.fires]
    ends = {10 + due: at(due + 0.3) for due in range(4, 13, 2)}
    for late, reports, promises in (
        ({}, {}, []),
        ({14: at(30)}, {}, ["Done"]),
        ({14: at(30)}, {14: [at(5.1)]}, []),
        ({14: at(30)}, {14: [at(5.1), at(9)]}, []),
        ({14: at(30)}, {14: [at(3.5)]}, ["Done"]),
        ({14: at(10)}, {}, []),
        ({14: at(4.9)}, {14: [at(7)]}, ["Done"]),
    ):
        made = history(
            store={"pattern": Pattern("every", 2, policies)},
            fires=dict.fromkeys(range(4, 13, 2)),
            more=stored,
            finished=ends | late,
            not_done=reports,
            end=at(14),
        )
        assert broken(replace(made, lives=[Life("i0", at(0), at(14))])) == promises, (late, reports)


def test_an_expired_fire_gets_a_report_only_where_the_server_does_not_remove_it() -> None:
    store = {"pattern": Pattern("every", 2, Policies(done_within=1, consumer="worker-1")), "fire_ttl": 2}
    made = [history(store=store, not_done={14: [at(12)]}, terms={"guard": guard}) for guard in (True, False)]
    assert is_found("Done", *made) == [True, False]


def test_what_is_acknowledged_itself_excuses_whatever_lies_before_it() -> None:
    """Something before it may have expired, and then it is finished."""
    made = history(worked("skip", {}), finished={})
    assert broken(made) == []
    assert broken(without(made, 6)) == [], "what may wait for something before it is not owed"


def test_a_fire_that_has_timed_out_holds_nothing_back() -> None:
    timeouts = (1_000, 3_000)
    assert is_found("Overlap", *(worked("queue", {4: None}, timeout=one) for one in timeouts)) == [False, True]
    skipped = (without(worked("skip", {4: None}, timeout=one), 6) for one in timeouts)
    assert is_found("Complete", *skipped) == [True, False]


def test_what_is_due_while_the_one_before_is_unfinished_is_skipped_and_the_next_one_is_owed() -> None:
    assert broken(worked("skip", {4: 7}, *fires(4, 8, 10, 12))) == []
    assert broken(worked("skip", {4: 7}, *fires(4, 10, 12))) == ["Complete"]
    assert broken(worked("skip", {4: 5.8}, *fires(4, 8, 10, 12))) == [], "it was finished just before"
    assert broken(worked("skip", {4: 5.4}, *fires(4, 8, 10, 12))) == ["Complete"]
    early = without(worked("skip", {4: 5.0}), 6)
    ahead = [history(early, terms={"clock_ahead": lead}) for lead in (0, 12 * SECOND // 10)]
    assert is_found("Complete", *ahead) == [True, False], "an instance whose clock is ahead asked so much earlier"


def test_the_latest_that_waited_is_owed_once_the_one_before_is_finished_and_soon_after() -> None:
    assert broken(worked("queue", {4: 8.5}, *fires(4, 8, 10, 12, late={8: 0.7}))) == []
    assert broken(worked("queue", {4: 8.5}, *fires(4, 10, 12))) == ["Complete"]
    assert broken(worked("queue", {4: 6.2}, *fires(4, 6, 8, 10, 12, late={6: 0.9}))) == []
    assert broken(worked("queue", {4: 6.2}, *fires(4, 6, 8, 10, 12, late={6: 1.6}))) == ["Live"]


def test_what_waited_is_not_missed_so_the_latest_stands_for_the_others() -> None:
    for missed in ("all", "all 3", "skip"):
        assert broken(worked("queue", {4: 9.5}, *fires(4, 8, 10, 12, late={8: 1.8}), missed=missed)) == [], missed
        assert broken(worked("queue", {4: 6.9}, *fires(4, 10, 12), missed=missed)) == ["Complete"], missed


def test_a_fire_that_waited_through_an_outage_is_no_missed_one() -> None:
    """A fire that comes due in an outage waits too, as the one before is unfinished, and is stored after its grace."""
    lives, stored = [Life("i0", at(0), at(5.5)), Life("i0", at(9.5), at(12))], fires(4, 8, 10, 12, late={8: 1.6})
    made = [history(worked("queue", {4: end}, *stored, missed="skip"), lives=lives) for end in (9.4, 5.0)]
    assert is_found("Unique", *made) == [False, True]


def test_a_backlog_is_owed_as_far_as_nothing_in_it_has_to_wait() -> None:
    """An outage until 8.5 s; the fire of 4 s is finished, so that of 6 s is sent, and that of 8 s waits for it."""
    lives = [Life("i0", at(0), at(5.5)), Life("i0", at(8.5), at(12))]
    for missed, is_owed in (("all", True), ("", False)):
        stored = fires(4, 8, 10, 12, late={8: 0.7})
        made = history(worked("queue", {}, *stored, missed=missed), terms={"resumes_within": SECOND // 10}, lives=lives)
        done = {**made.finished, 16: at(8.66)}
        sent = history(made, more=fires(6, late={6: 2.62}), acknowledged=done, finished=done)
        assert is_found("Complete", made, sent) == [is_owed, False], missed


def test_what_consumers_take_at_once_is_finished_then_and_what_workers_remove_when_they_do() -> None:
    made = history(worked("skip", {4: None}), terms={"consumed": True})
    assert broken(made) == []
    assert broken(without(made, 6)) == ["Complete"]
    removed = history(made, terms={"removed_by_workers": True})
    assert broken(removed) == ["Overlap"]
    assert broken(without(removed, 6)) == ["Overlap"], "of 8 s: nothing is acknowledged yet"


def test_what_may_have_been_purged_is_finished_and_a_fire_of_the_version_before_holds_nothing_back() -> None:
    for purged in (EVERYTHING, "t.1"):
        made = history(worked("queue", {4: None}), asked=[Operation(Verb.PURGE, purged, at(1))])
        assert is_found("Overlap", made) == [False], purged
    first, *others = KEPT.fires
    before = replace(first, schedule_sequence=0, sequence=13)
    made = worked("queue", {4: None}, before, *KEPT.fires)
    of_the_version_before = worked("queue", {4: None}, before, replace(first, schedule_sequence=0), *others)
    assert is_found("Overlap", made, of_the_version_before) == [True, False]


def test_a_schedule_may_be_gone_whose_last_fire_was_skipped_and_no_other() -> None:
    for overlap, is_owed in (("skip", False), ("allow", True)):
        policies = Policies(overlap=overlap, consumer="worker-1", limit=4)
        made = worked(overlap, {8: None}, *fires(4, 6, 8))
        made = history(made, store={"pattern": Pattern("every", 2, policies)}, remaining=set())
        assert is_found("Complete", made) == [is_owed], overlap


def test_what_still_waits_when_its_schedule_expires_is_not_owed() -> None:
    for ttl, is_owed in ((6.5, False), (8.0, True)):  # stored at 2 s; the fire of 8 s waits until 8.7 s
        made = worked("queue", {4: 8.3}, *fires(4))
        lives = [Life("i0", at(0), at(10.5))]
        made = history(made, store={"ttl": at(ttl) - at(0)}, end=at(10.5), remaining=set(), lives=lives)
        assert is_found("Complete", made) == [is_owed], ttl


# -- calendars


def with_edits(
    *edits: tuple[float, Leaves] | tuple[float, Leaves, float], leaving_out: tuple[int, ...] = ()
) -> History:
    """Make a history of a schedule that names a calendar with these edits, each perhaps acknowledged later."""
    seen = [CalendarSeen("work", at(since), leaves, *map(at, acknowledged)) for since, leaves, *acknowledged in edits]
    return history(
        terms={"resumes_within": SECOND // 10},
        store={"pattern": Pattern("every", 2, Policies(calendar="work"))},
        calendars=seen,
        fires=dict.fromkeys(leaving_out),
    )


ALL, NOTHING, GONE = (0, Leaves.ALL), Leaves.NOTHING, Leaves.GONE


def test_a_calendar_that_leaves_everything_changes_nothing() -> None:
    assert broken(with_edits(ALL)) == []
    assert broken(with_edits(ALL, leaving_out=(6,))) == ["Complete"]


def test_a_fire_that_the_calendar_does_not_leave_is_one_too_many_unless_it_was_sent_just_before_the_edit() -> None:
    for leaves in (NOTHING, GONE):
        assert set(broken(with_edits(ALL, (4.1, leaves)))) == {"Unique"}
        assert broken(with_edits(ALL, (4.1, leaves), leaving_out=(6, 8, 10, 12))) == []
    assert broken(with_edits(ALL, (3.9, NOTHING), leaving_out=(6, 8, 10, 12))) == []


def test_what_came_due_while_the_calendar_was_gone_is_owed_when_it_is_back_and_not_that_of_an_excepted_day() -> None:
    back = with_edits(ALL, (4.1, GONE), (6.1, Leaves.ALL), leaving_out=(6, 8))
    assert is_found("Complete", back) == [True]
    late = history(with_edits(ALL, (4.1, GONE), (7.5, Leaves.ALL)), fires={6: fire(6, 16, late=1.6)})
    assert broken(late) == []
    assert broken(with_edits(ALL, (4.1, NOTHING), (6.1, Leaves.ALL), leaving_out=(6,))) == []


def test_while_an_edit_is_on_its_way_what_was_before_and_what_it_says_may_both_count() -> None:
    """The edit of 4.1 s is acknowledged at 8 s, and the fire of 10 s comes too late for it."""
    for left_out, expected in (((12,), {"Unique"}), ((6, 8, 12), {"Unique"}), ((6, 8, 10, 12), set[str]())):
        assert set(broken(with_edits(ALL, (4.1, NOTHING, 8), leaving_out=left_out))) == expected, left_out


def test_an_instance_that_is_ready_owes_only_what_an_acknowledged_edit_leaves() -> None:
    """The calendar is back at 6.1 s, by an edit that is acknowledged at 6.2 or 8.5 s."""
    for acknowledged, expected in ((6.2, {"Complete", "Live"}), (8.5, set[str]())):
        made = with_edits(ALL, (4.1, GONE), (6.1, Leaves.ALL, acknowledged), leaving_out=(6, 8, 10, 12))
        made = history(made, end=at(9.5), lives=[Life("i0", at(0), at(9.5))])
        assert set(broken(made)) == expected
