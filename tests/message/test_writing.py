"""Every definition that can be read is written so that it is read again."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.definition import Definition, read_definition
from nats_scheduler.message.definition_block import defined, definition_block
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.headers import header_items
from nats_scheduler.message.policies import Policies, PolicyText
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.bounds import Bounded, Bounds
from nats_scheduler.schedule.instants import SECOND
from tests.harness.blocks import block_of
from tests.harness.seeds import draws
from tests.message.blocks import meaning, odd_blocks, proper_blocks
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


@settings(max_examples=draws(30))
@given(st.one_of(odd_blocks, proper_blocks), st.sampled_from(["orders.s1", "s"]))
def test_every_definition_that_can_be_read_can_be_written(block: bytes, subject: str) -> None:
    reading = read_message(block, subject, STORED_AT, RULES, DIALECTS)
    if reading is not None and reading.definition is not None:
        written = definition_block(reading.definition)
        again = meaning(read_message(written, subject, STORED_AT, RULES, DIALECTS))
        assert again.definition == reading.definition
        assert again.cancels is None, "a cancel is no part of a definition"


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


def test_the_policies_of_terms_apply_to_the_pattern_but_for_a_spread() -> None:
    policies = Policies(written=(PolicyText("X-Limit", "2"),), bounds=Bounds(limit=2), spread=SECOND)
    made = defined("@every 1h", Terms(ADR51, "orders.due", None, "", False, policies))
    assert (made.pattern, made.terms.policies) == (Bounded(read_pattern("@every 1h"), Bounds(limit=2)), policies)


def test_a_definition_that_no_message_can_have_is_not_written() -> None:
    for target in ("orders.due\r\nNats-TTL: 1s", " orders.due"):
        definition = definition_of("@every 1h", target=target)
        with pytest.raises(ValueError, match=r"Nats-Schedule-Target of ' ?orders.due.*' is not one line"):
            definition_block(definition)
