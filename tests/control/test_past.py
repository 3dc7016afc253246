"""Past fires of which nothing certain is known count as unknown, and never as missing."""

from typing import Any

import pytest

from nats_scheduler.control.past import StoredRange, known_from, stored_fires
from nats_scheduler.control.port import EVER
from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.fires import PastFire
from nats_scheduler.schedule.instants import SECOND

NOW = 1_790_000_000 * SECOND
OLD, NEW = NOW - 1_000 * SECOND, NOW - 10 * SECOND


def shown(kept: StoredRange, *, ttl: str = "", rollup: bool = False, **config: Any) -> int | None:
    return known_from({"name": "S", **config}, Terms(ADR51, "S.out", None, ttl, rollup), kept, NOW)


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_stream_that_removes_what_was_consumed_shows_nothing(retention: str) -> None:
    assert shown(StoredRange(1, OLD), retention=retention) is None


def test_fires_that_roll_up_their_target_show_nothing() -> None:
    assert shown(StoredRange(1, OLD), rollup=True) is None


@pytest.mark.parametrize("limit", [{"max_age": 3_600 * SECOND}, {"max_msgs": 10}, {"max_bytes": 1_000}])
def test_a_stream_with_limits_shows_what_it_still_holds(limit: dict[str, Any]) -> None:
    assert shown(StoredRange(7, OLD), **limit) == OLD
    assert shown(StoredRange(1, OLD), **limit) == EVER, "nothing was removed yet"
    assert shown(StoredRange(7, OLD)) == EVER, "a client deleted what was before"


def test_fires_with_a_ttl_are_shown_as_long_as_they_live() -> None:
    assert shown(StoredRange(1, OLD), ttl="60s") == NOW - 60 * SECOND
    assert shown(StoredRange(1, OLD), ttl="never") == EVER


def test_a_limit_for_each_subject_counts_if_it_is_reached() -> None:
    assert shown(StoredRange(1, OLD, 3, NEW), max_msgs_per_subject=3) == NEW
    assert shown(StoredRange(1, OLD, 2, NEW), max_msgs_per_subject=3) == EVER
    assert shown(StoredRange(1, OLD, 3, NEW), max_msgs_per_subject=-1) == EVER


def fire(time: int | None, *, sequence: int | None = 5, stored_at: int = NOW, requested: bool = False) -> PastFire:
    return PastFire("S.s", sequence, "S.out", 9, time, stored_at, None, sequence is None, was_requested=requested)


def test_all_versions_count_as_stored_and_only_this_one_as_fired_by_itself() -> None:
    fires = [fire(10), fire(30, sequence=4), fire(20, requested=True), fire(99)]
    assert stored_fires(fires, 5, 10, 30, EVER) == stored_fires([*fires, fire(5)], 5, 10, 30, EVER)
    found = stored_fires(fires, 5, 10, 30, EVER)
    assert (found.fire_times, found.latest, found.known_from) == (frozenset({10, 20, 30}), 99, EVER)
    assert stored_fires([], 5, 0, 9, EVER).latest is None


def test_a_fire_whose_time_is_unknown_may_be_any_before_it() -> None:
    fires = [fire(None, sequence=None, stored_at=NEW), fire(NOW, sequence=None)]
    assert stored_fires(fires, 5, 0, NOW, EVER).known_from == NEW + 1
    assert stored_fires(fires, 5, 0, NOW, None).known_from is None
