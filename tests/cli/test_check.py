"""`nats-scheduler check`: the server's answer, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nats_scheduler.schedule.instants import DAY
from tests.cli.conftest import Cli

PATTERN = "Nats-Schedule: @every 5m"
TARGET = "Nats-Schedule-Target: orders.due"


def headers(*given: str) -> list[str]:
    return [part for header in given for part in ("-H", header)]


def stream(folder: Path, **config: object) -> str:
    path = folder / "stream.json"
    whole = {"name": "ORDERS", "subjects": ["orders.>"], "allow_msg_schedules": True, **config}
    path.write_text(json.dumps(whole))
    return str(path)


def test_a_valid_pattern_ends_with_0(cli: Cli) -> None:
    shown = cli("check", "0 30 9 * * mon-fri", "--tz", "Europe/Berlin")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("message: schedule\npattern: 0 30 9 * * mon-fri\n")


def test_a_valid_message_is_told_back(cli: Cli) -> None:
    given = headers(
        PATTERN, TARGET, "Nats-Schedule-Source:orders.last", "Nats-Schedule-TTL:5m", "Nats-Schedule-Rollup: sub"
    )
    shown = cli("check", *given, "--json")
    document = json.loads(shown.stdout)
    assert shown.exit_code == 0
    assert document["schedule"].pop("next_fire").keys() == {"utc", "local", "nanoseconds", "sent"}
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
        },
        "cancels": None,
        "generated": None,
        "error": None,
        "warnings": [],
    }


def test_portable_headers_are_checked_too(cli: Cli) -> None:
    shown = cli("check", *headers("X-Nats-Schedule: @daily", "X-Nats-Schedule-Target: a"), "--json")
    assert json.loads(shown.stdout)["schedule"]["dialect"] == "portable"


@pytest.mark.parametrize(("prefix", "is_warned"), [("", True), ("X-", False)])
def test_policies_are_shown_one_by_one_and_warned_of_where_a_server_would_ignore_them(
    cli: Cli, prefix: str, is_warned: bool
) -> None:
    given = headers(*(f"{prefix}{one}" for one in (PATTERN, TARGET, "Nats-Schedule-X-Limit: 3")))
    shown = cli("check", *given)
    assert shown.exit_code == 0
    assert "X-Limit: 3\n" in shown.stdout
    assert ("policies that no server knows" in shown.stderr) is is_warned


def test_an_invalid_policy_ends_with_1_and_says_what_is_expected(cli: Cli) -> None:
    shown = cli("check", *headers(PATTERN, TARGET, "Nats-Schedule-X-Limit: 0"))
    assert shown.exit_code == 1
    assert "Nats-Schedule-X-Limit of '0' is not a number of fires: expected 1 to 1,000" in shown.stderr
    assert "a rule of nats-scheduler, not of the server" in shown.stderr


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


def test_a_paused_schedule_that_would_be_rejected_ends_with_1(cli: Cli) -> None:
    given = headers("Nats-Schedule-X-Paused: @often", TARGET)
    shown = cli("check", *given, "--json")
    document = json.loads(shown.stdout)
    assert (shown.exit_code, document["valid"], document["message"], document["schedule"]) == (1, False, "paused", None)
    assert document["error"]["err_code"] == 10189
    assert cli("check", *given).exit_code == 1


def test_both_headers_end_with_1_and_say_how_to_pause(cli: Cli) -> None:
    shown = cli("check", *headers(PATTERN, TARGET, "Nats-Schedule-X-Paused: true"))
    assert shown.exit_code == 1
    assert "a paused schedule has its pattern in this header, and no Nats-Schedule" in shown.stderr


def test_a_cancel_is_valid(cli: Cli) -> None:
    shown = cli("check", *headers("Nats-Scheduler: orders.later", "Nats-Schedule-Next: purge"), "--json")
    assert (shown.exit_code, json.loads(shown.stdout)["cancels"]) == (0, "orders.later")


@pytest.mark.parametrize(
    ("given", "code", "header", "value"),
    [
        ([PATTERN], 10190, "Nats-Schedule-Target", ""),
        ([PATTERN, "Nats-Schedule-Target: a.>"], 10190, "Nats-Schedule-Target", "a.>"),
        ([PATTERN, TARGET, "Nats-Schedule-TTL: soon"], 10191, "Nats-Schedule-TTL", "soon"),
        ([PATTERN, TARGET, "Nats-Schedule-Rollup: all"], 10192, "Nats-Schedule-Rollup", "all"),
        ([PATTERN, TARGET, "Nats-Schedule-Source: orders.due"], 10203, "Nats-Schedule-Source", "orders.due"),
        ([PATTERN, TARGET, "Nats-Schedule-Time-Zone: UTC"], 10189, "Nats-Schedule", "@every 5m"),
        (["Nats-Schedule: @daily", TARGET, "Nats-Schedule-Time-Zone:"], 10223, "Nats-Schedule-Time-Zone", ""),
        (["Nats-Schedule-Next: later", "Nats-Scheduler: a"], 10212, "Nats-Schedule-Next", "later"),
    ],
)
def test_an_invalid_message_gets_the_code_of_the_server_and_ends_with_1(
    cli: Cli, given: list[str], code: int, header: str, value: str
) -> None:
    shown = cli("check", *headers(*given), "--json")
    document = json.loads(shown.stdout)
    assert (shown.exit_code, document["valid"]) == (1, False)
    assert (document["error"]["err_code"], document["error"]["header"], document["error"]["value"]) == (
        code,
        header,
        value,
    )
    for_people = cli("check", *headers(*given))
    assert (for_people.exit_code, for_people.stdout) == (1, "")
    assert f"{header} of {value!r}" in for_people.stderr
    assert document["error"]["description"] in for_people.stderr


def test_the_subjects_of_the_stream_count(cli: Cli, tmp_path: Path) -> None:
    given = [*headers(PATTERN, "Nats-Schedule-Target: elsewhere"), "--stream-config", stream(tmp_path)]
    assert "server code 10190" in cli("check", *given).stderr


def test_the_subject_of_the_message_counts(cli: Cli) -> None:
    assert cli("check", *headers(PATTERN, TARGET), "--subject", "orders.due").exit_code == 1


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"allow_msg_schedules": False}, 10188),
        ({"sources": [{"name": "A"}]}, 10187),
        ({"mirror": {"name": "A"}, "subjects": []}, 10186),
        ({"mirror": {"name": "A"}}, 10034),
    ],
)
def test_the_rules_of_the_stream_count(cli: Cli, tmp_path: Path, config: dict[str, object], code: int) -> None:
    given = [*headers(PATTERN, TARGET), "--stream-config", stream(tmp_path, **config), "--json"]
    shown = cli("check", *given)
    assert (shown.exit_code, json.loads(shown.stdout)["error"]["err_code"]) == (1, code)
    assert cli("check", *given[:-1]).exit_code == 1


def test_ttls_need_a_stream_that_allows_them(cli: Cli, tmp_path: Path) -> None:
    given = [*headers(PATTERN, TARGET, "Nats-Schedule-TTL: 5m"), "--stream-config"]
    assert "server code 10166" in cli("check", *given, stream(tmp_path)).stderr
    assert cli("check", *given, stream(tmp_path, allow_msg_ttl=True)).exit_code == 0


def test_an_ordinary_message_is_no_schedule_and_a_near_miss_is_pointed_at(cli: Cli) -> None:
    shown = cli("check", *headers("nats-schedule: @daily", TARGET))
    assert shown.exit_code == 1
    assert "nats-schedule is not Nats-Schedule" in shown.stderr
    assert json.loads(cli("check", *headers("A: b"), "--json").stdout) == {
        "valid": False,
        "message": "ordinary",
        **dict.fromkeys(("schedule", "cancels", "generated", "error")),
        "warnings": [],
    }


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["@daily", "-H", PATTERN],
        ["@daily", "--subject", "a"],
        ["-H", PATTERN, "--tz", "UTC"],
        ["-H", "no colon"],
        ["-H", ": no name"],
        ["-H", "A: b\r\nNats-Schedule: @daily"],
        ["-H", PATTERN, "--stream-config", "/no/such/file"],
    ],
)
def test_wrong_use_ends_with_2(cli: Cli, arguments: list[str]) -> None:
    assert cli("check", *arguments).exit_code == 2


def test_a_stream_file_that_is_not_an_object_is_wrong_use(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    for content in ("[]", "{", "\udcff"):
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        assert cli("check", "-H", PATTERN, "--stream-config", str(path)).exit_code == 2


@pytest.mark.parametrize(
    ("given", "config", "expected"),
    [
        (["@at 2200-01-01T00:00:00Z"], {"max_age": 7 * DAY}, "max_age of the stream (7d0h) removes it before"),
        (["@every 1h"], {"max_age": 7 * DAY}, "publish it again before that"),
        (["@at 2200-01-01T00:00:00Z", "Nats-TTL: 1h"], {}, "its own Nats-TTL ends it after 1h0m0s, before"),
        (["@every 1h"], {"max_msgs": 100}, "max_msgs or max_bytes"),
        (["@every 1h"], {"max_bytes": 100}, "max_msgs or max_bytes"),
        (["@every 1h", "Nats-Stream-Source: A 1 > >"], {}, "on every stream (10227)"),
        (["@every 1h", "Nats-Schedule-Timezone: UTC"], {}, "Nats-Schedule-Time-Zone may be meant"),
    ],
)
def test_what_is_valid_and_may_not_be_meant_is_a_warning(
    cli: Cli, tmp_path: Path, given: list[str], config: dict[str, int], expected: str
) -> None:
    file = stream(tmp_path, allow_msg_ttl=True, **config)
    arguments = [*headers(f"Nats-Schedule: {given[0]}", TARGET, *given[1:]), "--stream-config", file]
    said = cli("check", *arguments)
    assert said.exit_code == 0
    assert said.stderr.startswith("nats-scheduler: warning: ")
    assert expected in said.stderr
    document = json.loads(cli("check", *arguments, "--json").stdout)
    assert document["valid"] is True
    assert [expected in warning for warning in document["warnings"]] == [True]


def test_a_pattern_in_another_syntax_is_checked_in_it(cli: Cli) -> None:
    shown = cli("check", "30 9 * * L5", "--syntax", "crontab", "--tz", "Europe/Berlin")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "pattern: 30 9 * * L5" in shown.stdout
    refused = cli("check", "30 9 * * 5L", "--syntax", "crontab")
    assert refused.exit_code == 1
    assert "X-Nats-Schedule of '30 9 * * 5L'" in refused.stderr
    assert "L comes first" in refused.stderr
    every = cli("check", "@every 5m", "--syntax", "quartz", "--json")
    assert json.loads(every.stdout)["error"]["header"] == "X-Nats-Schedule-X-Syntax"
    assert cli("check", "@daily", "--syntax", "cron").exit_code == 2
    assert cli("check", *headers("X-Nats-Schedule: @daily"), "--syntax", "quartz").exit_code == 2


@pytest.mark.parametrize(
    ("pattern", "is_warned"),
    [
        ("0 0 9 ? * 2", True),
        ("0 0 9 ? * MON,6", True),
        ("0 0 9 ? * 2#1", True),
        ("0 0 9 ? * L5", True),
        ("0 0 9 ? * MON-FRI", False),
        ("0 0 9 ? * MON#1", False),
        ("0 0 9 ? * */2", False),
        ("0 0 9 1 1 ? 2027", False),
        ("@daily", False),
    ],
)
def test_numbers_of_weekdays_in_quartz_are_a_warning(cli: Cli, pattern: str, is_warned: bool) -> None:
    given = headers(f"X-Nats-Schedule: {pattern}", "X-Nats-Schedule-X-Syntax: quartz", "X-Nats-Schedule-Target: t")
    for arguments in ([pattern, "--syntax", "quartz"], given):
        shown = cli("check", *arguments)
        assert shown.exit_code == 0
        assert ("in Quartz itself 1 is Sunday" in shown.stderr) == is_warned
        warnings = json.loads(cli("check", *arguments, "--json").stdout)["warnings"]
        assert bool(warnings) == is_warned


def test_a_calendar_is_a_warning_since_its_days_are_not_known_without_a_server(cli: Cli) -> None:
    given = ("Nats-Schedule: @daily", "Nats-Schedule-Target: orders.out", "Nats-Schedule-X-Except: calendar:de-by")
    said = cli("check", *(word for header in given for word in ("-H", header)))
    assert said.exit_code == 0
    assert "it fires only if the calendar de-by exists, and not on its days" in said.stderr


@pytest.mark.parametrize(
    ("jitter", "ttl", "is_warned"), [("30m", "90m", True), ("30m", "3h", False), ("24h", "121m", True)]
)
def test_a_jitter_that_may_outlast_the_schedule_is_a_warning(
    cli: Cli, tmp_path: Path, jitter: str, ttl: str, is_warned: bool
) -> None:
    given = ("Nats-Schedule: @every 80m", "Nats-Schedule-Target: orders.out", f"Nats-Schedule-X-Jitter: {jitter}")
    arguments = [*headers(*(f"X-{one}" for one in given), f"Nats-TTL: {ttl}")]
    said = cli("check", *arguments, "--stream-config", stream(tmp_path, allow_msg_ttl=True))
    assert said.exit_code == 0
    assert ("its X-Jitter may delay its first fire until" in said.stderr) is is_warned


@pytest.mark.parametrize(
    ("pattern", "policies", "warning"),
    [
        ("@every 1h", ("X-Grace: 1m",), "its X-Grace has an effect only with X-Missed: skip"),
        ("@every 1h", ("X-Grace: 1m", "X-Missed: all"), "its X-Grace has an effect only with X-Missed: skip"),
        ("@every 1h", ("X-Grace: 1m", "X-Missed: all 3"), ""),
        ("@every 1h", ("X-Grace: 1m", "X-Missed: skip"), ""),
        ("@at 2020-01-01T00:00:00Z", ("X-Missed: skip",), "X-Missed: skip removes it without a fire"),
        ("@at 2020-01-01T00:00:00Z", ("X-Missed: all",), ""),
        ("@at 2200-01-01T00:00:00Z", ("X-Missed: skip",), ""),
    ],
)
def test_a_policy_for_missed_fires_that_does_what_few_expect_is_a_warning(
    cli: Cli, pattern: str, policies: tuple[str, ...], warning: str
) -> None:
    given = [f"X-Nats-Schedule: {pattern}", f"X-{TARGET}", *(f"X-Nats-Schedule-{policy}" for policy in policies)]
    said = cli("check", *headers(*given))
    assert said.exit_code == 0
    assert warning in said.stderr
    assert bool(said.stderr) is bool(warning)


def test_what_fires_before_its_stream_ends_it_is_no_warning(cli: Cli, tmp_path: Path) -> None:
    file = stream(tmp_path, max_age=7 * DAY, max_msgs=-1, max_bytes=-1, allow_msg_ttl=True)
    for pattern, more in (("@at 2020-01-01T00:00:00Z", []), ("@at 2200-01-01T00:00:00Z", ["Nats-TTL: never"])):
        arguments = headers(f"Nats-Schedule: {pattern}", TARGET, *more)
        assert cli("check", *arguments, "--stream-config", file).stderr == ""


def test_a_target_in_another_stream_is_valid_where_the_operator_allows_it(cli: Cli, tmp_path: Path) -> None:
    given = headers("X-Nats-Schedule: @daily", "X-Nats-Schedule-X-Target: jobs.run")
    for more in ([], ["--stream-config", stream(tmp_path)]):
        said = cli("check", *given, "--subject", "orders.s", *more)
        assert said.exit_code == 0
        assert "target: jobs.run\n" in said.stdout
        assert "accepted where the operator allows it: allowed_targets_elsewhere" in said.stderr
    own = headers("X-Nats-Schedule: @daily", "X-Nats-Schedule-X-Target: orders.run")
    refused = cli("check", *own, "--subject", "orders.s", "--stream-config", stream(tmp_path))
    assert refused.exit_code == 1
    assert "is a subject of stream 'ORDERS' itself: name it in X-Nats-Schedule-Target" in refused.stderr


@pytest.mark.parametrize(
    ("pattern", "retention", "policies", "warning"),
    [
        ("@every 1h", None, ("X-Overlap: skip",), "its X-Overlap needs X-Consumer there"),
        ("@every 1h", None, ("X-Overlap: skip", "X-Consumer: work"), ""),
        ("@every 1h", None, ("X-Overlap: allow",), ""),
        ("@every 1h", "workqueue", ("X-Overlap: skip",), ""),
        (
            "@every 1h",
            "workqueue",
            ("X-Overlap: skip", "X-Consumer: work"),
            "its X-Consumer has no effect on this stream",
        ),
        ("@every 1h", "limits", ("X-Overlap: skip", "X-Consumer: work"), ""),
        ("@at 2200-01-01T00:00:00Z", "workqueue", ("X-Overlap: skip",), "its X-Overlap has no effect: it fires once"),
    ],
)
def test_an_overlap_that_does_what_few_expect_is_a_warning(
    cli: Cli, tmp_path: Path, pattern: str, retention: str | None, policies: tuple[str, ...], warning: str
) -> None:
    given = ("Nats-Schedule-Target: orders.out", *(f"Nats-Schedule-{policy}" for policy in policies))
    arguments = headers(*(f"X-{one}" for one in (f"Nats-Schedule: {pattern}", *given)))
    stored = [] if retention is None else ["--stream-config", stream(tmp_path, retention=retention)]
    said = cli("check", *arguments, *stored)
    assert said.exit_code == 0
    overlaps = [line for line in said.stderr.splitlines() if "X-Overlap" in line or "X-Consumer" in line]
    assert [warning in line for line in overlaps] == ([True] if warning else [])
