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
    more = ("Nats-Schedule-Source:orders.last", "Nats-Schedule-TTL:5m", "Nats-Schedule-Rollup: sub")
    shown = cli("check", *headers(PATTERN, TARGET, *more), "--json")
    document = json.loads(shown.stdout)
    assert shown.exit_code == 0
    next_fire = {"utc", "local", "nanoseconds", "sent", "clock_change", "clock_shift_seconds"}
    assert document["schedule"].pop("next_fire").keys() == next_fire
    assert document == {
        "valid": True,
        "message": "schedule",
        "schedule": {
            "pattern": "@every 5m",
            "kind": "every",
            "time_zone": None,
            "target": "orders.due",
            "source": "orders.last",
            "ttl": "5m",
            "rollup": "sub",
            "policies": {},
            "dialect": "adr51",
            "skipped": [],
        },
        "cancels": None,
        "generated": None,
        "error": None,
        "findings": [],
    }
    portable = cli("check", *headers("X-Nats-Schedule: @daily", "X-Nats-Schedule-Target: a"), "--json")
    assert json.loads(portable.stdout)["schedule"]["dialect"] == "portable"
    cancel = cli("check", *headers("Nats-Scheduler: orders.later", "Nats-Schedule-Next: purge"), "--json")
    assert (cancel.exit_code, json.loads(cancel.stdout)["cancels"]) == (0, "orders.later")


def test_policies_are_shown_one_by_one_and_warned_of_where_a_server_would_ignore_them(cli: Cli) -> None:
    for prefix, is_warned in (("", True), ("X-", False)):
        shown = cli("check", *headers(*(f"{prefix}{one}" for one in (PATTERN, TARGET, "Nats-Schedule-X-Limit: 3"))))
        assert (shown.exit_code, "X-Limit: 3\n" in shown.stdout) == (0, True)
        assert ("policies_ignored" in shown.stderr) is is_warned


def test_a_paused_schedule_is_told_back_as_what_it_would_be(cli: Cli) -> None:
    paused = PATTERN.replace("Nats-Schedule", "Nats-Schedule-X-Paused", 1)
    shown = cli("check", *headers(paused, TARGET))
    assert shown.exit_code == 0
    assert shown.stdout.startswith("message: paused\npattern: @every 5m\n")
    document = json.loads(cli("check", *headers(paused, TARGET), "--json").stdout)
    active = json.loads(cli("check", *headers(PATTERN, TARGET), "--json").stdout)
    for one in (document, active):
        del one["schedule"]["next_fire"]
    assert document == {**active, "message": "paused"}
    shown = cli("check", *headers("Nats-Schedule-X-Paused: @often", TARGET), "--json")
    document = json.loads(shown.stdout)
    assert (shown.exit_code, document["valid"], document["message"], document["schedule"]) == (1, False, "paused", None)
    assert document["error"]["err_code"] == 10189


def test_an_invalid_message_gets_the_code_of_the_server_and_ends_with_1(cli: Cli) -> None:
    for given, code, header, value in (
        ([PATTERN], 10190, "Nats-Schedule-Target", ""),
        ([PATTERN, TARGET, "Nats-Schedule-Time-Zone: UTC"], 10189, "Nats-Schedule", "@every 5m"),
        (["Nats-Schedule: @daily", TARGET, "Nats-Schedule-Time-Zone:"], 10223, "Nats-Schedule-Time-Zone", ""),
        (["Nats-Schedule-Next: later", "Nats-Scheduler: a"], 10212, "Nats-Schedule-Next", "later"),
    ):
        shown = cli("check", *headers(*given), "--json")
        document = json.loads(shown.stdout)
        assert (shown.exit_code, document["valid"]) == (1, False)
        error = document["error"]
        assert (error["err_code"], error["header"], error["value"]) == (code, header, value)
        for_people = cli("check", *headers(*given))
        assert (for_people.exit_code, for_people.stdout) == (1, "")
        assert f"{header} of {value!r}" in for_people.stderr
        assert error["description"] in for_people.stderr
    for more, complaint in (
        (
            "Nats-Schedule-X-Paused: true",
            "a paused schedule has its pattern in this header, and no Nats-Schedule",
        ),
        (
            "Nats-Schedule-X-Limit: 0",
            "Nats-Schedule-X-Limit of '0' is not a number of fires: expected 1 to 1,000"
            " (a rule of nats-scheduler, not of the server)",
        ),
    ):
        shown = cli("check", *headers(PATTERN, TARGET, more))
        assert (shown.exit_code, complaint in shown.stderr) == (1, True), shown.stderr


def test_an_ordinary_message_is_no_schedule_and_a_near_miss_is_pointed_at(cli: Cli) -> None:
    shown = cli("check", *headers("nats-schedule: @daily", TARGET))
    assert (shown.exit_code, "nats-schedule is not Nats-Schedule" in shown.stderr) == (1, True)
    assert json.loads(cli("check", *headers("A: b"), "--json").stdout) == {
        "valid": False,
        "message": "ordinary",
        **dict.fromkeys(("schedule", "cancels", "generated", "error")),
        "findings": [],
    }


