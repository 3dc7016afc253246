"""The reports in fires of schedules with `X-Report`: about themselves and about the fire before."""

import pytest

from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import TARGET
from tests.engine.missed_builders import policies, world_of


def reports(world: ScheduleWorld) -> list[tuple[str | None, str | None, str | None]]:
    """Return what each fire says of itself: its time, that of the fire before, and how many were dropped."""
    names = ("Due", "Previous", "Missed")
    rows = [[one.header(f"X-Nats-Schedule-X-{name}") for name in names] for one in world.generated]
    return [(due and due[11:], previous and previous[11:], missed) for due, previous, missed in rows]


def test_each_fire_says_its_time_the_one_before_and_what_was_dropped() -> None:
    world = world_of("@every 1h", policies(report="true"))
    world.advance("150m")
    world.restart("4h")
    assert reports(world) == [
        ("01:00:00Z", None, "0"),
        ("02:00:00Z", "01:00:00Z", "0"),
        ("06:00:00Z", "02:00:00Z", "3"),
    ]


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_report_says_the_same_after_a_restart(with_checkpoint: bool) -> None:
    world = world_of("@every 1h", policies("skip", report="true"))
    world.advance("90m")
    world.restart("4h", with_checkpoint=with_checkpoint)
    world.restart("1m", with_checkpoint=with_checkpoint)
    world.advance("1h")
    assert reports(world) == [("01:00:00Z", None, "0"), ("06:00:00Z", "01:00:00Z", "4")]


def test_a_report_counts_since_the_checkpoint_if_the_fire_is_gone() -> None:
    world = world_of("@every 1h", policies(report="true"))
    world.advance("150m")
    world.purge(TARGET)
    world.restart("4h")
    assert reports(world)[-1] == ("06:00:00Z", None, "3")
