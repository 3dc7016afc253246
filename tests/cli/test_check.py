"""`nats-scheduler check`: the server's answer, without a server.

That it is the answer of each server to each message is shown in `differential/test_validation.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from nats_scheduler.schedule.instants import DAY
from tests.cli.prompt import NEVER as AT
from tests.cli.prompt import Cli

PATTERN = "Nats-Schedule: @every 5m"
TARGET = "Nats-Schedule-Target: orders.due"


def headers(*given: str) -> list[str]:
    return [part for header in given for part in ("-H", header)]


def stream(folder: Path, **config: object) -> str:
    path = folder / "stream.json"
    whole = {"name": "ORDERS", "subjects": ["orders.>"], "allow_msg_schedules": True, **config}
    path.write_text(json.dumps(whole))
    return str(path)


def test_a_valid_pattern_or_message_is_told_back(cli: Cli) -> None:
    shown = cli("check", "0 30 9 * * mon-fri", "--tz", "Europe/Berlin")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("message: schedule\npattern: 0 30 9 * * mon-fri\n")
    portable = cli("check", *headers("X-Nats-Schedule: @daily", "X-Nats-Schedule-Target: a"), "--json")
    assert json.loads(portable.stdout)["schedule"]["dialect"] == "portable"
    cancel = cli("check", *headers("Nats-Scheduler: orders.later", "Nats-Schedule-Next: purge"), "--json")
    assert (cancel.exit_code, json.loads(cancel.stdout)["cancels"]) == (0, "orders.later")


def test_an_invalid_message_gets_the_servers_code_and_ends_with_1(cli: Cli) -> None:
    for given, code, header, value in (
        ([PATTERN], 10190, "Nats-Schedule-Target", ""),
        (["Nats-Schedule: @daily", TARGET, "Nats-Schedule-Time-Zone:"], 10223, "Nats-Schedule-Time-Zone", ""),
    ):
        shown = cli("check", *headers(*given), "--json")
        document = json.loads(shown.stdout)
        assert (shown.exit_code, document["valid"]) == (1, False)
        error = document["error"]
        assert (error["err_code"], error["header"], error["value"]) == (code, header, value)
        for_people = cli("check", *headers(*given))
        assert (for_people.exit_code, for_people.stdout) == (1, "")
        assert error["description"] in for_people.stderr


def test_a_near_miss_is_no_schedule_and_is_pointed_at(cli: Cli) -> None:
    shown = cli("check", *headers("nats-schedule: @daily", TARGET))
    assert (shown.exit_code, "nats-schedule is not Nats-Schedule" in shown.stderr) == (1, True)


def test_the_rules_of_the_stream_and_the_subject_of_the_message_count(cli: Cli, tmp_path: Path) -> None:
    for config, code in (({"allow_msg_schedules": False}, 10188), ({"subjects": ["other"]}, 10190)):
        given = [*headers(PATTERN, TARGET), "--stream-config", stream(tmp_path, **config)]
        shown = cli("check", *given, "--json")
        assert (shown.exit_code, json.loads(shown.stdout)["error"]["err_code"]) == (1, code)
    assert cli("check", *headers(PATTERN, TARGET), "--subject", "orders.due").exit_code == 1


# -- warnings --------------------------------------------------------------------------------------------------


def warnings(cli: Cli, *given: str) -> list[str]:
    """Return the warnings of a valid message, which are the same in the document."""
    said, document = cli("check", *given), json.loads(cli("check", *given, "--json").stdout)
    assert (said.exit_code, document["valid"]) == (0, True), said.stderr
    codes = [one["code"] for one in document["findings"]]
    # A time in them may be that of another second.
    assert [line.rpartition(" ")[2] for line in said.stderr.splitlines()] == [f"({code})" for code in codes]
    return [f"{one['what']}; {one['command']}" for one in document["findings"]]


def test_what_its_stream_may_end_before_its_fire_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    for given, config, expected in (
        ([AT], {"max_age": 7 * DAY}, "max_age of the stream (168h0m0s) removes it before"),
        (
            ["@every 1h"],
            {"max_age": 7 * DAY},
            "and then it never fires again; published with Nats-TTL: never",
        ),
        ([AT, "Nats-TTL: 1h"], {}, "its own Nats-TTL ends it before its first fire at"),
        (["@every 1h"], {"max_msgs": 100}, "max_msgs or max_bytes"),
        (["@every 1h", "Nats-Schedule-Timezone: UTC"], {}, "Nats-Schedule-Time-Zone may be meant"),
        (["@at 2020-01-01T00:00:00Z"], {"max_age": 7 * DAY, "max_msgs": -1, "max_bytes": -1}, ""),
    ):
        file = stream(tmp_path, allow_msg_ttl=True, **config)
        message = headers(f"Nats-Schedule: {given[0]}", TARGET, *given[1:])
        found = warnings(cli, *message, "--stream-config", file)
        assert [expected in one for one in found] == ([True] if expected else []), (given, config, found)


def test_numbers_of_weekdays_in_quartz_are_a_warning(cli: Cli) -> None:
    for pattern, is_warned in {
        "0 0 9 ? * 2": True,
        "0 0 9 ? * MON,6": True,
        "0 0 9 ? * L5": True,
        "0 0 9 ? * MON-FRI": False,
        "0 0 9 ? * */7": False,
        "0 0 9 1 1 ? 2027": False,
    }.items():
        message = headers(
            f"X-Nats-Schedule: {pattern}", "X-Nats-Schedule-X-Syntax: quartz", "X-Nats-Schedule-Target: t"
        )
        for arguments in ([pattern, "--syntax", "quartz"], message):
            found = ["in Quartz itself 1 is Sunday" in one for one in warnings(cli, *arguments)]
            assert found == ([True] if is_warned else []), pattern


def test_policies_that_do_what_few_expect_are_a_warning(cli: Cli, tmp_path: Path) -> None:
    past, skip = "@at 2020-01-01T00:00:00Z", ("X-Overlap: skip", "X-Timeout: 2h")
    work = (*skip, "X-Consumer: work")
    needless = "its X-Grace has an effect only with X-Missed: skip"
    for pattern, policies, retention, expected in (
        ("@every 1h", ("X-Grace: 1m",), "", needless),
        ("@every 1h", ("X-Grace: 1m", "X-Missed: all"), "", needless),
        ("@every 1h", ("X-Grace: 1m", "X-Missed: skip"), "", ""),
        (past, ("X-Missed: skip",), "", "X-Missed: skip removes it without a fire"),
        (AT, ("X-Missed: skip",), "", ""),
        ("@every 1h", skip, "", "its X-Overlap needs X-Consumer there"),
        ("@every 1h", work, "", ""),
        ("@every 1h", skip, "workqueue", ""),
        ("@every 1h", ("X-Overlap: queue",), "workqueue", "it waits for ever for a fire that nobody finishes"),
        ("@every 1h", work, "workqueue", "its X-Consumer has no effect on this stream"),
        (AT, ("X-Overlap: skip",), "workqueue", "its X-Overlap has no effect: it fires once"),
        (
            "@daily",
            ("X-Except: calendar:de-by",),
            "",
            "it fires only if the calendar de-by exists, and not on its days",
        ),
    ):
        message = headers(f"X-Nats-Schedule: {pattern}", f"X-{TARGET}", *(f"X-Nats-Schedule-{one}" for one in policies))
        stored = ["--stream-config", stream(tmp_path, retention=retention)] if retention else []
        found = warnings(cli, *message, *stored)
        assert [expected in one for one in found] == ([True] if expected else []), (pattern, policies, retention)


def test_a_jitter_that_may_outlast_the_schedule_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    for jitter, ttl, is_warned in (("30m", "90m", True), ("30m", "3h", False), ("24h", "121m", True)):
        given = (
            "X-Nats-Schedule: @every 80m",
            f"X-{TARGET}",
            f"X-Nats-Schedule-X-Jitter: {jitter}",
            f"Nats-TTL: {ttl}",
        )
        found = warnings(cli, *headers(*given), "--stream-config", stream(tmp_path, allow_msg_ttl=True))
        assert any("its X-Jitter may delay its first fire until" in one for one in found) is is_warned
