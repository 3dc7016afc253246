"""What is found about one schedule: before it is stored and while it is, it is the same and reads the same."""

import re
from dataclasses import replace

import pytest

from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views.view import FiredBy, ListedSchedule
from nats_scheduler.message.capabilities import Capabilities, capabilities_of
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.rejection import NOT_PERMITTED, Failing, Rejection
from nats_scheduler.message.schedule_findings import findings_about, schedule_findings, schedule_rejected
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import DAY, HOUR
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START

V2_11, V2_14 = capabilities_of("2.11.11"), capabilities_of("2.14.6")

RULES = StreamRules("S", ("s.>",), allow_msg_ttl=True, keeps_acknowledged=True)
AGED = StreamRules("S", ("s.>",), allow_msg_ttl=True, max_age=HOUR)
OF_SERVER = StreamRules("S", ("s.>",), has_policies=False)
MOVING = StreamRules("S", ("s.>",), moves_subjects=True)

Headers = dict[str, str]


def block_of(pattern: str, more: Headers, prefix: str = "") -> bytes:
    headers = {f"{prefix}Nats-Schedule": pattern, f"{prefix}Nats-Schedule-Target": "s.out", **more}
    return with_headers(EMPTY_BLOCK, [(name.encode(), value.encode()) for name, value in headers.items()])


def before(block: bytes, rules: StreamRules, server: Capabilities, fired_by: FiredBy) -> list[Finding]:
    """Return what is found before it is stored."""
    reading = read_message(block, "s.s", START, rules, DIALECTS)
    assert reading is not None
    assert reading.defined is not None, reading.fault
    by_server = fired_by is FiredBy.SERVER
    found = list(findings_about(block, reading.defined, rules, START, server, is_by_server=by_server))
    assert all(one.what and one.command for one in found), found
    return found


def listed(block: bytes, rules: StreamRules, fired_by: FiredBy) -> ListedSchedule:
    """Return the schedule as it is listed as soon as it is stored."""
    read = StoredSchedules(rules, DIALECTS, fired_by)
    read.take([StoredMessage("s.s", 1, START, block, b"")], START)
    (found,) = read.view.page(START).answer().schedules
    return found


TIME = re.compile(r" at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ,?| at that age,?")


def words(findings: list[Finding]) -> list[tuple[Code, str, str]]:
    """Return the findings without the times that are known only once it is stored."""
    return [(one.code, TIME.sub("", one.what).replace("next fire", "first fire"), one.command) for one in findings]


SAME: dict[Code, tuple[str, Headers, StreamRules, Capabilities, FiredBy]] = {
    Code.POLICIES_IGNORED: ("@every 1h", {"Nats-Schedule-X-Limit": "3"}, RULES, V2_14, FiredBy.SERVER),
    Code.SCHEDULE_ENDS_EARLY: ("@every 2h", {}, AGED, V2_11, FiredBy.SIDECAR),
    Code.SCHEDULE_ENDS_BY_AGE: ("@every 1m", {}, AGED, V2_11, FiredBy.SIDECAR),
    Code.POLICY_WITHOUT_EFFECT: ("@every 1h", {"Nats-Schedule-X-Grace": "1m"}, RULES, V2_11, FiredBy.SIDECAR),
    Code.STEP_UNEVEN: ("0 */45 * * * *", {}, RULES, V2_11, FiredBy.SIDECAR),
    Code.DEFECT_INTERVAL_ROUNDED: ("@every 1500ms", {}, RULES, V2_14, FiredBy.SERVER),
    Code.DEFECT_FAR_TIME: ("@at 2300-01-01T00:00:00Z", {}, RULES, V2_14, FiredBy.SERVER),
    Code.DEFECT_ZONE_GAP: ("@daily", {"Nats-Schedule-Time-Zone": "Africa/Cairo"}, RULES, V2_14, FiredBy.SERVER),
    Code.DEFECT_SOURCE_TRANSFORMED: ("@hourly", {"Nats-Schedule-Source": "s.in"}, MOVING, V2_14, FiredBy.SERVER),
}


@pytest.mark.parametrize("code", SAME)
def test_it_reads_the_same_before_it_is_stored_and_while_it_is(code: Code) -> None:
    pattern, more, rules, server, fired_by = SAME[code]
    block = block_of(pattern, more)
    known = listed(block, rules, fired_by).known(rules, server, START)
    found = before(block, rules, server, fired_by)
    assert [one.code for one in found] == [code]
    assert words(list(schedule_findings(known))) == words(found)


