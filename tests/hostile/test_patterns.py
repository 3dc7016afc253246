"""Patterns, TTLs and time zones of any length and any letters are read, cheaply, with the server's answer."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.schedule.cron import parse_cron
from nats_scheduler.schedule.cron_fields import CronFields
from nats_scheduler.schedule.durations import parse_duration, parse_ttl
from nats_scheduler.schedule.invalid import Invalid, InvalidTimeZone
from nats_scheduler.schedule.patterns import Syntax, parse_pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.schedule.tzif import read_tzif
from nats_scheduler.schedule.zones import load_zone
from tests.hostile.effort import SECONDS_A_TEXT, at_most, examples
from tests.hostile.texts import LONG, PATTERNS, TTLS, VALID_LISTS, ZONES

pytestmark = pytest.mark.clause("hostile-patterns")

NOW = 1_800_000_000_000_000_000

SYNTAX_LETTERS = ["*", "1", "l", "w", "1w", "#", "1#1", "-", "/", ",", "?", "\u0130", "\0", "\udcff", "1-", "1/"]
_letters = st.sampled_from(
    [*"0159*/-,+? .@:TZhmsn", "µ", "\u0130", "\xa0", "\0", "\udcff", "never", "mon", "@every ", "@at "]
)
odd_texts = st.lists(st.one_of(_letters, st.sampled_from([*SYNTAX_LETTERS, " "])), max_size=40).map("".join)


@pytest.mark.slow
def test_a_pattern_of_any_length_is_cheap() -> None:
    """In each syntax."""
    for name, text in PATTERNS.items():
        for syntax in (None, *Syntax):
            with at_most(SECONDS_A_TEXT, (name, syntax)):
                pattern = parse_pattern(text) if syntax is None else parse_pattern(text, None, syntax)
                if pattern is not None and not isinstance(pattern, Invalid):
                    assert pattern.first_fire(NOW) is not None or syntax is not None, name


def test_a_list_that_fills_the_header_is_accepted_if_it_is_right() -> None:
    for name, text in VALID_LISTS.items():
        assert isinstance(parse_cron(f"{text} * * * * *"), CronFields), name
    for item in ("60", "x", "*x", "-05", "++5"):
        assert isinstance(parse_cron(f"{'1,' * 100}{item} * * * * *"), Invalid), item


def test_a_long_field_is_rejected_at_once_in_each_syntax() -> None:
    for field, letters in product(range(7), SYNTAX_LETTERS):
        fields = ["*"] * 7
        fields[field] = letters * (LONG // len(letters))
        for text, syntax in ((" ".join(fields), Syntax.QUARTZ), (" ".join(fields[1:6]), Syntax.CRONTAB)):
            if len(text) > LONG:
                with at_most(SECONDS_A_TEXT, (field, letters, syntax)):
                    assert isinstance(parse_pattern(text, None, syntax), Invalid)


def test_a_ttl_is_cheap_and_no_name_reaches_beyond_the_zones() -> None:
    for name, text in TTLS.items():
        with at_most(SECONDS_A_TEXT, name):
            parse_ttl(text)
    for name, text in ZONES.items():
        with at_most(SECONDS_A_TEXT, name):
            assert isinstance(load_zone(text), InvalidTimeZone), name


@pytest.mark.slow
@examples(300)
@given(odd_texts)
def test_no_text_raises(text: str) -> None:
    for read in (parse_duration, parse_rfc3339, parse_ttl, load_zone, parse_cron):
        read(text)
    for pattern in (parse_pattern(text), *(parse_pattern(text, None, syntax) for syntax in Syntax)):
        if pattern is not None and not isinstance(pattern, Invalid):
            first = pattern.first_fire(NOW)
            if first is not None:
                pattern.format(first)


@pytest.mark.slow
@examples(300)
@given(st.binary(max_size=200), st.sampled_from([b"", b"TZif2" + bytes(15), b"TZif" + bytes(16)]))
def test_no_zone_file_raises(data: bytes, start: bytes) -> None:
    read_tzif(start + data)
