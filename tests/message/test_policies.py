"""Policies: which are accepted, which are rejected and why, and what they do to the fire times of a schedule."""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from nats_scheduler.message.definition import Definition, read_definition
from nats_scheduler.message.definition_block import definition_block
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.policies import (
    DEFAULT_GRACE_NS,
    MAX_EXCEPT_PARTS,
    MAX_TEXT_CHARS,
    NO_POLICIES,
    POLICY_NAMES,
    X_TARGET,
    Kept,
    Missed,
    Policies,
    PolicyText,
    named_policies,
    policies_text,
    policy_called,
    policy_header,
    policy_words,
    syntax_of,
    value_fault,
)
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.spread import hashed_part, offset_of
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.observe.explanations import ANY_STREAM_RULES
from nats_scheduler.schedule.bounds import MAX_LIMIT, Bounds
from nats_scheduler.schedule.calendars import Calendar
from nats_scheduler.schedule.clock_policy import ClockPolicy, Fold, Gap
from nats_scheduler.schedule.days import DayRows, Days
from nats_scheduler.schedule.instants import MILLISECOND, SECOND, days_from_civil
from nats_scheduler.schedule.patterns import Cron, Syntax
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.blocks import block_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "policies.md"
RULES = StreamRules("ANY", (">",), allow_msg_ttl=True)
SUBJECT = "orders.s1"
STORED_AT = 1_790_000_000 * SECOND
"""2026-09-21T14:13:20Z."""
EVERY = "@every 1h"
AT = "@at 2026-12-24T09:00:00Z"
DAILY = "0 0 9 * * *"


def policy_block(dialect: Dialect, pattern: str, policies: Iterable[tuple[str, str]]) -> bytes:
    """Return the block of a schedule with policies, named without the prefix."""
    prefix = dialect.schedule.decode()
    headers = [(prefix, pattern), (f"{prefix}-Target", "orders.due")]
    return block_of(*headers, *((f"{prefix}-{name}", value) for name, value in policies))


def read(
    pattern: str, *policies: tuple[str, str], dialect: Dialect = ADR51, rules: StreamRules = RULES
) -> Definition | Rejection:
    found = read_definition(policy_block(dialect, pattern, policies), SUBJECT, rules, dialect, STORED_AT)
    assert found is not None
    return found


def accepted(pattern: str, *policies: tuple[str, str], dialect: Dialect = ADR51) -> Definition:
    found = read(pattern, *policies, dialect=dialect)
    assert isinstance(found, Definition), str(found)
    return found


def rejected(pattern: str, *policies: tuple[str, str]) -> Rejection:
    found = read(pattern, *policies)
    assert isinstance(found, Rejection)
    assert (found.code, found.description) == (0, "schedule policy is invalid")
    assert "not of the server" in str(found)
    return found