def test_an_early_end_is_said_with_what_ends_it() -> None:
    (by_age,) = before(block_of("@every 2h", {}), AGED, V2_11, FiredBy.SIDECAR)
    assert by_age.what.startswith("max_age of the stream (1h0m0s) removes it before its first fire at ")
    assert by_age.command == "nats stream edit S --max-age 26h, or: published with Nats-TTL: never it stays"
    (far,) = before(block_of("@at 9999-01-01T00:00:00Z", {}), AGED, V2_11, FiredBy.SIDECAR)
    assert far.command.startswith("nats stream edit S --max-age 2500000h, or"), "as long as a server can count"
    block = block_of("@every 2h", {"Nats-TTL": "30m"})
    (by_ttl,) = before(block, AGED, V2_11, FiredBy.SIDECAR)
    assert by_ttl.what.startswith("its own Nats-TTL ends it before its first fire at ")
    (stored,) = schedule_findings(listed(block, AGED, FiredBy.SIDECAR).known(AGED, V2_11, START))
    assert re.fullmatch(r"its own Nats-TTL ends it at \S+, before its next fire at \S+", stored.what)


def test_what_the_server_ignores_is_nothing_where_a_sidecar_fires() -> None:
    block = block_of("@every 1h", {"Nats-Schedule-X-Limit": "3"})
    assert before(block, RULES, V2_11, FiredBy.SIDECAR) == []
    assert before(block_of("@every 1500ms", {}), RULES, V2_11, FiredBy.SIDECAR) == []
    reading = read_message(block, "s.s", START, RULES, DIALECTS)
    assert reading is not None
    unknown = findings_about(block, reading.defined, RULES, START)
    assert [one.code for one in unknown] == [Code.POLICIES_IGNORED], "who fires it is not known"


def test_what_a_stranger_writes_makes_no_long_finding() -> None:
    many = {f"Nats-Schedule-X-Unknown-{number}": "x" * 1_000 for number in range(60)}
    long = {"Nats-Schedule-Source": f"s.{'x' * 60_000}"}
    for headers, rules in ((many, OF_SERVER), (long, MOVING)):
        (found,) = before(block_of("@every 1h", headers), rules, V2_14, FiredBy.SERVER)
        assert len(found.sentence) < 1_000


def test_a_paused_schedule_has_no_end_and_no_fire_that_is_skipped() -> None:
    block = block_of("@at 2020-01-01T00:00:00Z", {"Nats-Schedule-X-Missed": "skip", "Nats-TTL": "1m"})
    reading = read_message(block, "s.s", START, AGED, DIALECTS)
    assert reading is not None
    said = [
        findings_about(block, reading.defined, AGED, START, is_by_server=False, is_paused=one) for one in (False, True)
    ]
    assert [[one.code for one in found] for found in said] == [[Code.SKIPPED_AT_ONCE], []]


