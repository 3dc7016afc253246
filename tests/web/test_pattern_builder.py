"""The choices of a person and the patterns that they stand for: there and back, at clock changes, and hostile texts."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.cron_syntax import Syntax
from nats_scheduler.schedule.patterns import Pattern, parse_pattern
from nats_scheduler.web.pattern_builder import (
    KINDS,
    MONTH_NAMES,
    UNITS,
    WEEKDAY_NAMES,
    Built,
    Choices,
    Wrong,
    build,
    choices_of,
)
from tests.harness.seeds import draws

BERLIN = "Europe/Berlin"


def built(kind: str, syntax: Syntax | None = None, **chosen: Any) -> Built:
    """Return what choices stand for."""
    found = build(Choices(kind, **chosen), syntax)
    assert isinstance(found, Built), found
    return found


def faults(kind: str, syntax: Syntax | None = None, **chosen: Any) -> dict[str, str]:
    """Return what is wrong with choices."""
    found = build(Choices(kind, **chosen), syntax)
    assert isinstance(found, Wrong), found
    return dict(found.faults)


@pytest.mark.parametrize(
    ("kind", "chosen", "pattern", "words"),
    [
        ("every", {"number": "5", "unit": "minutes"}, "@every 5m", "every 5 minutes, counted from the time"),
        ("every", {"number": "2", "unit": "days"}, "@every 48h", "every 2 days, counted"),
        ("day", {"time": "9:30"}, "0 30 9 * * *", "every day at 09:30 in UTC"),
        ("week", {"time": "09:30", "weekdays": tuple(WEEKDAY_NAMES)[:5]}, "0 30 9 * * mon-fri", "every weekday at"),
        ("week", {"time": "09:30", "weekdays": ("sun", "wed")}, "0 30 9 * * wed,sun", "Wednesday and Sunday at 09:30"),
        ("year", {"time": "08:00", "day": "24", "month": "dec"}, "0 0 8 24 dec *", "24 December at 08:00"),
        ("year", {"time": "08:00", "day": "29", "month": "feb"}, "0 0 8 29 feb *", "every leap year on 29 February"),
    ],
)
def test_choices_stand_for_a_pattern(kind: str, chosen: dict[str, Any], pattern: str, words: str) -> None:
    found = built(kind, **chosen)
    assert (found.pattern, found.time_zone) == (pattern, chosen.get("zone", ""))
    assert words in found.words


def test_a_skipped_local_time_is_refused_and_a_double_one_noted() -> None:
    skipped = faults("once", date="2027-03-28", time="02:30", zone=BERLIN)
    assert skipped == {
        "time": "a time of '02:30': expected one that exists: 2027-03-28 02:30:00 does not exist in Europe/Berlin, "
        "where the clock goes forward over it"
    }
    assert "time" in faults("once", date="2011-12-30", time="12:00", zone="Pacific/Apia"), "a day that was left out"
    twice = built("once", date="2027-10-31", time="02:30", zone=BERLIN)
    assert twice.pattern == "@at 2027-10-31T02:30:00+02:00"
    assert "the second is @at 2027-10-31T02:30:00+01:00" in twice.notes[0]


HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "٣",
            "1\n",
            "-1",
            "+5",
            "1e9",
            "9" * 5000,
            "0x5",
            "../../etc/passwd",
            "/etc/localtime",
            "mon\r\nNats-Schedule: x",
        ]
    ),
    st.sampled_from(
        ["2026-12-24T00:00:00Z", "2026-12-24\n", "09:30\n", "24:00", "٠٩:٣٠", "\x00", "\ud800", "*", "1-5"]
    ),
    st.sampled_from(["", "5", "31", "09:30", "2026-12-24", BERLIN, *MONTH_NAMES, *UNITS, *WEEKDAY_NAMES]),
)


@settings(max_examples=draws(60))
@given(
    st.sampled_from([*KINDS, "", "x"]),
    st.fixed_dictionaries({one.name: HOSTILE for one in fields(Choices) if one.name not in ("kind", "weekdays")}),
    st.lists(HOSTILE, max_size=3),
    st.sampled_from([None, *Syntax]),
)
def test_any_text_is_refused_or_is_a_pattern(
    kind: str, texts: dict[str, str], weekdays: list[str], syntax: Syntax | None
) -> None:
    found = build(Choices(kind, weekdays=tuple(weekdays), **texts), syntax)
    if isinstance(found, Wrong):
        assert set(found.faults) <= {one.name for one in fields(Choices)}
        assert all("expected" in words or "longer than" in words for words in found.faults.values())
        assert max(map(len, found.faults.values())) < 300, "a long text is shown shortened"
        return
    assert found.pattern.isascii()
    assert found.pattern.isprintable()
    is_cron = not found.pattern.startswith("@")
    pattern = parse_pattern(found.pattern, found.time_zone or None, syntax if is_cron else None)
    assert isinstance(pattern, Pattern)


@pytest.mark.parametrize(
    ("pattern", "zone", "choices"),
    [
        ("@every 1h30m", "", Choices("every", number="90", unit="minutes")),
        ("@daily", BERLIN, Choices("day", time="00:00", zone=BERLIN)),
        ("0 30 9 ? * 1-5", "", Choices("week", time="09:30", weekdays=tuple(WEEKDAY_NAMES)[:5])),
        ("@at 2026-12-24T09:30:00+01:00", "", Choices("once", date="2026-12-24", time="08:30")),
        ("0 0 8 24 * *", "", Choices("month", time="08:00", day="24")),
        ("0 0 8 24 dec *", "", Choices("year", time="08:00", day="24", month="dec")),
        ("0 0 8 24 dec mon", "", Choices()),
    ],
)
def test_a_pattern_that_is_stored_is_shown_as_choices(pattern: str, zone: str, choices: Choices) -> None:
    assert choices_of(pattern, zone) == choices
