"""Writing a definition is the inverse of reading one, for every definition that can be read."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.definition import Definition, read_definition
from nats_scheduler.message.definition_block import defined, definition_block
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.headers import header_items
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.blocks import block_of
from tests.harness.seeds import draws
from tests.message.blocks import NAMES, meaning, odd_blocks, portable, proper_blocks
from tests.message.recorded import REJECTIONS
from tests.schedule.reading import read as read_pattern

SUBJECT = "orders.s1"
RULES = StreamRules("ANY", (">",), allow_msg_ttl=True)
STORED_AT = 1_790_000_000 * SECOND


def definition_of(
    text: str,
    zone: str | None = None,
    *,
    dialect: Dialect = ADR51,
    target: str = "orders.due",
    source: str | None = None,
    ttl: str = "",
    rollup: bool = False,
) -> Definition:
    return Definition(read_pattern(text, zone), Terms(dialect, target, source, ttl, rollup))


def read_again(definition: Definition) -> object:
    """Return what the block that is written for a definition reads to."""
    block = definition_block(definition)
    return read_definition(block, SUBJECT, RULES, definition.terms.dialect, STORED_AT)


def hides(subject: str, name: bytes) -> bool:
    """Return whether a subject holds a name twice, with one byte between at most: there a search ends."""
    return re.search(re.escape(name) + b".?" + re.escape(name), subject.encode("utf-8", "surrogateescape")) is not None


# Subjects that hold the names of headers are what can hide a header; two of them close together hide most.
_tokens = st.one_of(
    st.sampled_from(["orders", "due", "a*", "ümläut", "\udcff\udcfe", "x:y", *(name.decode() for name in NAMES)]),
    st.sampled_from([name.decode() * 2 for dialect in DIALECTS for name in dialect.names]),
    st.text(st.characters(min_codepoint=33, exclude_characters=".*>", exclude_categories=["Cs", "Z", "C"]), min_size=1),
)
subjects = st.lists(_tokens, min_size=1, max_size=3).map(".".join)
instants = st.integers(STORED_AT, STORED_AT + 2 * 366 * 86_400 * SECOND)
patterns = st.one_of(
    instants.map(lambda instant: (f"@at {format_rfc3339(instant)}", None)),
    instants.map(lambda instant: (f"@at {format_rfc3339(instant, 7_200)}", None)),
    st.integers(1_000, 10**9).map(lambda milliseconds: (f"@every {milliseconds}ms", None)),
    st.tuples(
        st.sampled_from(["@daily", "0 30 9 * * mon-fri", "\t*/5  * * * * *", "0 0 5 * * * ", "*/7 * * * * *\t"]),
        st.sampled_from([None, "UTC", "Europe/Berlin", "America/New_York"]),
    ),
)


@settings(max_examples=draws(50))
@given(
    patterns,
    st.sampled_from(DIALECTS),
    subjects,
    st.one_of(st.none(), subjects),
    st.sampled_from(["", "5m", "never", "NEVER", "00", "1h30m"]),
    st.booleans(),
)
def test_what_is_written_reads_to_the_same_definition(
    pattern: tuple[str, str | None], dialect: Dialect, target: str, source: str | None, ttl: str, rollup: bool
) -> None:
    definition = definition_of(*pattern, dialect=dialect, target=target, source=source, ttl=ttl, rollup=rollup)
    try:
        block = definition_block(definition)
    except ValueError:
        # Target and source hide each other: whatever its order, no message has this definition.
        assert source is not None
        assert hides(target, dialect.source)
        assert hides(source, dialect.target)
        return
    read = read_definition(block, SUBJECT, RULES, dialect, STORED_AT)
    if source == target or SUBJECT in (source, target):
        assert read != definition, "rejected, and not read as another definition"
    else:
        assert read == definition


@settings(max_examples=draws(50))
@given(st.one_of(odd_blocks, proper_blocks), st.sampled_from(["orders.s1", "s"]))
def test_every_definition_that_can_be_read_can_be_written(block: bytes, subject: str) -> None:
    reading = read_message(block, subject, STORED_AT, RULES, DIALECTS)
    if reading is not None and reading.definition is not None:
        written = definition_block(reading.definition)
        again = meaning(read_message(written, subject, STORED_AT, RULES, DIALECTS))
        assert again.definition == reading.definition
        assert again.cancels is None, "a cancel is no part of a definition"


def test_every_schedule_that_the_server_accepted_is_written_back() -> None:
    for dialect in DIALECTS:
        written = 0
        for headers in (headers for _stream, headers, code in REJECTIONS if code is None):
            items = portable(headers) if dialect is PORTABLE else headers
            definition = read_definition(block_of(*items), SUBJECT, RULES, dialect, STORED_AT)
            if isinstance(definition, Definition):
                assert read_again(definition) == definition, headers
                written += 1
        assert written > 15


def test_the_headers_are_written_in_the_order_of_their_documentation() -> None:
    definition = definition_of(
        "0 30 9 * * *", "Europe/Berlin", dialect=PORTABLE, source="sample.a", ttl="5m", rollup=True
    )
    assert definition_block(definition) == (
        b"NATS/1.0\r\nX-Nats-Schedule: 0 30 9 * * *\r\nX-Nats-Schedule-Time-Zone: Europe/Berlin\r\n"
        b"X-Nats-Schedule-Target: orders.due\r\nX-Nats-Schedule-Source: sample.a\r\nX-Nats-Schedule-TTL: 5m\r\n"
        b"X-Nats-Schedule-Rollup: sub\r\n\r\n"
    )


def test_a_subject_that_hides_a_header_is_written_behind_it() -> None:
    """A server stops its search at two occurrences of a name that are close together."""
    hiding = "a.Nats-Schedule-SourceNats-Schedule-SourceNats-Schedule-TTLNats-Schedule-TTL"
    definition = definition_of("@every 1h", target=hiding, source="orders.in", ttl="5m")
    usual = block_of(
        (ADR51.schedule, "@every 1h"), (ADR51.target, hiding), (ADR51.source, "orders.in"), (ADR51.ttl, "5m")
    )
    assert read_definition(usual, SUBJECT, RULES, ADR51, STORED_AT) != definition
    assert read_again(definition) == definition
    assert header_items(definition_block(definition))[-1] == (ADR51.target, hiding.encode())


def test_a_definition_is_not_made_of_an_invalid_pattern() -> None:
    for pattern, zone in (("@often", None), ("@daily", "Mars/Olympus"), ("@every 1h", "UTC"), ("", None)):
        with pytest.raises(ValueError, match=re.escape(f"{pattern!r} with the time zone {zone!r} is no pattern: ")):
            defined(pattern, Terms(ADR51, "orders.due", None, "", False), zone)


def test_a_definition_that_no_message_can_have_is_not_written() -> None:
    for target in ("orders.due\r\nNats-TTL: 1s", " orders.due"):
        definition = definition_of("@every 1h", target=target)
        with pytest.raises(ValueError, match=r"Nats-Schedule-Target of ' ?orders.due.*' is not one line"):
            definition_block(definition)
