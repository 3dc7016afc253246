"""Fixtures of the tests of the runtime: the real timers, with shorter intervals."""

import pytest

from nats_scheduler.runtime import wakes

QUICK_TICK_SECONDS = 0.02


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `Wakes` tick 25 times as often, for tests that wait for ticks."""
    monkeypatch.setattr(wakes, "TICK_INTERVAL_SECONDS", QUICK_TICK_SECONDS)
