"""Checkpoints in turn: none of many streams waits for ever, and one that may not wait does not."""

from typing import Any, cast

import pytest

from nats_scheduler.runtime import checkpoints as pace
from nats_scheduler.runtime.checkpoints import Pace
from tests.harness.waiting import eventually

LONG_SECONDS = 30.0


class Writer:
    """Counts its turns."""

    def __init__(self, longest_wait_seconds: float = LONG_SECONDS) -> None:
        self.longest_wait_seconds = longest_wait_seconds
        self.has_news = True
        self.turns = 0

    def take_turn(self) -> None:
        self.turns += 1


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "TURN_CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(pace, "CHECKPOINT_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(pace, "MAX_TURNS_PER_CHECK", 2)


async def test_of_many_who_write_none_has_two_turns_more_than_another() -> None:
    one, writers = Pace(), [Writer() for _ in range(11)]
    leaving = [one.join(cast(Any, writer)) for writer in writers]
    await eventually(lambda: writers[0].turns >= 3, within_seconds=LONG_SECONDS)
    turns = [writer.turns for writer in writers]
    assert max(turns) - min(turns) <= 1, turns
    for leave in leaving:
        leave()


async def test_who_has_no_news_takes_nobody_his_turn() -> None:
    one, idle, busy = Pace(), [Writer() for _ in range(10)], Writer()
    for writer in idle:
        writer.has_news = False
    leaving = [one.join(cast(Any, writer)) for writer in (*idle, busy)]
    await eventually(lambda: busy.turns >= 3, within_seconds=LONG_SECONDS)
    assert not any(writer.turns for writer in idle)
    for leave in leaving:
        leave()


async def test_who_may_not_wait_has_a_turn_at_each_look() -> None:
    one, urgent, others = Pace(), [Writer(0.0) for _ in range(5)], [Writer() for _ in range(50)]
    leaving = [one.join(cast(Any, writer)) for writer in (*others, *urgent)]
    await eventually(lambda: urgent[0].turns >= 5, within_seconds=LONG_SECONDS)
    assert min(writer.turns for writer in urgent) >= 4
    assert max(writer.turns for writer in others) <= 1
    for leave in leaving:
        leave()
