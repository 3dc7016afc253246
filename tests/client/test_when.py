"""The times of a schedule are given in Python, checked by the language of the server, and previewed without a clock."""

import doctest
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from nats_scheduler.client import hourly_to_monthly, when
from nats_scheduler.client.hourly_to_monthly import daily, hourly, monthly, weekly
from nats_scheduler.client.times import MAX_DURATION_NS, datetime_of, instant_of, nanoseconds_of
from nats_scheduler.client.when import InvalidScheduleError, after, at, cron, every
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_what_is_said_is_a_pattern_of_the_server() -> None:
    for said, pattern, zone in (
        (at(datetime(2026, 11, 20, 9, tzinfo=BERLIN)), "@at 2026-11-20T08:00:00Z", None),
        (at(datetime(2026, 11, 20, 9, 0, 0, 250_000, tzinfo=UTC)), "@at 2026-11-20T09:00:00.25Z", None),
        (every(timedelta(seconds=1)), "@every 1s", None),
        (cron("0 30 9 * * mon-fri", tz=BERLIN), "0 30 9 * * mon-fri", "Europe/Berlin"),
        (cron("@daily", "UTC"), "@daily", "UTC"),
        (hourly(30, 15, tz="Asia/Kolkata"), "15 30 * * * *", "Asia/Kolkata"),
        (daily(time(9), BERLIN), "0 0 9 * * *", "Europe/Berlin"),
        (weekly("mon", "sun", at=time(23, 59, 58)), "58 59 23 * * mon,sun", None),
        (monthly(31, time(0)), "0 0 0 31 * *", None),
    ):
        assert (said.pattern, said.time_zone, said.syntax, said.delay) == (pattern, zone, None, None)
    assert cron("0 0 9 * * *", BERLIN) == daily(time(9), "Europe/Berlin")
    assert len({every(timedelta(minutes=60)), every(timedelta(hours=1))}) == 1
    soon, stored_at = after(timedelta(minutes=5)), parse_rfc3339("2026-01-01T00:00:00.000000001Z")
    assert isinstance(stored_at, int)
    assert (soon.pattern, soon.text(stored_at)) == ("", "@at 2026-01-01T00:05:00.000000001Z")
    assert after(timedelta(0)).next(after=NOON) == [NOON]


def test_what_no_server_reads_is_refused_where_it_is_said() -> None:
    cases: list[tuple[Callable[[], object], int | None]] = [
        (lambda: every(timedelta(milliseconds=999)), 10189),
        (lambda: every(timedelta(days=400 * 365)), 10189),
        (lambda: after(timedelta(seconds=-1)), None),
        (lambda: at(datetime(1, 1, 1, tzinfo=UTC)), 10189),
        (lambda: cron("30 9 * * 1-5"), 10189),
        (lambda: cron("@every 5m"), 10189),
        (lambda: cron("0 0 9 * * *", "Europe/berlin"), 10223),
        (lambda: cron("0 0 9 * * *", timezone(timedelta(hours=1))), 10223),
        (lambda: cron("0 0 9 * *", syntax="vixie"), None),  # type: ignore[arg-type]
        (lambda: weekly("monday", at=time(9)), 10189),  # type: ignore[arg-type]
    ]
    for number, (say, code) in enumerate(cases):
        with pytest.raises(InvalidScheduleError) as refused:
            say()
        assert refused.value.code == code, number
        assert isinstance(refused.value, ValueError)


def test_a_time_that_may_be_misread_is_refused_with_what_to_write() -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: at(datetime(2026, 11, 20)), r"tzinfo=UTC"),  # noqa: DTZ001
        (lambda: every(timedelta(days=1)).policies(start=datetime(2026, 1, 1)), r"start of .*tzinfo=UTC"),  # noqa: DTZ001
        (lambda: daily(time(9, tzinfo=UTC)), r"write time\(9, 0\) and give the zone as tz"),
        (lambda: daily(time(9, 0, 0, 1)), "whole seconds"),
        (lambda: every(timedelta(days=1)).policies(note="x\r\nNats-Rollup: all"), "line break"),
        (lambda: cron("0 0 9 * *\r\n*"), "line break"),
    ]
    for say, hint in cases:
        with pytest.raises(ValueError, match=hint):
            say()


def test_a_value_of_another_type_is_refused() -> None:
    hours, wrong = every(timedelta(hours=1)), cast("Any", None)
    cases: list[Callable[[], object]] = [
        *(lambda value=value: at(value) for value in ("2026-11-20T09:00:00Z", date(2026, 11, 20), wrong)),
        *(lambda value=value: daily(value) for value in ("09:00", 9)),
        lambda: after(cast("Any", 300)),
        lambda: every(cast("Any", "5m")),
        lambda: monthly(True, time(9)),
        lambda: cron("@daily", cast("Any", 3600)),
        lambda: hours.policies(jitter=cast("Any", 30)),
        lambda: hours.policies(note=cast("Any", 5), limit=cast("Any", "x")),
        lambda: hours.policies(except_days=[cast("Any", "2026-12-25")]),
        lambda: hours.policies(except_calendars="de-by"),
    ]
    for number, say in enumerate(cases):
        with pytest.raises((TypeError, InvalidScheduleError)):
            raise AssertionError(f"case {number} gives {say()}")


