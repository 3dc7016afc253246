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

_letters = st.sampled_from(
    [*"0159*/-,+? .@:TZhmsn", "µ", "\u0130", "\xa0", "\0", "\udcff", "never", "mon", "@every ", "@at "]
)
odd_texts = st.lists(_letters, max_size=40).map("".join)
_items = st.sampled_from(
    ["1", "01", "+5", "*", "?", "*-x", "*/2", "*-y/3", "5-10", "005-010/02", "50/3", "", "*/1000000"]
)


@pytest.mark.slow
def test_a_pattern_of_any_length_is_cheap() -> None:
    """In each syntax."""
    for name, text in PATTERNS.items():
        for syntax in (None, *Syntax):
            with at_most(SECONDS_A_TEXT, (name, syntax)):
                pattern = parse_pattern(text) if syntax is None else parse_pattern(text, None, syntax)
                if pattern is not None and not isinstance(pattern, Invalid):
                    assert pattern.first_fire(NOW) is not None or syntax is not None, name


def test_a_list_that_fills_the_header_is_accepted_and_one_with_a_wrong_item_is_refused() -> None:
    for name, text in VALID_LISTS.items():
        assert isinstance(parse_cron(f"{text} * * * * *"), CronFields), name
    for item in ("60", "x", "*x", "-05", "++5"):
        assert isinstance(parse_cron(f"{'1,' * 100}{item} * * * * *"), Invalid), item


@pytest.mark.slow
@examples(200)
@given(
    st.lists(st.one_of(_items, odd_texts.filter(lambda text: not set(text) & set(", \xa0"))), min_size=1, max_size=9)
)
def test_a_long_list_means_what_its_items_mean(items: list[str]) -> None:
    """The shortcut of long lists gives what each item by itself gives."""
    alone = [parse_cron(f"1,{item} * * * * *") for item in items]
    together = parse_cron(",".join([*items, *["1"] * 40]) + " * * * * *")
    if any(isinstance(one, Invalid) for one in alone):
        assert isinstance(together, Invalid)
        return
    assert isinstance(together, CronFields)
    expected = 0
    for one in alone:
        assert isinstance(one, CronFields)
        expected |= one.seconds
    assert together.seconds == expected


SYNTAX_LETTERS = ["*", "1", "l", "w", "1w", "#", "1#1", "-", "/", ",", "?", "\u0130", "\0", "\udcff", "1-", "1/"]


def test_a_long_field_is_rejected_at_once_in_each_syntax() -> None:
    for field, letters in product(range(7), SYNTAX_LETTERS):
        fields = ["*"] * 7
        fields[field] = letters * (LONG // len(letters))
        for text, syntax in ((" ".join(fields), Syntax.QUARTZ), (" ".join(fields[1:6]), Syntax.CRONTAB)):
            if len(text) > LONG:
                with at_most(SECONDS_A_TEXT, (field, letters, syntax)):
                    assert isinstance(parse_pattern(text, None, syntax), Invalid)


def test_a_search_for_days_that_are_rare_is_cheap() -> None:
    rare = ("L * ?", "31W * ?", "? * L5", "? 2 5#5", "29 2 ?", "? 2 1#1,2#5")
    for days, years in product(rare, ("*", "2027", "1970-2099", "1970-2099/5", "2096-2099")):
        with at_most(SECONDS_A_TEXT, (days, years)):
            pattern = parse_pattern(f"59 59 23 {days} {years}", "Africa/Cairo", Syntax.QUARTZ)
            if pattern is not None and not isinstance(pattern, Invalid):
                first = pattern.first_fire(NOW)
                assert first is None or pattern.latest_fire(NOW, first, NOW) == first, (days, years)


@pytest.mark.slow
@examples(300)
@given(st.lists(st.one_of(_letters, st.sampled_from([*SYNTAX_LETTERS, " "])), max_size=40), st.sampled_from(Syntax))
def test_no_text_raises_in_any_syntax(letters: list[str], syntax: Syntax) -> None:
    pattern = parse_pattern("".join(letters), None, syntax)
    if pattern is not None and not isinstance(pattern, Invalid):
        pattern.first_fire(NOW)


def test_a_ttl_of_any_length_is_cheap_and_no_name_reaches_beyond_the_zones() -> None:
    for name, text in TTLS.items():
        with at_most(SECONDS_A_TEXT, name):
            parse_ttl(text)
    for name, text in ZONES.items():
        with at_most(SECONDS_A_TEXT, name):
            assert isinstance(load_zone(text), InvalidTimeZone), name


@pytest.mark.slow
@examples(400)
@given(odd_texts)
def test_no_text_raises(text: str) -> None:
    for read in (parse_duration, parse_rfc3339, parse_ttl, load_zone, parse_cron):
        read(text)
    pattern = parse_pattern(text)
    if pattern is not None and not isinstance(pattern, Invalid):
        first = pattern.first_fire(NOW)
        if first is not None:
            pattern.format(first)


@pytest.mark.slow
@examples(300)
@given(st.binary(max_size=200), st.sampled_from([b"", b"TZif2" + bytes(15), b"TZif" + bytes(16)]))
def test_no_zone_file_raises(data: bytes, start: bytes) -> None:
    read_tzif(start + data)
