"""With few fires a second nothing waits; with many they share wakes, and what arrives is taken with them."""

import asyncio
from itertools import pairwise

import pytest

from nats_scheduler.runtime.wakes import (
    MIN_RESTING_RATE,
    MIN_SHARED_RATE,
    RATE_SPAN_SECONDS,
    REST_SECONDS,
    SHARING,
    SOON_SECONDS,
    FireRate,
    Moderation,
    shared_seconds,
)

PER_SPAN = int(MIN_RESTING_RATE * RATE_SPAN_SECONDS)


class Loop:
    """A loop whose time moves only when it is set, and that notes its rests."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.rests: list[float] = []

    def time(self) -> float:
        return self.now

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)


class Timer:
    """A timer that is due at some time."""

    def __init__(self, due: float) -> None:
        self._due = due

    def when(self) -> float:
        return self._due


def moderation(loop: Loop) -> Moderation:
    return Moderation(loop)  # type: ignore[arg-type]


def send(one: Moderation, count: int) -> None:
    """Take a turn in which `count` fires are sent."""
    one.turn_began()
    one.sent(count)
    one.turn_ended()


def under_load(loop: Loop, rate: float = MIN_RESTING_RATE) -> Moderation:
    """Return a moderation with `rate` fires a second in the span before this one."""
    one = moderation(loop)
    send(one, int(rate * RATE_SPAN_SECONDS))
    loop.now += RATE_SPAN_SECONDS
    loop.rests.clear()
    return one


class TestTheRate:
    def test_it_is_that_of_the_last_whole_span(self) -> None:
        rate = FireRate()
        rate.sent(100, 10.0)
        assert rate.per_second(10.1) == 0
        assert rate.per_second(10.0 + RATE_SPAN_SECONDS) == 100 / RATE_SPAN_SECONDS

    def test_it_is_nothing_after_a_pause(self) -> None:
        rate = FireRate()
        rate.sent(100, 10.0)
        assert rate.per_second(10.0 + 2 * RATE_SPAN_SECONDS) == 0


class TestSharing:
    def test_the_time_grows_with_the_rate_and_has_a_limit(self) -> None:
        rates = [0, MIN_SHARED_RATE, 500, 1_000, 2_000, 5_000, 10_000]
        shared = [shared_seconds(rate) for rate in rates]
        assert shared[:2] == [0, 0]
        assert all(less < more for less, more in pairwise(shared[1:]))
        assert shared_seconds(1_000_000) == shared[-1] == SHARING[-1][1]

    def test_with_few_fires_a_second_each_has_its_own_time(self) -> None:
        loop = Loop()
        one = under_load(loop, MIN_SHARED_RATE)
        send(one, 1)
        assert one.not_before <= loop.now

    def test_with_many_the_next_are_sent_a_little_later(self) -> None:
        loop = Loop()
        one = under_load(loop, 2_000)
        send(one, 1)
        assert one.not_before == loop.now + 0.003

    def test_the_time_that_a_turn_takes_is_a_part_of_it(self) -> None:
        loop = Loop()
        one = under_load(loop, 2_000)
        one.turn_began()
        began = loop.now
        one.sent(1)
        loop.now += 0.002
        one.turn_ended()
        assert one.not_before == began + 0.003


class TestARest:
    def test_it_begins_when_fires_were_sent_under_load(self) -> None:
        loop = Loop()
        send(under_load(loop), 1)
        assert loop.rests == [REST_SECONDS]

    def test_with_fewer_fires_a_second_there_is_none(self) -> None:
        loop = Loop()
        send(under_load(loop, MIN_RESTING_RATE - 1 / RATE_SPAN_SECONDS), 1)
        assert loop.rests == []

    def test_after_a_turn_in_which_nothing_was_sent_there_is_none(self) -> None:
        loop = Loop()
        send(under_load(loop), 0)
        assert loop.rests == []

    def test_while_one_awaits_something_urgent_there_is_none(self) -> None:
        loop = Loop()
        one = under_load(loop)
        one.hurry(1, is_urgent=True)
        one.hurry(2, is_urgent=True)
        one.hurry(2, is_urgent=False)
        send(one, 1)
        assert loop.rests == [0], "an earlier rest ends"
        one.hurry(1, is_urgent=False)
        send(one, 1)
        assert loop.rests == [0, REST_SECONDS]

    @pytest.mark.parametrize(
        ("due", "waits"), [(SOON_SECONDS / 2, True), (SOON_SECONDS * 2, False)], ids=["soon", "later"]
    )
    def test_what_arrives_then_waits_for_a_timer_that_is_due_in_a_moment(self, due: float, waits: bool) -> None:
        loop = Loop()
        one = under_load(loop)
        send(one, 1)
        assert one.may_wait_for(Timer(loop.now + due)) is waits  # type: ignore[arg-type]

    def test_after_it_nothing_waits(self) -> None:
        loop = Loop()
        one = under_load(loop)
        send(one, 1)
        loop.now += REST_SECONDS
        assert not one.may_wait_for(Timer(loop.now))  # type: ignore[arg-type]

    def test_without_a_timer_nothing_waits(self) -> None:
        one = under_load(Loop())
        send(one, 1)
        assert not one.may_wait_for(None)

    def test_in_the_turn_that_follows_nothing_waits(self) -> None:
        loop = Loop()
        one = under_load(loop)
        send(one, 1)
        one.turn_began()
        assert not one.may_wait_for(Timer(loop.now))  # type: ignore[arg-type]


async def test_a_loop_that_cannot_rest_shares_no_wakes() -> None:
    one = Moderation(asyncio.get_running_loop())
    send(one, 1_000_000)
    assert one.not_before == 0
