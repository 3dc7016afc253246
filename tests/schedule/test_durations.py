"""Durations are parsed and printed as in Go, with Go's limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.schedule.durations import format_duration, parse_duration
from nats_scheduler.schedule.instants import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.invalid import Invalid

LARGEST = (1 << 63) - 1
UNITS = {
    "ns": 1,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,
    "\u03bcs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}

READ = {
    "0": 0,
    "-0": 0,
    "+0": 0,
    "1s": SECOND,
    "+1s": SECOND,
    "-1.5h": -90 * MINUTE,
    ".5m": 30 * SECOND,
    "1.m": MINUTE,
    "1s1h1s": HOUR + 2 * SECOND,
    "0.9999999999s": 999_999_999,
    "0.3333333333333333333h": 1_200 * SECOND,
    "1" + "." + "0" * 400 + "1s": SECOND,
    "0" * 5_000 + "1s": SECOND,
    "9223372036854775807ns": LARGEST,
    "-9223372036854775808ns": -LARGEST - 1,
    "2562047h47m16.854775807s": LARGEST,
}

REFUSED = [
    "",
    "+",
    "-",
    "1",
    "00",
    "s",
    ".s",
    "-.s",
    "1 s",
    " 1s",
    "1s ",
    "1s\n",
    "1S",
    "1d",
    "1w",
    "1e3s",
    "0x1s",
    "1_0s",
    "--1s",
    "1s-2s",
    "1.2.3s",
    "\u0661s",
    "\u00b2s",
    "9223372036854775808ns",
    "-9223372036854775809ns",
    "2562047h47m16.854775808s",
    "9" * 5_000 + "s",
    "3000000h",
]


@pytest.mark.parametrize("text", READ, ids=lambda text: text[:40])
def test_durations_are_read_as_go_reads_them(text: str) -> None:
    assert parse_duration(text) == READ[text]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_what_go_refuses_is_refused(text: str) -> None:
    assert isinstance(parse_duration(text), Invalid)


def test_a_sum_of_two_largest_terms_wraps_to_zero() -> None:
    assert parse_duration("9223372036854775808ns9223372036854775808ns") == 0


def test_the_reason_names_an_unknown_unit() -> None:
    known = "(ns, us, µs, ms, s, m and h are known)"
    assert parse_duration("1d") == Invalid("1d", f"unknown unit 'd' {known}")
    long = "1" + "d" * 21
    assert parse_duration(long) == Invalid(long, f"unknown unit '{'d' * 20}' {known}"), "a header may hold 64 KB"


@pytest.mark.parametrize("last", "789")
def test_digits_beyond_64_bits_are_cut_off(last: str) -> None:
    assert parse_duration(f"0.922337203685477580{last}s") == 922_337_203
    assert parse_duration(f"0.922337203685477580{last}{'9' * 50}s") == 922_337_203


def test_the_reason_for_one_too_many_shows_the_duration() -> None:
    assert parse_duration("9223372036854775807ns") == LARGEST
    for text in ("9223372036854775808ns", "2562047h47m16.854775808s"):
        assert parse_duration(text) == Invalid(text, "longer than 2562047h47m16.854775807s"), text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (999, "999ns"),
        (1_000, "1\u00b5s"),
        (1_100, "1.1\u00b5s"),
        (999_990, "999.99\u00b5s"),
        (1_000_000, "1ms"),
        (2_200_000, "2.2ms"),
        (999_999_999, "999.999999ms"),
        (SECOND, "1s"),
        (1_500_000_000, "1.5s"),
        (5 * MINUTE, "5m0s"),
        (HOUR + 1, "1h0m0.000000001s"),
        (-90 * MINUTE, "-1h30m0s"),
        (LARGEST, "2562047h47m16.854775807s"),
        (-LARGEST - 1, "-2562047h47m16.854775808s"),
    ],
)
def test_durations_are_printed_as_go_prints_them(ns: int, text: str) -> None:
    assert format_duration(ns) == text


@given(st.integers(-LARGEST - 1, LARGEST))
def test_a_printed_duration_is_read_back(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(sorted(UNITS))), min_size=1, max_size=6))
def test_terms_add_up_in_any_order(terms: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in terms)
    assert parse_duration(text) == sum(count * UNITS[unit] for count, unit in terms)


@given(st.integers(0, 999_999_999), st.integers(0, 10_000))
def test_a_fraction_of_a_second_is_exact(fraction: int, whole: int) -> None:
    assert parse_duration(f"{whole}.{fraction:09d}s") == whole * SECOND + fraction