EVICTING = StreamRules("S", ("s.>",), evicts=True)
QUEUE = StreamRules("S", ("s.>",))
ANY = StreamRules("S", ("s.>",), is_any=True)
X = "X-Nats-Schedule-X-"
ASKS, TIMEOUT, CONSUMER = {f"{X}Overlap": "queue"}, {f"{X}Timeout": "1h"}, {f"{X}Consumer": "work"}
ONCE, EVERY = "@at 2026-01-01T00:00:00Z", "@every 1h"
FOUND: list[tuple[str, Headers, StreamRules, Code | None, str, str]] = [
    (EVERY, {}, EVICTING, Code.MAY_BE_EVICTED, "the stream has max_msgs or max_bytes", "use a stream whose"),
    (EVERY, {"Nats-Stream-Source": "x"}, QUEUE, Code.STREAM_SOURCE_REFUSED, "for its Nats-Stream-Source", "leave this"),
    (EVERY, {"Nats-Stream-Source": ""}, QUEUE, None, "", ""),
    (EVERY, {"X-Nats-Schedule-Target": "", f"{X}Target": "t.out"}, QUEUE, Code.TARGET_TO_ALLOW, "X-Target", "name the"),
    (EVERY, ASKS, QUEUE, Code.TIMEOUT_TO_SET, "its X-Overlap: queue has no X-Timeout", "add X-Timeout"),
    (EVERY, ASKS | TIMEOUT, QUEUE, None, "", ""),
    (EVERY, ASKS | TIMEOUT | CONSUMER, RULES, None, "", ""),
    (EVERY, ASKS | TIMEOUT, ANY, Code.CONSUMER_TO_NAME, "its X-Overlap needs X-Consumer there", "name the consumer"),
    (EVERY, {f"{X}Done-Within": "1h"}, ANY, Code.CONSUMER_TO_NAME, "its X-Done-Within needs X-Consumer", "name the"),
    (EVERY, ASKS | TIMEOUT | CONSUMER, ANY, None, "", ""),
    (EVERY, ASKS | TIMEOUT | CONSUMER, QUEUE, Code.POLICY_WITHOUT_EFFECT, "its X-Consumer has no effect", "leave it"),
    (ONCE, ASKS, QUEUE, Code.POLICY_WITHOUT_EFFECT, "its X-Overlap has no effect: it fires once", "leave it out"),
    (ONCE, {f"{X}Done-Within": "1h"}, QUEUE, None, "", ""),
    (EVERY, {f"{X}Grace": "1m"}, QUEUE, Code.POLICY_WITHOUT_EFFECT, "its X-Grace has an effect only with", "leave it"),
    (EVERY, {f"{X}Grace": "1m", f"{X}Missed": "all"}, QUEUE, Code.POLICY_WITHOUT_EFFECT, "its X-Grace", "leave it out"),
    (EVERY, {f"{X}Grace": "1m", f"{X}Missed": "all 2"}, QUEUE, None, "", ""),
    (EVERY, {f"{X}Grace": "1m", f"{X}Missed": "skip"}, QUEUE, None, "", ""),
    ("@at 2025-12-31T23:59:50Z", {f"{X}Missed": "skip"}, QUEUE, None, "", ""),
    ("@at 2025-12-31T23:59:49Z", {f"{X}Missed": "skip"}, QUEUE, Code.SKIPPED_AT_ONCE, "X-Grace", "give it a time"),
    ("@at 2025-12-31T23:59:49Z", {}, QUEUE, None, "", ""),
    (EVERY, {f"{X}Jitter": "1h"}, RULES, None, "", ""),
    (EVERY, {f"{X}Jitter": "1h", "Nats-TTL": "1h"}, RULES, Code.SCHEDULE_ENDS_EARLY, "its own Nats-TTL", "publish"),
    (
        EVERY,
        {f"{X}Jitter": "1h", "Nats-TTL": "2h"},
        RULES,
        Code.SCHEDULE_ENDS_WITHIN_JITTER,
        "ends after 2h",
        "give it",
    ),
    (EVERY, {f"{X}Jitter": "90m", "Nats-TTL": "7201s"}, RULES, None, "", ""),
]
"""What is found of portable schedules before they are stored."""


@pytest.mark.parametrize(("pattern", "more", "rules", "code", "what", "command"), FOUND)
def test_what_is_found_is_said_once_and_with_what_helps(
    pattern: str, more: Headers, rules: StreamRules, code: Code | None, what: str, command: str
) -> None:
    block = block_of(pattern, more, "X-")
    found = before(block, rules, V2_14, FiredBy.SIDECAR)
    assert [one.code for one in found] == ([code] if code else [])
    assert all(what in one.what and one.command.startswith(command) for one in found), found
    if code in (Code.MAY_BE_EVICTED, Code.TIMEOUT_TO_SET, Code.SKIPPED_AT_ONCE, Code.SCHEDULE_ENDS_WITHIN_JITTER):
        known = listed(block, rules, FiredBy.SIDECAR).known(rules, V2_14, START)
        assert schedule_findings(known) == (), "only before it is stored a publisher can change that"


def test_a_refusal_of_its_fires_is_found_with_the_answer_and_what_helps() -> None:
    held = listed(block_of("@every 1h", {}), RULES, FiredBy.SIDECAR)
    for code, helps in ((NOT_PERMITTED, "allow the sidecar's user to publish to s.out"), (10077, "nats stream info S")):
        refused = replace(held, failing=Failing(code, "no room", START - 1))
        (found,) = schedule_findings(refused.known(RULES, V2_11, START))
        assert (found.code, found.command) == (Code.FIRE_REFUSED, helps)
        assert found.what == f"its fires to s.out are refused with {code} since 2025-12-31T23:59:59Z: no room"
    rejection = Rejection(10190, "invalid", "H", "v", "is wrong")
    rejected = Finding(
        Code.SCHEDULE_REJECTED, f"it is rejected, and never fires: {rejection}", "publish it again, corrected"
    )
    assert schedule_rejected(rejection) == rejected


