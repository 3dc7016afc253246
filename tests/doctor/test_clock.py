"""The bounds of a clock, and where two versions of a zone begin to differ."""

from datetime import UTC, datetime

import pytest

from nats_scheduler.doctor.clock import ZONES_COMPARED_NS, first_difference, offset_of
from nats_scheduler.doctor.facts import ClockReading
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.tzif import OffsetTable, read_tzif
from nats_scheduler.schedule.zone_files import package_zone_data

NOW = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("shown", "asked", "answered", "offset"),
    [
        (105, 100, 110, 0),  # somewhere between: no offset is shown
        (100, 100, 110, 0),
        (130, 100, 110, 20),  # ahead of the answer: so much at least
        (80, 100, 110, -20),
    ],
)
def test_only_what_the_way_of_the_answer_does_not_explain_is_an_offset(
    shown: int, asked: int, answered: int, offset: int
) -> None:
    assert offset_of(ClockReading("S", shown, asked, answered)) == offset


def test_equal_zones_do_not_differ() -> None:
    table = zone("Europe/Berlin")
    assert first_difference(table, table, NOW) is None


def test_zones_differ_from_the_first_instant_with_another_offset_on() -> None:
    summer = int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()) * SECOND
    assert first_difference(zone("Europe/Berlin"), zone("Africa/Lagos"), NOW) == summer
    assert first_difference(zone("Europe/Berlin"), zone("Asia/Tokyo"), NOW) == NOW


def test_what_differs_after_the_last_fire_that_is_searched_does_not_count() -> None:
    far = (NOW + ZONES_COMPARED_NS) // SECOND + 1
    assert first_difference(OffsetTable(0, (), ""), OffsetTable(0, ((far, 3600),), ""), NOW) is None
    assert first_difference(OffsetTable(0, (), ""), OffsetTable(0, ((far - 2, 3600),), ""), NOW) is not None


def zone(name: str) -> OffsetTable:
    table = read_tzif(package_zone_data(name) or b"")
    assert table is not None
    return table
