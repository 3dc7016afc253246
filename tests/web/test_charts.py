"""The pictures: where bars, lines and shards are, and what their words say."""

import pytest

from nats_scheduler.message.foreign_json import time_of
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE
from nats_scheduler.service.schemas import InstanceDocument
from nats_scheduler.web.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Late, bar_chart, lateness_chart, nice_top
from nats_scheduler.web.pages import ranges_text, stream_shards

NOON = time_of("2026-03-01T12:00:00Z") or 0


@pytest.mark.parametrize(
    ("most", "top"),
    [(0, 1), (1, 2), (2, 2), (3, 4), (7, 8), (9, 10), (11, 20), (150, 200), (999, 1000), (20_000, 20_000)],
)
def test_a_scale_ends_with_a_round_number(most: int, top: int) -> None:
    assert nice_top(most) == top


def test_bars_stand_on_the_axis_and_fill_the_plot() -> None:
    chart = bar_chart([(NOON + n * MINUTE, count) for n, count in enumerate([0, 5, 10, 1000])], "fires")
    assert [bar.height for bar in chart.bars] == [0.0, 2.0, 2.0, HEIGHT - TOP - BOTTOM], "what is not zero is seen"
    assert all(bar.y + bar.height == HEIGHT - BOTTOM for bar in chart.bars)
    assert chart.bars[0].x >= LEFT
    assert chart.bars[-1].x + chart.bars[-1].width <= WIDTH - RIGHT
    assert [tick.text for tick in chart.beside] == ["0", "500", "1,000"]
    assert [tick.text for tick in chart.below] == ["12:00"]
    assert chart.description == "1,015 fires in 4 minutes. The most in one minute: 1,000 at 12:03 UTC."
    assert chart.bars[1].text == "12:01 UTC: 5 fires"


def test_a_picture_of_nothing_is_one() -> None:
    assert bar_chart([], "fires").description == "0 fires in 0 minutes."
    assert lateness_chart([]).description == "No fire in this time."


def minute(number: int, *milliseconds: float) -> Late:
    """Return a minute with these p50, p99 and most; without them, one without a fire."""
    if not milliseconds:
        return Late(NOON + number * MINUTE, 0, None, None, None)
    p50, p99, most = (value * MILLISECOND for value in milliseconds)
    return Late(NOON + number * MINUTE, 7, p50, p99, most)


def test_a_line_has_a_gap_where_nothing_fired() -> None:
    chart = lateness_chart([minute(0, 1, 2, 3), minute(1, 1, 2, 3), minute(2), minute(3, 1, 2, 3), minute(4, 1, 5, 40)])
    assert [len(line.pieces) for line in chart.lines] == [2, 2, 2]
    assert [len(line.points) for line in chart.lines] == [4, 4, 4]
    assert [tick.text for tick in chart.beside] == ["0.1 ms", "1 ms", "10 ms", "100 ms"]
    assert chart.description == "The latest fire was 40 ms late, at 12:04 UTC."
    assert chart.areas[2].text == "12:02 UTC: no fire"
    assert chart.areas[0].text == "12:00 UTC: 7 fires, median 1.00 ms, p99 2.00 ms, max 3.00 ms"


def test_lateness_grows_by_equal_steps_from_grid_line_to_grid_line() -> None:
    chart = lateness_chart([minute(0, 0.01, 1, 100)])
    heights = {line.name: line.points[0][1] for line in chart.lines}
    grid = {tick.text: tick.at for tick in chart.beside}
    assert heights == {"p50": grid["0.1 ms"], "p99": grid["1 ms"], "most": grid["100 ms"]}
    assert (grid["0.1 ms"], grid["100 ms"]) == (HEIGHT - BOTTOM, TOP)
    late = lateness_chart([minute(0, 1, 2, 70_000)])
    assert late.beside[-1].text == "100 s"


def instance(name: str, shards: list[int]) -> InstanceDocument:
    return {
        "id": name,
        "state": "alive",
        "since": None,
        "last_heartbeat": None,
        "age_nanoseconds": None,
        "serves": None,
        "unable": [],
        "holds": [{"stream": "O", "mode": "emulated", "shards": shards}],
    }


def test_each_shard_has_its_holder() -> None:
    (stream,) = stream_shards([instance("one", [0, 1, 99, -1]), instance("two", [63])])
    assert stream["holders"] == ["one", "one", *[None] * 61, "two"]
    assert stream["free"] == 61


def test_shards_are_listed_as_ranges() -> None:
    assert ranges_text([5, 0, 1, 2, 40, 41, 7]) == "0–2, 5, 7, 40–41"
    assert ranges_text([]) == ""
