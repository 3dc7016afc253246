"""An overload is told when it begins and once a minute; a moment of standstill, or a burst, is none."""

from nats_scheduler.observe.overload import LOOKS, SAID_AGAIN_LOOKS, Lateness, Overload

LATE = 0.3


def looks(overload: Overload, *late: float, fires: float = 0.0) -> list[Lateness]:
    """Look once for each number, after a fire that was so late; return what is to be told."""
    told = []
    for seconds in late:
        overload.fire_stored(fires)
        found = overload.looked(seconds)
        told += [] if found is None else [found]
    return told


def test_one_standstill_is_no_overload_however_long() -> None:
    overload = Overload()
    on_time = [0.001] * (LOOKS - 1)
    assert looks(overload, *on_time, 30.0, *on_time, 30.0, *on_time) == []
    assert not overload.is_on


def test_a_burst_is_no_overload() -> None:
    overload = Overload()
    assert looks(overload, *[0.0] * LOOKS) == []
    assert looks(overload, 0.0, 0.0, fires=5.0) == []
    assert looks(overload, *[0.0] * LOOKS) == []


def test_a_loop_that_is_late_at_half_of_the_looks_is_told_at_once_and_only_once() -> None:
    overload = Overload()
    assert looks(overload, *[LATE, 0.0] * (LOOKS // 2)) == [Lateness(LATE, 0.0)]
    assert looks(overload, *[LATE] * (SAID_AGAIN_LOOKS - 2)) == []
    assert looks(overload, LATE) == [Lateness(LATE, 0.0)], "a minute has passed"
    looks(overload, *[0.0] * LOOKS)
    assert not overload.is_on


def test_fires_that_are_late_again_and_again_are_told_although_the_loop_is_on_time() -> None:
    overload = Overload()
    assert looks(overload, *[0.0] * LOOKS, fires=2.0) == [Lateness(0.0, 2.0)]
