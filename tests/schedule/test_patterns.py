"""Patterns: which are accepted, which are rejected and why, and when the three kinds fire."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND, round_to_second
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS
from nats_scheduler.schedule.patterns import (
    ALIASES,
    USUAL_AT,
    At,
    Cron,
    Every,
    InvalidTimeZone,
    parse_pattern,
    usual_at,
)
from tests.harness.seeds import draws
from tests.schedule.reading import at, first_fires, read, refused

NOON = 1_768_564_800 * SECOND
"""2026-01-16T12:00:00Z, a Friday."""


def test_each_kind_keeps_its_text_and_says_whether_it_repeats() -> None:
    texts = ["@at 2026-01-16T12:00:00Z", "@every 90s", "0 0 12 * * *", "@daily"]
    patterns = [read(text) for text in texts]
    assert [type(pattern) for pattern in patterns] == [At, Every, Cron, Cron]
    assert [pattern.text for pattern in patterns] == texts
    assert [pattern.repeats for pattern in patterns] == [False, True, True, True]


def read_out_of_bytes(text: str) -> At | None:
    found = re.fullmatch(USUAL_AT, text.encode())
    return None if found is None else usual_at(*found.groups())


@settings(max_examples=draws(40))
@given(
    st.from_regex(
        r"@at ?20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2]?[0-9]:[0-6][0-9]:[0-6][0-9]([.,][0-9]{1,11})?(Z|\+00:00|)",
        fullmatch=True,
    )
)
def test_a_time_that_is_read_out_of_bytes_is_the_one_of_the_text(text: str) -> None:
    usual = read_out_of_bytes(text)
    assert usual is None or usual == parse_pattern(text)


def test_usual_times_are_read_out_of_bytes() -> None:
    for text in ("@at 2026-01-16T12:00:00Z", "@at 2026-01-16T12:00:00.1Z", "@at 2026-01-16T12:00:00.10Z"):
        assert read_out_of_bytes(text) == read(text)


def test_the_zero_time_is_no_schedule() -> None:
    for text in ("", "@at 0001-01-01T00:00:00Z", "@at 0001-01-01T01:00:00.0+01:00", "@at 0001-01-01T0:00:00Z"):
        assert parse_pattern(text) is None, text
    assert parse_pattern("", "Europe/Amsterdam") is None


def test_the_time_zone_is_checked_before_the_pattern() -> None:
    for zone in ("", "Mars/Olympus"):
        for text in ("", "0 0 12 * * *", "@every 5s", "rubbish"):
            answer = parse_pattern(text, zone)
            assert isinstance(answer, InvalidTimeZone), (text, zone)
            assert answer.text == zone


def test_only_cron_takes_a_time_zone() -> None:
    at_takes_none = "@at takes no time zone, not even UTC: its time has an offset of its own"
    every_takes_none = "@every takes no time zone, not even UTC: it counts from the time at which it was stored"
    for zone in ("UTC", "Europe/Amsterdam", "Local"):
        for text in ("@at 2026-01-16T12:00:00Z", "@at 0001-01-01T00:00:00Z"):
            assert refused(text, zone) == at_takes_none
        for text in ("@every 5s", "@every rubbish"):
            assert refused(text, zone) == every_takes_none


def test_what_the_server_refuses_is_refused() -> None:
    assert read("@every 1s") == Every("@every 1s", SECOND)
    assert refused("@every 999999999ns") == "an interval is at least 1s"
    for text in REFUSED.strip("\n").replace("\n", "|").split("|"):
        assert refused(text)


REFUSED = """
@at|@at |@at 2026-01-16|@at  2026-01-16T12:00:00Z|@at\t2026-01-16T12:00:00Z|@AT 2026-01-16T12:00:00Z
@every|@every |@every 999ms|@every 0.9999999999s|@every 0|@every -5s|@every 1d|@every  5s|@every 5s |@every5s
@Daily|@daily | @daily|@reboot|@|rubbish|daily| |*
"""


def test_a_refusal_reads_as_a_sentence_and_says_what_is_missing() -> None:
    # The nats CLI 0.4.0 sends one for --schedule-after.
    assert "write '@at 2026-01-16T12:00:00Z'" in refused("2026-01-16T12:00:00Z")
    assert "a time follows '@at '" in refused("2026-01-16T12:00:00.123456789+01:00", "Europe/Amsterdam")
    assert all(known in refused("@minutely") for known in ["@at TIME", "@every DURATION", *ALIASES])
    assert str(parse_pattern("61 * * * * *")) == "'61 * * * * *': second 61 is above 59"
    assert str(parse_pattern("@every 5")) == "'@every 5': the unit is missing: write '@every 5s' for seconds"
    assert len(str(parse_pattern("x" * 60_000))) < 250
    shown = [str(parse_pattern("x" * length)).partition(":")[0] for length in (MAX_SHOWN_CHARS, MAX_SHOWN_CHARS + 1)]
    assert shown == [repr("x" * MAX_SHOWN_CHARS), repr("x" * MAX_SHOWN_CHARS + "…")]


def test_a_long_pattern_fires_in_its_zone_too() -> None:
    long = f"0 0 12 {','.join(['16'] * 100)} * *"
    for zone in (None, "Europe/Amsterdam"):
        assert read(long, zone).next_fire(NOON - 6 * HOUR, 0) == read("0 0 12 16 * *", zone).next_fire(
            NOON - 6 * HOUR, 0
        )


def test_equal_texts_are_equal_patterns_and_share_one_of_fields() -> None:
    assert read("0 0 12 * * *", "Asia/Tokyo") is read("0 0 12 * * *", "Asia/Tokyo")
    assert read("0 0 12 * * *", "Asia/Tokyo") != read("0 0 12 * * *", "Asia/Seoul")
    assert read("0 0 12 * * *") != read("0 0 12 * * *", "UTC")
    for text in ("@at 2026-01-16T12:00:00Z", "@every 90s", "0 0 12 * * *", "0 0 12 * * *" + " " * 500):
        assert read(text) == read(text)
        assert hash(read(text)) == hash(read(text))
        with pytest.raises(AttributeError):
            read(text).text = "other"  # type: ignore[misc]


def test_an_alias_fires_as_the_fields_it_stands_for() -> None:
    for alias, fields in ALIASES.items():
        for zone in (None, "America/New_York"):
            assert read(alias, zone).next_fire(NOON, 0) == read(fields, zone).next_fire(NOON, 0), alias


def test_a_moment_fires_once_whenever_it_was_stored_and_does_not_wrap() -> None:
    pattern = read("@at 2026-01-16T12:00:00.000000001Z")
    assert pattern.first_fire(0) == pattern.first_fire(NOON * 2) == NOON + 1
    assert pattern.next_fire(0, 0) is None
    assert pattern.latest_fire(NOON, NOON + 1, 0) == NOON + 1
    assert pattern.latest_fire(NOON + 1, NOON * 2, 0) is None
    assert pattern.latest_fire(0, NOON, 0) is None
    # On the server a time after 2262 often fires immediately.
    assert read("@at 9999-12-31T23:59:59Z").first_fire(0) == 253_402_300_799 * SECOND
    assert read("@at 0000-01-01T00:00:00Z").first_fire(0) == -62_167_219_200 * SECOND


def test_an_interval_begins_at_the_stored_second_and_is_not_rounded() -> None:
    pattern = read("@every 1s")
    assert pattern.first_fire(NOON + 180_000_000) == NOON + SECOND
    assert pattern.first_fire(NOON + 680_000_000) == NOON + 2 * SECOND
    # On the server `@every 1.4s` fires each second, and `@every 2.5s` every three seconds.
    fires = first_fires(read("@every 1.4s"), NOON, 5)
    assert fires == [NOON + number * 14 * SECOND // 10 for number in range(1, 6)]
    # On the server `@every 2562047h` fires in an endless loop.
    pattern = read("@every 2562047h")
    assert pattern.first_fire(NOON) == NOON + 2_562_047 * HOUR


@settings(max_examples=draws(30))
@given(
    st.integers(SECOND, 10**13), st.integers(-(10**19), 10**19), st.integers(-(10**19), 10**19), st.integers(0, 10**15)
)
def test_an_interval_fires_on_its_grid_and_nowhere_else(interval: int, stored_at: int, after: int, outage: int) -> None:
    pattern = Every("@every", interval)
    anchor = round_to_second(stored_at)
    fire = pattern.next_fire(after, stored_at)
    assert fire is not None
    assert fire > after
    assert (fire - anchor) % interval == 0
    assert fire >= anchor + interval
    assert fire - interval <= after or fire == pattern.first_fire(stored_at)
    latest = pattern.latest_fire(after, after + outage, stored_at)
    if latest is None:
        assert fire > after + outage
    else:
        assert after < latest <= after + outage
        beyond = pattern.next_fire(latest, stored_at)
        assert beyond is not None
        assert beyond > after + outage
        assert (latest - anchor) % interval == 0


def test_an_instant_is_printed_in_the_zone_of_the_schedule() -> None:
    printed = {
        ("@every 1.5s", None): "2026-01-16T12:00:00.5Z",
        ("0 0 12 * * *", None): "2026-01-16T12:00:00.5Z",
        ("0 0 12 * * *", "Europe/London"): "2026-01-16T12:00:00.5Z",
        ("0 0 12 * * *", "America/New_York"): "2026-01-16T07:00:00.5-05:00",
        ("@at 2026-01-16T12:00:00Z", None): "2026-01-16T12:00:00.5Z",
    }
    assert {(text, zone): read(text, zone).format(NOON + SECOND // 2) for text, zone in printed} == printed


def test_a_schedule_in_a_zone_fires_at_its_local_time() -> None:
    pattern = read("0 30 9 * * mon-fri", "America/New_York")
    fire = pattern.next_fire(NOON, 0)
    assert fire == NOON + 2 * HOUR + 30 * MINUTE
    assert pattern.format(fire) == "2026-01-16T09:30:00-05:00"
    assert at(pattern.format(fire)) == fire


def test_an_instant_is_a_fire_time_exactly_if_the_schedule_fires_there() -> None:
    for text, zone in (
        ("@at 2026-01-16T12:00:10Z", None),
        ("@every 10s", None),
        ("@every 1500ms", None),
        ("*/10 * * * * *", None),
        ("0 0 13 * * fri", "Europe/Amsterdam"),
    ):
        pattern = read(text, zone)
        for stored_at in (NOON, NOON + SECOND // 2):
            for instant in (NOON - SECOND + half * SECOND // 2 + odd for half in range(25) for odd in (-1, 0, 1)):
                is_next = pattern.next_fire(max(instant - 1, stored_at), stored_at) == instant
                expected = is_next if pattern.repeats else instant == NOON + 10 * SECOND
                assert pattern.is_fire(instant, stored_at) is expected, (text, stored_at - NOON, instant - NOON)