def test_a_policy_is_called_by_any_name_that_means_it() -> None:
    for given in ("X-Done-Within", "done-within", " X-DONE-WITHIN "):
        assert policy_called(given) == "X-Done-Within"
    assert [policy_called(given) for given in ("", "X-", "X-Paused", "Nats-Schedule-X-Limit")] == [None] * 4


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_each_policy_is_read_in_both_spellings(dialect: Dialect) -> None:
    definition = accepted(
        EVERY,
        ("X-Start", "2026-10-01T00:00:00+02:00"),
        ("X-End", "2026-11-01T00:00:00.5Z"),
        ("X-Limit", "7"),
        ("X-Anchor", "2026-01-01T00:30:00Z"),
        ("X-Except", "2026-12-27..2027-01-01, 2026-12-25"),
        ("X-Excepted", "skip"),
        ("X-Grace", "1m"),
        ("X-Jitter", "1h30m"),
        ("X-Missed", "all 12"),
        ("X-Report", "true"),
        ("X-Debounce", "true"),
        ("X-Overlap", "queue"),
        ("X-Consumer", "billing"),
        ("X-Timeout", "2h"),
        ("X-Done-Within", "90m"),
        ("X-Spread", "10m"),
        ("X-Note", "Rückfragen: Anna"),
        ("X-Owner", "billing"),
        dialect=dialect,
    )
    policies = definition.terms.policies
    assert (policies.note, policies.owner) == ("Rückfragen: Anna", "billing")
    assert (policies.jitter, policies.spread) == (5_400 * SECOND, 600 * SECOND)
    assert (policies.missed, policies.grace) == (Missed(Kept.ALL, 12), 60 * SECOND)
    assert (policies.report, policies.debounce) == (True, True)
    assert (policies.overlap, policies.consumer, policies.timeout) == ("queue", "billing", 7_200 * SECOND)
    assert policies.done_within == 5_400 * SECOND
    assert [name for name, _value in policies.written] == sorted(
        set(POLICY_NAMES) - {"X-Clock-Change", "X-Every", "X-Syntax", "X-Target"}
    )
    assert dict(policies.written)["X-Start"] == "2026-10-01T00:00:00+02:00"
    bounds = policies.bounds
    assert bounds == Bounds(
        start=1_790_805_600 * SECOND,
        end=1_793_491_200 * SECOND + SECOND // 2,
        limit=7,
        anchor=1_767_227_400 * SECOND,
        excepted=DayRows(
            [
                Days(days_from_civil(2026, 12, 25), days_from_civil(2026, 12, 25)),
                Days(days_from_civil(2026, 12, 27), days_from_civil(2027, 1, 1)),
            ]
        ),
    )
    first = definition.timetable(STORED_AT).first_fire()
    assert first is not None
    assert format_rfc3339(first - offset_of(SUBJECT, 600 * SECOND)) == "2026-09-30T22:30:00Z"


def test_a_schedule_without_policies_is_what_it_was() -> None:
    plain = accepted(EVERY)
    assert plain.terms.policies is NO_POLICIES
    assert plain.pattern.base is plain.pattern
    noted = accepted(EVERY, ("X-Note", "a" * MAX_TEXT_CHARS), ("X-Owner", "b"), ("X-Jitter", "24h"))
    assert noted.pattern is plain.pattern, "what bounds nothing costs nothing"