def test_the_rules_of_the_stream_and_the_subject_of_the_message_count(cli: Cli, tmp_path: Path) -> None:
    for config, code in (
        ({"allow_msg_schedules": False}, 10188),
        ({"sources": [{"name": "A"}]}, 10187),
        ({"mirror": {"name": "A"}, "subjects": []}, 10186),
        ({"mirror": {"name": "A"}}, 10034),
        ({"subjects": ["other"]}, 10190),
    ):
        given = [*headers(PATTERN, TARGET), "--stream-config", stream(tmp_path, **config)]
        shown = cli("check", *given, "--json")
        assert (shown.exit_code, json.loads(shown.stdout)["error"]["err_code"]) == (1, code)
        assert cli("check", *given).exit_code == 1
    given = [*headers(PATTERN, TARGET, "Nats-Schedule-TTL: 5m"), "--stream-config"]
    assert "server code 10166" in cli("check", *given, stream(tmp_path)).stderr, "TTLs need a stream that allows them"
    assert cli("check", *given, stream(tmp_path, allow_msg_ttl=True)).exit_code == 0
    assert cli("check", *headers(PATTERN, TARGET), "--subject", "orders.due").exit_code == 1


def test_a_target_in_another_stream_is_valid_where_the_operator_allows_it(cli: Cli, tmp_path: Path) -> None:
    given = headers("X-Nats-Schedule: @daily", "X-Nats-Schedule-X-Target: jobs.run")
    for more in ([], ["--stream-config", stream(tmp_path)]):
        said = cli("check", *given, "--subject", "orders.s", *more)
        assert (said.exit_code, "target: jobs.run\n" in said.stdout) == (0, True)
        assert "where the operator allows it; name the target in allowed_targets_elsewhere" in said.stderr
    own = headers("X-Nats-Schedule: @daily", "X-Nats-Schedule-X-Target: orders.run")
    refused = cli("check", *own, "--subject", "orders.s", "--stream-config", stream(tmp_path))
    assert refused.exit_code == 1
    assert "is a subject of stream 'ORDERS' itself: name it in X-Nats-Schedule-Target" in refused.stderr


def test_a_pattern_in_another_syntax_is_checked_in_it(cli: Cli) -> None:
    shown = cli("check", "30 9 * * L5", "--syntax", "crontab", "--tz", "Europe/Berlin")
    assert (shown.exit_code, shown.stderr, "pattern: 30 9 * * L5" in shown.stdout) == (0, "", True)
    refused = cli("check", "30 9 * * 5L", "--syntax", "crontab")
    assert refused.exit_code == 1
    assert "X-Nats-Schedule of '30 9 * * 5L'" in refused.stderr
    assert "L comes first" in refused.stderr
    every = cli("check", "@every 5m", "--syntax", "quartz", "--json")
    assert json.loads(every.stdout)["error"]["header"] == "X-Nats-Schedule-X-Syntax"


# -- warnings --------------------------------------------------------------------------------------------------


def warnings(cli: Cli, *given: str) -> list[str]:
    """Return the warnings of a valid message, which are the same in the document."""
    said, document = cli("check", *given), json.loads(cli("check", *given, "--json").stdout)
    assert (said.exit_code, document["valid"]) == (0, True), said.stderr
    found: list[str] = [f"{one['what']}; {one['command']}" for one in document["findings"]]
    codes = [one["code"] for one in document["findings"]]
    lines = (f"nats-scheduler: warning: {one} ({code})\n" for one, code in zip(found, codes, strict=True))
    assert said.stderr == "".join(lines)
    return found


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
        (["@every 1h"], {"max_bytes": 100}, "max_msgs or max_bytes"),
        (["@every 1h", "Nats-Stream-Source: A 1 > >"], {}, "on every stream (10227)"),
        (["@every 1h", "Nats-Schedule-Timezone: UTC"], {}, "Nats-Schedule-Time-Zone may be meant"),
        (["@at 2020-01-01T00:00:00Z"], {"max_age": 7 * DAY, "max_msgs": -1, "max_bytes": -1}, ""),
        ([AT, "Nats-TTL: never"], {"max_age": 7 * DAY, "max_msgs": -1, "max_bytes": -1}, ""),
    ):
        file = stream(tmp_path, allow_msg_ttl=True, **config)
        message = headers(f"Nats-Schedule: {given[0]}", TARGET, *given[1:])
        found = warnings(cli, *message, "--stream-config", file)
        assert [expected in one for one in found] == ([True] if expected else []), (given, config, found)


def test_numbers_of_weekdays_in_quartz_are_a_warning(cli: Cli) -> None:
    for pattern, is_warned in {
        "0 0 9 ? * 2": True,
        "0 0 9 ? * MON,6": True,
        "0 0 9 ? * 2#1": True,
        "0 0 9 ? * L5": True,
        "0 0 9 ? * MON-FRI": False,
        "0 0 9 ? * MON#1": False,
        "0 0 9 ? * */7": False,
        "0 0 9 1 1 ? 2027": False,
        "@daily": False,
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
        ("@every 1h", ("X-Grace: 1m", "X-Missed: all 3"), "", ""),
        ("@every 1h", ("X-Grace: 1m", "X-Missed: skip"), "", ""),
        (past, ("X-Missed: skip",), "", "X-Missed: skip removes it without a fire"),
        (past, ("X-Missed: all",), "", ""),
        (AT, ("X-Missed: skip",), "", ""),
        ("@every 1h", skip, "", "its X-Overlap needs X-Consumer there"),
        ("@every 1h", work, "", ""),
        ("@every 1h", ("X-Overlap: allow",), "", ""),
        ("@every 1h", skip, "workqueue", ""),
        ("@every 1h", ("X-Overlap: queue",), "workqueue", "it waits for ever for a fire that nobody finishes"),
        ("@every 1h", work, "workqueue", "its X-Consumer has no effect on this stream"),
        ("@every 1h", work, "limits", ""),
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