def test_a_step_that_begins_anew_too_soon_is_said_with_what_is_meant() -> None:
    said = {
        "0 */45 * * * *": (
            "its minute */45 begins anew in each hour, where it is 0,45",
            "use @every 45m, or write 0,45",
        ),
        "?/90 * * * * *": ("its second ?/90 begins anew in each minute, where it is 0", "use @every 90s"),
        "0 0 9 */10 * *": (
            "its day of month */10 begins anew in each month, where it is 1,11,21,31",
            "use * with X-Every: 10d from a date, or write 1,11,21,31 if that is meant",
        ),
        "0 0 9 1 */5 *": ("its month */5 begins anew in each year, where it is 1,6,11", "write 1,6,11 if"),
        "0 0 9 * * */2": (
            "its day of week */2 begins anew in each week, where it is 0,2,4,6",
            "use * with X-Every: 2d",
        ),
    }
    for pattern, (what, command) in said.items():
        (found,) = before(block_of(pattern, {}), RULES, V2_11, FiredBy.SIDECAR)
        assert (found.what, found.command[: len(command)]) == (what, command)
    crontab = {"X-Nats-Schedule-Target": "s.out", "X-Nats-Schedule-X-Syntax": "crontab"}
    (found,) = before(block_of("*/45 9 1-7 * */7", crontab, "X-"), RULES, V2_11, FiredBy.SIDECAR)
    assert found.what.startswith("its minute */45 begins anew")
    for even in ("*/15 5/20 */8 */1 */3 */7", "0 0,45 0-22/5 1-31/2 1,6,11 *", "0 */7,0 * * * *"):
        assert not before(block_of(even, {}), RULES, V2_11, FiredBy.SIDECAR), even


def test_weekdays_of_quartz_that_are_numbered_are_found() -> None:
    quartz = {"X-Nats-Schedule-X-Syntax": "quartz"}
    for weekday, codes in (("2", [Code.WEEKDAYS_NUMBERED]), ("MON", [])):
        found = before(block_of(f"0 0 9 ? * {weekday}", quartz, "X-"), RULES, V2_11, FiredBy.SIDECAR)
        assert [one.code for one in found] == codes


def test_all_headers_of_a_message_that_are_none_are_one_finding() -> None:
    block = with_headers(EMPTY_BLOCK, [(b"Nats-Schedul", b"@daily"), (b"Nats-Schedule-Timezone", b"UTC")])
    (found,) = findings_about(block, None, RULES, START)
    assert found.code is Code.HEADER_MISNAMED
    assert found.what.count("may be meant") == 2


def test_a_jitter_beyond_the_end_of_a_schedule_is_found() -> None:
    due = format_rfc3339(START + HOUR // 2)
    for jitter, latest in (("29m", None), ("45m", format_rfc3339(START + HOUR * 5 // 4))):
        headers = {"X-Nats-Schedule-X-Jitter": jitter, "Nats-TTL": "1h"}
        found = before(block_of(f"@at {due}", headers, "X-"), RULES, V2_11, FiredBy.SIDECAR)
        assert [one.code for one in found] == ([Code.SCHEDULE_ENDS_WITHIN_JITTER] if latest else [])
        assert all(f"delay its first fire until {latest}" in one.what for one in found)


def test_a_calendar_that_is_not_known_is_named_with_what_makes_it() -> None:
    (found,) = before(
        block_of("@daily", {"X-Nats-Schedule-X-Except": "calendar:de"}, "X-"), RULES, V2_11, FiredBy.SIDECAR
    )
    command = "nats-scheduler calendar set de DAY…"
    assert (found.code, found.command) == (Code.CALENDAR_UNREAD, f"{command}, unless it exists")
    block = block_of("@daily", {"X-Nats-Schedule-X-Except": "calendar:de"}, "X-")
    (found,) = schedule_findings(listed(block, RULES, FiredBy.SIDECAR).known(RULES, V2_11, START))
    assert (found.code, found.command) == (Code.CALENDAR_MISSING, command)
    assert "the calendar de, which does not exist" in found.what


def test_a_schedule_that_never_comes_to_fire_is_found() -> None:
    held = listed(block_of("@every 1h", {}), RULES, FiredBy.SIDECAR)
    for seen, at, expected in (
        (held, START, ""),
        (
            held,
            START - 4 * DAY,
            "of 2026-01-01T01:00:00Z, and skips those from 2025-12-28T01:01:00Z on",
        ),
        (replace(held, next_fire=START + 3 * DAY), START, "and skips those from 2026-01-01T01:00:00Z on: a clock was"),
        (replace(held, next_fire=START + 3 * DAY, fired_by=FiredBy.SERVER), START, ""),
        (replace(held, unfired_since=START - 2 * HOUR), START, ""),
        (replace(held, unfired_since=START - 3 * HOUR), START, "it was to fire at 2025-12-31T21:00:00Z, and is stored"),
    ):
        found = [one for one in schedule_findings(seen.known(RULES, V2_11, at)) if one.code is Code.SCHEDULE_SILENT]
        assert [expected in one.what for one in found] == ([True] if expected else [])


def test_an_overdue_fire_on_a_stream_with_max_age_is_no_finding() -> None:
    rules = StreamRules("S", ("s.>",), max_age=DAY)
    assert before(block_of("@at 2020-01-01T00:00:00Z", {}), rules, V2_11, FiredBy.SIDECAR) == []