def test_each_policy_has_a_keyword_and_is_written_as_its_header() -> None:
    said = every(timedelta(hours=1)).policies(
        start=datetime(2026, 12, 1, tzinfo=UTC),
        end=datetime(2027, 7, 1, tzinfo=BERLIN),
        limit=10,
        anchor=datetime(2026, 11, 1, tzinfo=UTC),
        except_days=[date(2026, 12, 25), (date(2026, 12, 27), date(2027, 1, 1))],
        except_calendars=["de-by"],
        jitter=timedelta(minutes=10),
        missed="skip",
        grace=timedelta(seconds=30),
        report=True,
        overlap="queue",
        consumer="workers",
        timeout=timedelta(hours=2),
        done_within=timedelta(minutes=30),
        note="hourly import",
        owner="billing",
    )
    assert dict(said.written_policies) == {
        "X-Start": "2026-12-01T00:00:00Z",
        "X-End": "2027-06-30T22:00:00Z",
        "X-Limit": "10",
        "X-Anchor": "2026-11-01T00:00:00Z",
        "X-Except": "2026-12-25,2026-12-27..2027-01-01,calendar:de-by",
        "X-Jitter": "10m0s",
        "X-Missed": "skip",
        "X-Grace": "30s",
        "X-Report": "true",
        "X-Overlap": "queue",
        "X-Consumer": "workers",
        "X-Timeout": "2h0m0s",
        "X-Done-Within": "30m0s",
        "X-Note": "hourly import",
        "X-Owner": "billing",
    }
    weekly = cron("0 0 9 * * mon").policies(every="2w from 2026-01-05", debounce=True)
    assert dict(weekly.written_policies) == {"X-Every": "2w from 2026-01-05", "X-Debounce": "true"}


def test_policies_add_up_and_none_removes_one() -> None:
    said = cron("@daily").policies(missed=3, note="x").policies(note=None, except_calendars=["a"])
    said = said.policies(except_days=[date(2026, 12, 25)]).policies(report=False)
    assert dict(said.written_policies) == {"X-Missed": "all 3", "X-Except": "2026-12-25,calendar:a"}
    assert said.policies(except_calendars=[], except_days=None, missed=None) == cron("@daily")
    assert dict(cron("@daily", "UTC").policies(clock_change="after").written_policies) == {"X-Clock-Change": "after"}


def test_a_policy_that_no_schedule_may_have_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"jitter": timedelta(0)}, "X-Jitter of "),
        ({"missed": 0}, "X-Missed of "),
        ({"consumer": "workers"}, "X-Consumer of "),
        ({"anchor": datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)}, "X-Anchor of "),
        ({"except_days": [(date(2026, 12, 25), date(2026, 12, 24))]}, "X-Except of "),
        ({"limt": 3}, "X-Limt of '3' is an unknown policy"),
    ]
    for given, fault in cases:
        with pytest.raises(InvalidScheduleError, match=f"^{fault}"):
            every(timedelta(hours=1)).policies(**given)


def test_the_preview_is_what_the_sidecar_would_fire() -> None:
    weekdays = cron("0 30 9 * * mon-fri", tz=BERLIN).policies(except_days=[date(2026, 11, 23)], limit=3)
    assert weekdays.next(5, after=NOON) == [
        datetime(2026, 11, 24, 8, 30, tzinfo=UTC),
        datetime(2026, 11, 25, 8, 30, tzinfo=UTC),
        datetime(2026, 11, 26, 8, 30, tzinfo=UTC),
    ]
    assert every(timedelta(minutes=1)).next(2, after=NOON.replace(microsecond=600_000)) == [
        NOON + timedelta(seconds=61),
        NOON + timedelta(seconds=121),
    ]
    assert at(NOON - timedelta(days=1)).next(3, after=NOON) == [NOON - timedelta(days=1)]
    assert cron("0 0 9 1 1 ? 2030", syntax="quartz").next(2, after=NOON) == [datetime(2030, 1, 1, 9, tzinfo=UTC)]
    assert cron("0 0 9 * * *").policies(end=NOON).next(after=NOON) == []


def test_the_examples_of_the_docstrings_run() -> None:
    for module in (when, hourly_to_monthly):
        found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
        assert (found.failed, found.attempted > 2) == (0, True), module.__name__


# -- datetimes and nanoseconds ----------------------------------------------------------------------------------------


def test_a_time_with_a_zone_is_an_instant_and_comes_back() -> None:
    for moment, text in (
        (datetime(2026, 11, 20, 9, 0, 0, 1, tzinfo=UTC), "2026-11-20T09:00:00.000001Z"),
        (datetime(2026, 11, 20, 9, tzinfo=BERLIN), "2026-11-20T08:00:00Z"),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN), "2026-10-25T01:30:00Z"),
        (datetime(2026, 11, 20, 9, tzinfo=timezone(timedelta(hours=-5))), "2026-11-20T14:00:00Z"),
        (datetime(1, 1, 2, tzinfo=UTC), "0001-01-02T00:00:00Z"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "9999-12-31T23:59:59.999999Z"),
    ):
        instant = instant_of(moment, "the time")
        assert format_rfc3339(instant) == text
        assert datetime_of(instant) == moment.astimezone(UTC)
        assert datetime_of(instant).tzinfo is UTC
    assert datetime_of(1_500) == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "what is below a microsecond is cut off"
    assert datetime_of(-1) == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def test_durations_are_exact_and_bounded() -> None:
    assert nanoseconds_of(timedelta(days=1, microseconds=1), "the delay") == 86_400 * SECOND + 1_000
    longest = timedelta(microseconds=MAX_DURATION_NS // 1_000)
    assert nanoseconds_of(longest, "the delay") == MAX_DURATION_NS // 1_000 * 1_000
    for wrong in (timedelta(days=365 * 293), -timedelta(days=365 * 293)):
        with pytest.raises(ValueError, match="longer than 292 years"):
            nanoseconds_of(wrong, "the delay")
    with pytest.raises(TypeError, match="is no timedelta"):
        nanoseconds_of(90, "the delay")  # type: ignore[arg-type]
