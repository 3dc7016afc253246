"""An overload is reported when it begins and once a minute; a short standstill, or a burst, is no overload."""

from nats_scheduler.observe.overload import REPEAT_SAMPLES, WINDOW_SAMPLES, Lateness, Overload

LATE = 0.3


def samples(overload: Overload, *late: float, fires: float = 0.0) -> list[Lateness]:
    """Take one sample for each number, after a fire that was `fires` seconds late; return what is reported."""
    reported = []
    for seconds in late:
        overload.record_fire(fires)
        found = overload.sample(seconds)
        reported += [] if found is None else [found]
    return reported


def test_one_standstill_is_no_overload_however_long() -> None:
    overload = Overload()
    on_time = [0.001] * (WINDOW_SAMPLES - 1)
    assert samples(overload, *on_time, 30.0, *on_time, 30.0, *on_time) == []
    assert not overload.is_on


def test_a_burst_is_no_overload() -> None:
    overload = Overload()
    assert samples(overload, *[0.0] * WINDOW_SAMPLES) == []
    assert samples(overload, 0.0, 0.0, fires=5.0) == []
    assert samples(overload, *[0.0] * WINDOW_SAMPLES) == []


def test_a_loop_that_is_late_in_half_of_the_samples_is_reported_immediately_and_only_once() -> None:
    overload = Overload()
    assert samples(overload, *[LATE, 0.0] * (WINDOW_SAMPLES // 2)) == [Lateness(LATE, 0.0)]
    assert samples(overload, *[LATE] * (REPEAT_SAMPLES - 2)) == []
    assert samples(overload, LATE) == [Lateness(LATE, 0.0)], "a minute has passed"
    samples(overload, *[0.0] * WINDOW_SAMPLES)
    assert not overload.is_on


def test_fires_that_are_repeatedly_late_are_reported_although_the_loop_is_on_time() -> None:
    overload = Overload()
    assert samples(overload, *[0.0] * WINDOW_SAMPLES, fires=2.0) == [Lateness(0.0, 2.0)]
