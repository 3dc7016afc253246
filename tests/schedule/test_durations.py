"""Durations are parsed and printed as in Go, with its limits; TTLs as the server parses `Nats-TTL`, oddities too."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.durations import NEVER, format_duration, parse_duration, parse_ttl
from nats_scheduler.schedule.instants import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.invalid import Invalid
from tests.harness.seeds import draws

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
    # Digits beyond 64 bits are cut off.
    **{f"0.922337203685477580{last}{more}s": 922_337_203 for last in "789" for more in ("", "9" * 50)},
}
REFUSED = [
    *("", "+", "-", "1", "00", "s", ".s", "-.s", "1 s", " 1s", "1s ", "1s\n", "1S", "1d", "1w", "1e3s", "0x1s", "1_0s"),
    *("--1s", "1s-2s", "1.2.3s", "\u0661s", "\u00b2s", "9" * 5_000 + "s", "3000000h"),
    *("9223372036854775808ns", "-9223372036854775809ns", "2562047h47m16.854775808s"),
]
KNOWN_UNITS = "(ns, us, µs, ms, s, m and h are known)"
REASONS = {
    "1d": f"unknown unit 'd' {KNOWN_UNITS}",
    "1" + "d" * 21: f"unknown unit '{'d' * 20}' {KNOWN_UNITS}",  # a header may hold 64 KB
    "9223372036854775808ns": "longer than 2562047h47m16.854775807s",
    "2562047h47m16.854775808s": "longer than 2562047h47m16.854775807s",
}
PRINTED = {
    0: "0s",
    1: "1ns",
    999: "999ns",
    1_000: "1\u00b5s",
    1_100: "1.1\u00b5s",
    999_990: "999.99\u00b5s",
    1_000_000: "1ms",
    2_200_000: "2.2ms",
    999_999_999: "999.999999ms",
    SECOND: "1s",
    1_500_000_000: "1.5s",
    5 * MINUTE: "5m0s",
    HOUR + 1: "1h0m0.000000001s",
    -90 * MINUTE: "-1h30m0s",
    LARGEST: "2562047h47m16.854775807s",
    -LARGEST - 1: "-2562047h47m16.854775808s",
}


def test_durations_are_read_and_refused_as_go_does() -> None:
    assert {text: parse_duration(text) for text in READ} == READ
    assert [text for text in REFUSED if not isinstance(parse_duration(text), Invalid)] == []
    assert {text: parse_duration(text) for text in REASONS} == {
        text: Invalid(text, reason) for text, reason in REASONS.items()
    }
    assert {duration: format_duration(duration) for duration in PRINTED} == PRINTED


def test_a_sum_of_two_largest_terms_wraps_to_zero() -> None:
    assert parse_duration("9223372036854775808ns9223372036854775808ns") == 0


@settings(max_examples=draws(30))
@given(st.integers(-LARGEST - 1, LARGEST))
def test_a_printed_duration_is_read_back(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


@settings(max_examples=draws(30))
@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(sorted(UNITS))), min_size=1, max_size=6))
def test_terms_add_up_in_any_order(terms: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in terms)
    assert parse_duration(text) == sum(count * UNITS[unit] for count, unit in terms)


@settings(max_examples=draws(20))
@given(st.integers(0, 999_999_999), st.integers(0, 10_000))
def test_a_fraction_of_a_second_is_exact(fraction: int, whole: int) -> None:
    assert parse_duration(f"{whole}.{fraction:09d}s") == whole * SECOND + fraction


# -- TTLs ----------------------------------------------------------------------------------------------------------

TTLS = {
    "never": NEVER,
    "NeVeR": NEVER,
    "5m": 300,
    "300": 300,
    "1h30m": 5_400,
    "+5s": 5,
    "05": 5,
    "1s": 1,
    "00": 0,  # two zeros are no TTL
    "9000000000.9999999s": 9_000_000_001,  # as on the server, it goes through a float
}
WRAPPED = {
    "9223372036854775807": (1 << 63) - 1,
    "18446744073709551616": 0,
    "18446744073709551621": 5,
    "1" + "0" * 5_000: 0,
    "7" + "0" * 5_000 + "9": 9,
}
REFUSED_TTLS = [
    *("", "0", "0s", "999ms", "-1", "-1s", "+5", "1.5", "1d", "5 ", " 5", "5\n", "soon", "\u0665", "\u00b2"),
    "9223372036854775808",
]
REASONS_OF_TTLS = {
    "999ms": "a TTL is at least 1s",
    "soon": "expected a duration such as 5m, a number of seconds or 'never'",
    "9223372036854775808": "more seconds than fit in 63 bits",
}


def test_a_ttl_is_a_duration_or_seconds_or_never() -> None:
    assert {text: parse_ttl(text) for text in TTLS} == TTLS
    assert [text for text in REFUSED_TTLS if not isinstance(parse_ttl(text), Invalid)] == []
    assert {text: parse_ttl(text) for text in REASONS_OF_TTLS} == {
        text: Invalid(text, reason) for text, reason in REASONS_OF_TTLS.items()
    }


def test_a_ttl_drops_the_part_below_a_second() -> None:
    assert parse_ttl("2.9s") == 2


def test_a_ttl_of_many_digits_wraps_as_on_the_server() -> None:
    assert {text: parse_ttl(text) for text in WRAPPED} == WRAPPED


@settings(max_examples=draws(30))
@given(st.integers(0, 10**90))
def test_digits_wrap_at_64_bits_and_are_refused_where_that_is_negative(number: int) -> None:
    word = number % (1 << 64)
    text = f"0{number}"
    assert parse_ttl(text) == (Invalid(text, "more seconds than fit in 63 bits") if word >> 63 else word)
