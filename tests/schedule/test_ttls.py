"""TTLs are parsed as the server parses `Nats-TTL`, oddities included."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.schedule.durations import NEVER, parse_ttl
from nats_scheduler.schedule.invalid import Invalid


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("never", NEVER), ("NeVeR", NEVER), ("5m", 300), ("300", 300), ("1h30m", 5_400), ("+5s", 5), ("05", 5)],
)
def test_a_ttl_is_a_duration_or_seconds_or_never(text: str, seconds: int) -> None:
    assert parse_ttl(text) == seconds


def test_a_ttl_drops_the_part_below_a_second() -> None:
    assert parse_ttl("2.9s") == 2


def test_a_ttl_of_two_zeros_is_no_ttl() -> None:
    assert parse_ttl("00") == 0


def test_a_ttl_goes_through_a_float_as_on_the_server() -> None:
    assert parse_ttl("9000000000.9999999s") == 9_000_000_001


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("9223372036854775807", (1 << 63) - 1),
        ("18446744073709551616", 0),
        ("18446744073709551621", 5),
        ("1" + "0" * 5_000, 0),
        ("7" + "0" * 5_000 + "9", 9),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_ttl_of_many_digits_wraps_as_on_the_server(text: str, seconds: int) -> None:
    assert parse_ttl(text) == seconds


@given(st.integers(0, 10**90))
def test_digits_wrap_at_64_bits_and_are_refused_where_that_is_negative(number: int) -> None:
    word = number % (1 << 64)
    text = f"0{number}"
    assert parse_ttl(text) == (Invalid(text, "more seconds than fit in 63 bits") if word >> 63 else word)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0s",
        "999ms",
        "-1",
        "-1s",
        "+5",
        "1.5",
        "1d",
        "5 ",
        " 5",
        "5\n",
        "soon",
        "\u0665",
        "\u00b2",
        "9223372036854775808",
    ],
)
def test_what_the_server_refuses_is_refused(text: str) -> None:
    assert isinstance(parse_ttl(text), Invalid)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("999ms", "a TTL is at least 1s"),
        ("soon", "expected a duration such as 5m, a number of seconds or 'never'"),
        ("9223372036854775808", "more seconds than fit in 63 bits"),
    ],
)
def test_the_reason_shows_the_ttl_and_what_was_expected(text: str, reason: str) -> None:
    assert parse_ttl(text) == Invalid(text, reason)


def test_a_ttl_of_one_second_is_the_shortest() -> None:
    assert parse_ttl("1s") == 1
