"""The headers that say of a fire for which time it is and what was dropped before it."""

import pytest

from nats_scheduler.message.generated import REPORT_NAMES, report_headers
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.schedule.patterns import Cron, Every, parse_pattern
from nats_scheduler.testing.clock import START


@pytest.mark.parametrize(
    ("text", "zone", "due", "previous"),
    [
        ("@every 1h", None, b"2026-01-01T02:00:00Z", b"2026-01-01T01:00:00Z"),
        ("0 0 * * * *", "Asia/Kathmandu", b"2026-01-01T07:45:00+05:45", b"2026-01-01T06:45:00+05:45"),
    ],
)
def test_times_are_written_as_those_of_the_next_fire(text: str, zone: str | None, due: bytes, previous: bytes) -> None:
    pattern = parse_pattern(text, zone)
    assert isinstance(pattern, Every | Cron)
    found = report_headers(pattern, START + 2 * HOUR, START + HOUR, 7)
    assert found == list(zip(REPORT_NAMES, (due, previous, b"7"), strict=True))


def test_a_fire_before_which_none_is_known_does_not_name_one() -> None:
    pattern = parse_pattern("@every 1h")
    assert isinstance(pattern, Every)
    found = report_headers(pattern, START + HOUR, None, 0)
    assert found == [(b"X-Nats-Schedule-X-Due", b"2026-01-01T01:00:00Z"), (b"X-Nats-Schedule-X-Missed", b"0")]
