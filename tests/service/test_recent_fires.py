"""The last fires of several instances are listed once each, newest first, in whatever order they were read back."""

from random import Random

import pytest

from nats_scheduler.engine.events import FireReadBack
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.service.now import RecentFiresRequest, merged, newest
from nats_scheduler.testing.clock import START

FIRES = 40


def read_back(number: int) -> tuple[str, FireReadBack]:
    """Return a fire of one of two streams; two of each are stored at the same time."""
    stored_at = START + number // 4 * MINUTE
    fire = FireReadBack(f"s.{number}", "t", stored_at, stored_at, stored_at, stored_sequence=1 + number // 2)
    return "AB"[number % 2], fire


def shuffled(seed: int) -> list[tuple[str, FireReadBack]]:
    fires = [read_back(number) for number in range(FIRES)]
    Random(seed).shuffle(fires)
    return fires


@pytest.mark.parametrize("seed", range(5))
def test_the_newest_are_listed_in_whatever_order_they_were_read_back(seed: int) -> None:
    listed = newest(shuffled(seed), RecentFiresRequest(stream="B", limit=5))
    assert [one["schedule"] for one in listed] == ["s.39", "s.37", "s.35", "s.33", "s.31"]


@pytest.mark.parametrize("seed", range(5))
def test_what_two_instances_read_back_is_listed_once(seed: int) -> None:
    fires = shuffled(seed)
    request = RecentFiresRequest(limit=FIRES)
    parts = [newest(fires[: FIRES // 2 + seed], request), newest(fires[FIRES // 2 - seed :], request)]
    listed = merged(parts)
    assert sorted(one["schedule"] for one in listed) == sorted(fire.schedule for _stream, fire in fires)
    stored = [(one["stored"], one["sequence"]) for one in listed]
    assert stored == sorted(stored, reverse=True)