def test_a_spread_moves_all_fires_of_a_subject_by_one_offset() -> None:
    for pattern in (AT, EVERY, DAILY):
        plain, moved = accepted(pattern), accepted(pattern, ("X-Spread", "10m"))
        offset = hashed_part(SUBJECT, 600_000) * MILLISECOND
        assert 0 < moved.pattern.offset == offset < 600 * SECOND
        before = [fire + offset for fire in plain.timetable(STORED_AT).fires(5)]
        assert moved.timetable(STORED_AT).fires(5) == before
        assert moved.pattern.text == pattern
    minutes = {offset_of(f"orders.s{number}", 600 * SECOND) // (60 * SECOND) for number in range(1_000)}
    assert minutes == set(range(10)), "all of it is used"


def test_each_value_for_missed_fires_is_read_and_written_as_it_was() -> None:
    for value, missed in {
        "once": Missed(),
        "skip": Missed(Kept.SKIP),
        "all": Missed(Kept.ALL),
        "all 1": Missed(Kept.ALL, 1),
        "all 1000000": Missed(Kept.ALL, 1_000_000),
    }.items():
        policies = accepted(AT, ("X-Missed", value)).terms.policies
        assert (policies.missed, str(policies.missed)) == (missed, value)
        assert (policies.grace, policies.report) == (DEFAULT_GRACE_NS, False)


IN_BERLIN = ("Time-Zone", "Europe/Berlin")


def test_each_value_for_changes_of_the_clock_is_read() -> None:
    values = {
        "both,skip": ClockPolicy(),
        "after": ClockPolicy(Gap.AFTER),
        "last , skip": ClockPolicy(fold=Fold.LAST),
        "after,first": ClockPolicy(Gap.AFTER, Fold.FIRST),
    }
    for value, clock in values.items():
        found = accepted(DAILY, IN_BERLIN, ("X-Clock-Change", value))
        assert isinstance(found.pattern, Cron)
        assert (found.terms.policies.clock, found.pattern.clock) == (clock, clock), value


def test_the_words_of_policies_say_what_they_change() -> None:
    for policies, words in (
        ({"X-Missed": "once", "X-Overlap": "allow", "X-Limit": "3", "X-Report": "true"}, ""),
        ({"X-Jitter": "90s"}, ", each sent up to 1m30s later, before the next"),
        ({"X-Spread": "10m"}, ", spread over 10m0s by its subject"),
        ({"X-Missed": "skip", "X-Grace": "1m"}, "; what is more than 1m0s late is skipped"),
        ({"X-Missed": "all 2"}, "; of missed fires the latest 2 are made up"),
        ({"X-Done-Within": "90m"}, "; a fire that is unfinished 1h30m0s later is reported"),
        ({"X-Overlap": "skip"}, "; a fire is skipped while the one before is unfinished"),
        (
            {"X-Overlap": "queue", "X-Timeout": "2h", "X-Missed": "all"},
            "; each missed fire is made up; a fire waits while the one before is unfinished, for 2h0m0s at most",
        ),
        (
            {"X-Clock-Change": "after,first"},
            "; times that the clock skips fire once, right after the gap"
            "; a time that the clock shows twice fires the first time",
        ),
    ):
        given = (DAILY, IN_BERLIN) if "X-Clock-Change" in policies else (EVERY,)
        assert policy_words(accepted(*given, *policies.items()).terms.policies) == words


def test_policies_of_a_schedule_that_a_server_fires_have_no_effect() -> None:
    rules = replace(RULES, has_policies=False)
    given = [("X-Limit", "1"), ("X-Note", "a"), ("X-Owner", "b"), ("X-Syntax", "quartz"), ("X-Zebra", "?")]
    for dialect, syntax in ((ADR51, None), (PORTABLE, Syntax.QUARTZ)):
        found = read(DAILY, *given, dialect=dialect, rules=rules)
        assert isinstance(found, Definition)
        assert found.terms.policies == Policies(tuple(map(PolicyText._make, given)), note="a", owner="b", syntax=syntax)
        debounced = read(DAILY, ("X-Debounce", "true"), dialect=dialect, rules=rules)
        assert isinstance(debounced, Definition)
        assert debounced.terms.policies == Policies((PolicyText("X-Debounce", "true"),), debounce=True)
        plain = read(DAILY, dialect=dialect, rules=rules)
        assert isinstance(plain, Definition)
        assert plain.terms.policies is NO_POLICIES
    assert syntax_of({"X-Syntax": "crontab"}) is Syntax.CRONTAB
    assert syntax_of({"X-Syntax": "cron"}) is None


def test_days_and_calendars_are_left_out_by_one_policy() -> None:
    christmas = Days(days_from_civil(2026, 12, 25), days_from_civil(2026, 12, 25))
    for value, days, names in (
        ("calendar:b, 2026-12-25 ,calendar:a,calendar:b", (christmas,), "ab"),
        (",".join(f"calendar:{letter}" for letter in "hgfedcba"), (), "abcdefgh"),
        (",".join(["2026-12-25"] * MAX_EXCEPT_PARTS), (christmas,), ""),
    ):
        policies = accepted(EVERY, ("X-Except", value)).terms.policies
        assert policies.bounds == Bounds(excepted=DayRows(days), calendars=tuple(map(Calendar, names)))
        assert policies.are_kept is bool(names)
    assert policy_header("X-Except", PORTABLE) == b"X-Nats-Schedule-X-Except"


WRONG = [
    (EVERY, "X-End", "2026-13-01T00:00:00Z", "is not a time: "),
    (EVERY, "X-Anchor", "2026-01-01T00:00:00.5Z", "has a fraction of a second"),
    (DAILY, "X-Anchor", "2026-01-01T00:00:00Z", "is where the grid of '@every' begins"),
    (EVERY, "X-Every", "2w from 2026-01-05", "is for patterns of fields: '@every' fires on all days"),
    (DAILY, "X-Every", "2w", "is '2w': expected days or weeks from one of them on, such as '2w from 2026-01-05'"),
    (DAILY, "X-Every", "1d from 2026-01-05", "is every 1d: expected 2d to 366d"),
    (DAILY, "X-Every", "54w from 2026-01-05", "is every 54w: expected 2w to 53w"),
    (DAILY, "X-Every", "٣d from 2026-01-05", "expected days or weeks"),
    (EVERY, "X-Clock-Change", "after", "is for patterns of the wall clock, and '@every 1h' does not"),
    (DAILY, "X-Clock-Change", "after", "has no effect without Nats-Schedule-Time-Zone: the clock of UTC is never"),
    *(
        (DAILY, "X-Clock-Change", value, "expected skip or after, both, first or last, or one of each, such as")
        for value in ("", "later", "first,last", "after,skip", "after," * 9_000)
    ),
    (DAILY, "X-Excepted", "later", "an excepted day may do: expected one of skip, next, previous"),
    (DAILY, "X-Excepted", "next", "has no effect without X-Except"),
    (EVERY, "X-Excepted", "next", "moves fires of patterns of fields: those of '@every' can only be left out"),
    (EVERY, "X-Limit", "0", f"expected 1 to {MAX_LIMIT:,}"),
    (EVERY, "X-Limit", "٣", "is not a number of fires"),
    (EVERY, "X-Except", "", "contains ''"),
    (EVERY, "X-Except", "2026-02-29", "contains '2026-02-29'"),
    (EVERY, "X-Except", "2027-01-01..2026-12-27", "ends before it begins"),
    (EVERY, "X-Except", ",".join(["2026-12-25"] * (MAX_EXCEPT_PARTS + 1)), "expected at most 1,000"),
    (EVERY, "X-Except", "2026-12-25, holidays", "or calendar:<name>"),
    (EVERY, "X-Except", "calendar:a b", "names the calendar 'a b': expected up to 64 letters"),
    (EVERY, "X-Except", ",".join(f"calendar:{n}" for n in range(9)), "names 9 calendars: expected at most 8"),
    (EVERY, "X-Jitter", "soon", "is not a duration: expected a duration such as"),
    (EVERY, "X-Jitter", "0s", "is not more than 0 and at most 24h0m0s"),
    (AT, "X-Jitter", "24h1ns", "is not more than 0 and at most 24h0m0s"),
    (EVERY, "X-Spread", "999ms", "is not 1s to 24h0m0s"),
    (AT, "X-Spread", "24h1ns", "is not 1s to 24h0m0s"),
    (EVERY, "X-Missed", "Once", "is none of once, skip, all"),
    (EVERY, "X-Missed", "all 0", "is not all with 1 to 1,000,000"),
    (EVERY, "X-Missed", "all 1000001", "is not all with 1 to 1,000,000"),
    (EVERY, "X-Missed", "all ٣", "is none of once, skip, all"),
    (EVERY, "X-Grace", "999ms", "is less than 1s: fires of a burst are that late"),
    (EVERY, "X-Report", "false", "is not 'true', the only value"),
    (EVERY, "X-Debounce", "1", "is not 'true'"),
    (EVERY, "X-Note", "", "is empty"),
    (EVERY, "X-Owner", "x" * (MAX_TEXT_CHARS + 1), "expected at most 256"),
    (EVERY, "X-Sart", "2026-01-01T00:00:00Z", "X-Start may be meant"),
    (EVERY, "X-START", "2026-01-01T00:00:00Z", "names are case-sensitive: X-Start may be meant"),
    (EVERY, "X-", "1", "is an unknown policy"),
    (EVERY, "X-Overlap", "Skip", "is not what a fire may do"),
    (EVERY, "X-Consumer", "", "is empty: expected the name of a consumer"),
    (EVERY, "X-Consumer", "a.b", "is no name of a consumer"),
    (EVERY, "X-Consumer", "a\udcff", "is not UTF-8"),
    (EVERY, "X-Consumer", "c" * 255, "has no effect without X-Overlap or X-Done-Within"),
    (EVERY, "X-Consumer", "c" * 256, "has 256 characters: expected at most 255"),
    (EVERY, "X-Done-Within", "999ms", "is less than 1s: work and its answer take time"),
    (EVERY, "X-Timeout", "later", "is not a duration: expected a duration such as"),
    (EVERY, "X-Timeout", "1h", "has no effect without X-Overlap"),
]


def test_what_is_wrong_is_rejected_with_what_is_expected() -> None:
    for pattern, name, value, reason in WRONG:
        fault = rejected(pattern, (name, value))
        assert (fault.header, fault.value) == (f"Nats-Schedule-{name}", value)
        assert reason in fault.reason, value


def test_the_name_of_a_policy_that_is_not_utf_8_is_shown() -> None:
    fault = rejected(EVERY, ("X-\udcff", "1"))
    assert (fault.header, fault.value) == ("Nats-Schedule-X-\\xff", "1")


def test_a_schedule_whose_bounds_leave_no_fire_is_rejected() -> None:
    for pattern, policies in (
        (AT, [("X-Start", "2026-12-24T09:00:01Z")]),
        (EVERY, [("X-Except", "2026-01-01..9999-12-31")]),
        (DAILY, [("X-End", "2026-09-24T00:00:00Z"), ("X-Except", "2026-09-22..2026-09-23")]),
        ("0 0 9 29 2 *", [("X-Every", "7d from 2026-01-05")]),
    ):
        fault = rejected(pattern, *policies)
        assert (fault.header, fault.value) == ("Nats-Schedule", pattern), policies
        assert fault.reason == (
            "never fires between its X-Start and X-End, on days that X-Every and X-Except leave: "
            "expected a fire within 5 years"
        )
    fault = rejected(EVERY, ("X-Start", "2026-12-01T00:00:00Z"), ("X-End", "2026-12-01T00:00:00Z"))
    assert fault.header == "Nats-Schedule-X-End"


# -- X-Overlap -----------------------------------------------------------------------------------------------------


def test_a_policy_that_asks_needs_a_consumer_on_a_stream_of_limits() -> None:
    for retention in ("limits", "workqueue"):
        rules = StreamRules.from_config({"name": "ORDERS", "subjects": ["orders.>"], "retention": retention})
        for asking, value in (("X-Overlap", "skip"), ("X-Done-Within", "1m")):
            found = read(EVERY, (asking, value), rules=rules)
            if retention == "limits":
                assert isinstance(found, Rejection)
                assert (found.code, found.header, found.value) == (0, f"Nats-Schedule-{asking}", value)
                assert found.reason.startswith("needs X-Consumer on this stream, which keeps what was acknowledged")
            else:
                assert isinstance(found, Definition)
            assert isinstance(read(EVERY, (asking, value), ("X-Consumer", "work-1"), rules=rules), Definition)
        assert isinstance(read(EVERY, ("X-Overlap", "allow"), rules=rules), Definition)


# -- X-Syntax ------------------------------------------------------------------------------------------------------


def test_a_portable_pattern_is_read_in_the_syntax_that_it_names() -> None:
    for pattern, syntax, first in (
        ("30 9 * * L5", "crontab", "2026-09-25T09:30:00Z"),
        ("0 30 9 15W * ? 2027", "quartz", "2027-01-15T09:30:00Z"),
        ("@daily", "quartz", "2026-09-22T00:00:00Z"),
    ):
        definition = accepted(pattern, ("X-Syntax", syntax), ("X-Note", "a"), dialect=PORTABLE)
        assert isinstance(definition.pattern, Cron)
        assert (definition.pattern.text, definition.pattern.syntax) == (pattern, syntax)
        assert definition.terms.policies.syntax == syntax
        fire = definition.timetable(STORED_AT).first_fire()
        assert fire is not None
        assert definition.pattern.format(fire) == first
        assert read_definition(definition_block(definition), SUBJECT, RULES, PORTABLE, STORED_AT) == definition


def test_an_unknown_syntax_or_a_pattern_it_cannot_read_is_rejected() -> None:
    for pattern, syntax, reason in (
        (DAILY, "Quartz", "is no syntax: expected crontab or quartz"),
        (EVERY, "crontab", "is for patterns of fields: '@every' means the same without it"),
        (AT, "quartz", "is for patterns of fields: '@at' means the same without it"),
    ):
        fault = read(pattern, ("X-Syntax", syntax), dialect=PORTABLE)
        assert isinstance(fault, Rejection)
        assert (fault.code, fault.header, fault.value) == (0, "X-Nats-Schedule-X-Syntax", syntax)
        assert reason in fault.reason
    for pattern, syntax, reason in (
        ("30 9 * * 5L", "crontab", "L comes first, as in L5"),
        ("0 30 9 * * *", "crontab", "expected 5 fields"),
        ("0 0 9 1 1 ? 2040", "quartz", "it does not fire within the next five years"),
    ):
        fault = read(pattern, ("X-Syntax", syntax), dialect=PORTABLE)
        assert isinstance(fault, Rejection)
        assert (fault.code, fault.header, fault.value) == (10189, "X-Nats-Schedule", pattern), "as an invalid pattern"
        assert reason in fault.reason


def test_a_syntax_is_portable_only() -> None:
    fault = rejected(DAILY, ("X-Syntax", "quartz"))
    assert fault.header == "Nats-Schedule-X-Syntax"
    assert "read beside X-Nats-Schedule only, as X-Nats-Schedule-X-Syntax" in fault.reason
    assert "this pattern has none" in rejected(EVERY, ("X-Syntax", "quartz")).reason
    for pattern, syntax in (("30 9 * * L5", "crontab"), ("0 0 9 ? * MON 2027", "quartz")):
        unread = read(pattern, ("X-Syntax", syntax))
        assert isinstance(unread, Rejection)
        assert unread.code == 10189, "a server checks the pattern first, and its code stays"
        assert unread.reason.endswith("X-Syntax is read beside X-Nats-Schedule only, as X-Nats-Schedule-X-Syntax")


def test_a_policy_counts_after_the_errors_of_the_server() -> None:
    block = block_of(("Nats-Schedule", EVERY), ("Nats-Schedule-X-Limit", "0"))
    found = read_definition(block, SUBJECT, RULES, ADR51, STORED_AT)
    assert isinstance(found, Rejection)
    assert found.code == 10190, "the target is missing"
    block = block_of(("Nats-Schedule-X-Limit", "0"))
    assert read_definition(block, SUBJECT, RULES, ADR51, STORED_AT) is None
    block = block_of(("X-Nats-Schedule-X-Syntax", "none"))
    assert read_definition(block, SUBJECT, RULES, PORTABLE, STORED_AT) is None


def test_policies_of_the_other_spelling_are_not_those_of_a_schedule() -> None:
    block = block_of(("Nats-Schedule", EVERY), ("Nats-Schedule-Target", "orders.due"), ("X-Nats-Schedule-X-Limit", "0"))
    found = read_definition(block, SUBJECT, RULES, ADR51, STORED_AT)
    assert isinstance(found, Definition)
    assert found.terms.policies is NO_POLICIES


def test_the_reference_has_a_row_for_each_policy() -> None:
    rows = re.findall(r"^\| `(X-[A-Za-z-]+)` \|", PAGE.read_text("utf-8"), re.M)
    assert sorted(rows) == sorted(POLICY_NAMES)


# -- X-Target --------------------------------------------------------------------------------------------------------

CRON_RULES = StreamRules("CRON", ("cron.>",), restrictions=Restrictions(targets=(), elsewhere=("jobs.>", "*.mail")))
CRON_SUBJECT = "cron.s1"
HOURLY = ("X-Nats-Schedule", "@every 1h")


def read_targeted(
    *headers: tuple[str, str], rules: StreamRules = CRON_RULES, dialect: Dialect = PORTABLE
) -> Definition | Rejection:
    found = read_definition(block_of(*headers), CRON_SUBJECT, rules, dialect, STORED_AT)
    assert found is not None
    return found


def rejected_target(
    *headers: tuple[str, str], rules: StreamRules = CRON_RULES, dialect: Dialect = PORTABLE
) -> Rejection:
    found = read_targeted(*headers, rules=rules, dialect=dialect)
    assert isinstance(found, Rejection)
    return found


def elsewhere(target: str) -> tuple[str, str]:
    return X_TARGET.decode(), target


def test_a_target_in_another_stream_is_the_target() -> None:
    found = read_targeted(HOURLY, elsewhere("jobs.run"), ("X-Nats-Schedule-Source", "cron.sample"))
    assert isinstance(found, Definition)
    assert (found.terms.target, found.terms.policies.target_stream) == ("jobs.run", "jobs.run")
    assert found.terms.source == "cron.sample"
    assert read_definition(definition_block(found), CRON_SUBJECT, CRON_RULES, PORTABLE, STORED_AT) == found
    assert isinstance(read_targeted(HOURLY, elsewhere("jobs.run"), rules=ANY_STREAM_RULES), Definition)
    for asking, value in (("X-Overlap", "skip"), ("X-Done-Within", "1m")):
        fault = rejected_target(HOURLY, elsewhere("jobs.run"), (f"X-Nats-Schedule-{asking}", value))
        assert (fault.code, fault.header) == (0, X_TARGET.decode())
        assert fault.reason.startswith(f"is beside {asking}")


def test_the_rules_of_the_other_stream_are_not_those_of_ours() -> None:
    found = read_targeted(
        HOURLY, elsewhere("jobs.run"), ("X-Nats-Schedule-TTL", "5m"), ("X-Nats-Schedule-Rollup", "sub")
    )
    assert isinstance(found, Definition)
    assert (found.terms.ttl, found.terms.rollup) == ("5m", True)
    here = replace(CRON_RULES, restrictions=Restrictions())
    target = ("X-Nats-Schedule-Target", "cron.due")
    assert rejected_target(HOURLY, target, ("X-Nats-Schedule-TTL", "5m"), rules=here).code == 10166, (
        "our stream has no TTLs"
    )


def test_a_target_in_another_stream_that_cannot_be_is_rejected() -> None:
    not_allowed = "is not among the targets in other streams that the operator allows on this stream: jobs.>, *.mail"
    for target, reason in {
        "": "is empty: expected a subject of another stream",
        "jobs.*": "is not a literal subject",
        "cron.due": "is a subject of stream 'CRON' itself: name it in X-Nats-Schedule-Target",
        "jobs.\x7f": "has characters that cannot be looked for: expected printable UTF-8",
        "$JS.API.STREAM.DELETE.CRON": "is one of the server's own subjects",
        "mail.out": not_allowed,
    }.items():
        fault = rejected_target(HOURLY, elsewhere(target))
        assert (fault.code, fault.header, fault.value) == (0, X_TARGET.decode(), target)
        assert fault.reason.startswith(reason)


def test_an_operator_who_means_subjects_of_buckets_has_to_say_so() -> None:
    def allowing(*allowed: str) -> StreamRules:
        return replace(CRON_RULES, restrictions=Restrictions(elsewhere=allowed))

    bucket = elsewhere("$KV.lamps.kitchen")
    for silent in (">", "*.lamps.>"):
        assert isinstance(read_targeted(HOURLY, bucket, rules=allowing(silent)), Rejection)
        assert isinstance(read_targeted(HOURLY, elsewhere("a.lamps.kitchen"), rules=allowing(silent)), Definition)
    assert isinstance(read_targeted(HOURLY, bucket, rules=allowing("$KV.lamps.>")), Definition)
    assert "that the operator allows on this stream: none" in rejected_target(HOURLY, bucket, rules=allowing()).reason


def test_a_schedule_has_one_target() -> None:
    rules = replace(CRON_RULES, restrictions=Restrictions())
    fault = rejected_target(HOURLY, elsewhere("jobs.run"), ("X-Nats-Schedule-Target", "cron.due"), rules=rules)
    assert (fault.code, fault.header) == (0, X_TARGET.decode())
    assert fault.reason == "is beside X-Nats-Schedule-Target: a schedule has one target"


def test_beside_the_headers_of_adr_51_it_is_refused() -> None:
    rules = replace(CRON_RULES, restrictions=Restrictions())
    headers = ("Nats-Schedule", "@every 1h"), ("Nats-Schedule-X-Target", "jobs.run")
    fault = rejected_target(*headers, rules=rules, dialect=ADR51)
    assert (fault.code, fault.header) == (10190, "Nats-Schedule-Target")
    assert "is missing or empty" in fault.reason
    assert "read beside X-Nats-Schedule only, as X-Nats-Schedule-X-Target" in fault.reason
    fault = rejected_target(*headers, ("Nats-Schedule-Target", "cron.due"), rules=rules, dialect=ADR51)
    assert (fault.code, fault.header) == (0, "Nats-Schedule-X-Target")
    assert "read beside X-Nats-Schedule only" in fault.reason


RIGHT = [
    *(("X-Anchor", "2026-01-01T00:00:00Z"), ("X-Clock-Change", "after"), ("X-Clock-Change", "first")),
    *(("X-Consumer", "c" * 255), ("X-Debounce", "true"), ("X-Done-Within", "1s"), ("X-End", "2026-01-01T00:00:00.5Z")),
    *(("X-Every", "2d from 2026-01-05"), ("X-Every", "53w from 2026-01-05"), ("X-Except", "2026-12-25")),
    *(("X-Excepted", "skip"), ("X-Excepted", "next"), ("X-Excepted", "previous"), ("X-Grace", "1s")),
    *(("X-Grace", f"{'0h' * 31}1s"), ("X-Jitter", "1ns"), ("X-Jitter", "24h"), ("X-Limit", "1")),
    *(
        ("X-Limit", str(MAX_LIMIT)),
        ("X-Missed", "all 1"),
        ("X-Missed", "all 1000000"),
        ("X-Note", "a" * MAX_TEXT_CHARS),
    ),
    *(("X-Overlap", "allow"), ("X-Overlap", "queue"), ("X-Owner", "b"), ("X-Report", "true"), ("X-Spread", "1s")),
    *(("X-Spread", "24h"), ("X-Start", "9999-12-31T00:00:00Z"), ("X-Syntax", "crontab"), ("X-Syntax", "quartz")),
    *(("X-Target", "jobs.run"), ("X-Timeout", "1ns")),
]
"""Values of all policies, their limits among them."""


def test_a_value_that_no_schedule_can_have_is_refused_with_the_name_that_was_given() -> None:
    assert {name for name, _value in RIGHT} == set(POLICY_NAMES)
    assert [one for one in RIGHT if value_fault(*one) is not None] == []
    for name, wrong in product(POLICY_NAMES, ("", "0", "-1s", f"{'0h' * 31}01s", "2026-13-01T00:00:00Z")):
        fault = value_fault(name, wrong)
        if wrong and name in ("X-Consumer", "X-Note", "X-Owner", "X-Target"):
            continue  # nearly any text may be one
        assert fault is not None, (name, wrong)
        assert (fault.code, fault.header, fault.value, bool(fault.reason)) == (0, name, wrong, True)


def test_policies_are_named_as_people_write_them() -> None:
    assert named_policies([("limit", "3"), (" X-NOTE ", ""), ("x-grace", " 1m")]) == (
        *(PolicyText("X-Limit", "3"), PolicyText("X-Note", ""), PolicyText("X-Grace", " 1m")),
    )
    for pairs, header, value, reason in (
        ([("limit", "3"), (" Limits", "4")], "Limits", "4", "is no policy: X-Limit may be meant"),
        ([("Nats-Schedule-X-Ower", "a")], "Nats-Schedule-X-Ower", "a", "is no policy: X-Owner may be meant"),
        ([("zebra", "a")], "zebra", "a", "is no policy: expected one of X-Anchor, X-Clock-Change, "),
        ([("nats-schedule-spead", "a")], "nats-schedule-spead", "a", "is no policy: X-Spread may be meant"),
        ([("x-nats-schedule-spead", "a")], "x-nats-schedule-spead", "a", "is no policy: X-Spread may be meant"),
        ([("limit", "3"), ("note", "a"), (" x-limit ", "4")], "x-limit", "4", "is given twice: X-Limit of '3' is too"),
    ):
        fault = named_policies(pairs)
        assert isinstance(fault, Rejection), pairs
        assert (fault.code, fault.header, fault.value) == (0, header, value)
        assert reason in fault.reason


def test_the_policies_that_change_fires_are_one_text() -> None:
    given = ("X-Debounce", "true"), ("X-Limit", "3"), ("X-Note", "a"), ("X-Owner", "b"), ("X-Report", "true")
    assert policies_text(accepted(EVERY, *given).terms.policies) == "X-Limit 3, X-Report true"
