"""Schedules are read and rejected in the server's order, with the server's codes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.message.definition import Definition, Terms, read_definition
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.reading import Reading, read_message
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.patterns import parse_pattern
from tests.harness.blocks import block_of
from tests.message.blocks import odd_blocks, portable
from tests.message.recorded import AT, REJECTIONS, Headers, Stream, schedule

SUBJECTS = ("orders.>", "sample.*")
RULES = {
    "full": StreamRules("ORDERS", SUBJECTS, allow_msg_ttl=True),
    "bare": StreamRules("ORDERS", SUBJECTS),
    "off": StreamRules("ORDERS", SUBJECTS, schedules_enabled=False),
}
STORED_AT = 1_790_000_000_000_000_000


def read(headers: Headers, rules: StreamRules = RULES["full"]) -> Definition | Rejection | None:
    """Read the definition of a message on `orders.s1` with these headers."""
    return read_definition(block_of(*headers), "orders.s1", rules, ADR51, STORED_AT)


def rejection(headers: Headers, rules: StreamRules = RULES["full"]) -> Rejection:
    """Read a message that is rejected."""
    refused = read(headers, rules)
    assert isinstance(refused, Rejection)
    return refused


def code_of(reading: Reading | None) -> int | None:
    """Return the code of a rejection."""
    return reading.rejection.code if reading and reading.rejection else None


@pytest.mark.parametrize(("stream", "headers", "code"), REJECTIONS)
def test_a_message_is_refused_with_the_code_of_the_server(stream: Stream, headers: Headers, code: int | None) -> None:
    reading = read_message(block_of(*headers), "orders.s1", STORED_AT, RULES[stream], [ADR51])
    assert code_of(reading) == code


@pytest.mark.parametrize(("stream", "headers", "code"), REJECTIONS)
def test_the_portable_twin_is_refused_with_the_same_code(stream: Stream, headers: Headers, code: int | None) -> None:
    reading = read_message(block_of(*portable(headers)), "orders.s1", STORED_AT, RULES[stream], [PORTABLE])
    assert code_of(reading) == code
    if reading and reading.rejection:
        assert reading.rejection.header in {*(name.decode() for name in PORTABLE.names), "Nats-Rollup", "Nats-TTL"}


def test_a_definition_holds_what_the_headers_say() -> None:
    headers = schedule("@every 5m", ttl="  1h", rollup="sub", source="sample.a", storage_rollup="Sub")
    pattern = parse_pattern("@every 5m")
    assert read(headers) == Definition(pattern, Terms(ADR51, "orders.due", "sample.a", "1h", True))  # type: ignore[arg-type]


def test_what_is_not_asked_for_is_empty() -> None:
    found = read(schedule())
    assert isinstance(found, Definition)
    assert (found.terms.source, found.terms.ttl, found.terms.rollup) == (None, "", False)


def test_a_target_need_not_be_utf_8() -> None:
    found = read_definition(
        block_of(("Nats-Schedule", AT), ("Nats-Schedule-Target", b"orders.\xff")), "orders.s1", RULES["full"], ADR51, 0
    )
    assert isinstance(found, Definition)
    assert found.terms.target == "orders.\udcff"


def test_a_stream_without_schedules_answers_10188() -> None:
    for headers in (schedule(), schedule("rubbish"), (("Nats-Schedule-Time-Zone", "Mars"),)):
        assert rejection(headers, RULES["off"]).code == 10188
    assert read((("Nats-Schedule-Time-Zone", "UTC"),), RULES["off"]) is None


def test_a_pattern_that_does_not_fire_within_the_horizon_is_refused() -> None:
    leap = schedule("0 0 0 29 2 *")
    stored_at = 3_981_744_000_000_000_000  # 2096-03-05: the year 2100 is no leap year.
    assert isinstance(read(leap), Definition)
    refused = read_definition(block_of(*leap), "orders.s1", RULES["full"], ADR51, stored_at)
    assert str(refused) == (
        "Nats-Schedule of '0 0 0 29 2 *' is not a valid pattern: it does not fire within the next five years "
        "(server code 10189)"
    )


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        (
            schedule(ttl="soon"),
            "Nats-Schedule-TTL of 'soon' is not a duration such as '5m' or 'never' (server code 10191)",
        ),
        (
            schedule(rollup="all"),
            "Nats-Schedule-Rollup of 'all' is not 'sub', the only roll-up of a generated message (server code 10192)",
        ),
        (
            (("Nats-Schedule", AT),),
            "Nats-Schedule-Target of '' is missing or empty: expected a subject such as 'orders.due'"
            " (server code 10190)",
        ),
        (
            schedule(target="orders.*"),
            "Nats-Schedule-Target of 'orders.*' is not a literal subject such as 'orders.due':"
            " no wildcards, blanks or empty tokens (server code 10190)",
        ),
        (
            schedule(target="orders.s1"),
            "Nats-Schedule-Target of 'orders.s1' is the subject of the schedule itself: expected another one"
            " (server code 10190)",
        ),
        (
            schedule(target="elsewhere"),
            "Nats-Schedule-Target of 'elsewhere' is not a subject of stream 'ORDERS':"
            " expected one of orders.>, sample.* (server code 10190)",
        ),
        (
            schedule(source="orders.due"),
            "Nats-Schedule-Source of 'orders.due' is also the target: sample another subject (server code 10203)",
        ),
        (
            schedule(storage_rollup="all"),
            "Nats-Rollup of 'all' is not 'sub': a schedule rolls up its own subject only (server code 10192)",
        ),
    ],
)
def test_a_refusal_says_what_was_expected_and_shows_the_value(headers: Headers, sentence: str) -> None:
    assert str(rejection(headers)) == sentence


def test_a_refused_pattern_says_what_is_wrong_with_it() -> None:
    assert "'@at '" in rejection(schedule("2030-01-01T00:00:00Z")).reason
    assert "Mars/Olympus" in str(rejection(schedule("@daily", time_zone="Mars/Olympus")))


@pytest.mark.parametrize(
    ("stream", "headers", "sentence"),
    [
        ("off", schedule("@every 5m"), "Nats-Schedule of '@every 5m' {no_schedules} (server code 10188)"),
        ("off", schedule("rubbish"), "Nats-Schedule of 'rubbish' {no_schedules} (server code 10188)"),
        ("off", (("Nats-Schedule-Time-Zone", "Mars"),), "{zone} of 'Mars' {no_schedules} (server code 10188)"),
        ("bare", schedule(ttl="5m"), "Nats-Schedule-TTL of '5m' {no_ttls} (server code 10166)"),
    ],
)
def test_a_refusal_names_the_stream_that_has_no_schedules_or_no_ttls(
    stream: Stream, headers: Headers, sentence: str
) -> None:
    assert str(rejection(headers, RULES[stream])) == sentence.format(
        zone="Nats-Schedule-Time-Zone",
        no_schedules="is on stream 'ORDERS', which has no schedules: set allow_msg_schedules",
        no_ttls="is on stream 'ORDERS', which has no message TTLs: set allow_msg_ttl",
    )


def test_a_schedule_on_a_wildcard_is_refused_with_what_its_purge_would_do() -> None:
    refused = read_definition(block_of(*schedule()), "orders.>", RULES["full"], ADR51, STORED_AT)
    assert str(refused) == (
        "subject of 'orders.>' is the subject of the schedule, but not a literal one: its purge would delete all that "
        "it matches (server code 10190)"
    )


@given(odd_blocks, st.text(max_size=10), st.sampled_from(DIALECTS), st.sampled_from(["full", "bare", "off"]))
def test_no_bytes_and_no_subject_are_wrong_enough_to_raise(
    block: bytes, subject: str, dialect: Dialect, stream: Stream
) -> None:
    found = read_definition(block, subject, RULES[stream], dialect, STORED_AT)
    assert not isinstance(found, Rejection) or str(found)
