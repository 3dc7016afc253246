"""Durations are parsed and printed as in Go, with its limits; TTLs as the server parses `Nats-TTL`, oddities too."""

from nats_scheduler.schedule.durations import NEVER, format_duration, parse_duration, parse_ttl
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.schedule.invalid import Invalid

LARGEST = (1 << 63) - 1

READ = {
    "0": 0,
    "-0": 0,
    "-1.5h": -90 * MINUTE,
    ".5m": 30 * SECOND,
    "1s1h1s": HOUR + 2 * SECOND,
    "1\u00b5s1\u03bcs": 2_000,
    "0.9999999999s": 999_999_999,
    "0" * 5_000 + "1s": SECOND,
    "9223372036854775807ns": LARGEST,
    "-9223372036854775808ns": -LARGEST - 1,
    "9223372036854775808ns9223372036854775808ns": 0,  # the sum wraps
    # Digits beyond 64 bits are cut off.
    **{f"0.922337203685477580{last}{more}s": 922_337_203 for last in "789" for more in ("", "9" * 50)},
}
REFUSED = [
    *("", "+", "1", "00", ".s", "1 s", "1s\n", "1S", "--1s", "1.2.3s", "\u0661s", "\u00b2s", "9" * 5_000 + "s"),
    "-9223372036854775809ns",
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


# -- TTLs ----------------------------------------------------------------------------------------------------------

TTLS = {
    "NeVeR": NEVER,
    "5m": 300,
    "300": 300,
    "2.9s": 2,
    "00": 0,  # two zeros are no TTL
    "9000000000.9999999s": 9_000_000_001,  # as on the server, it goes through a float
    # Many digits wrap.
    "9223372036854775807": (1 << 63) - 1,
    "18446744073709551621": 5,
    "7" + "0" * 5_000 + "9": 9,
}
REFUSED_TTLS = ["", "0", "-1", "1.5", "1d", "5 ", "5\n", "\u0665", "\u00b2"]
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
