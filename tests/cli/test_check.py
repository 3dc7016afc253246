"""`nats-scheduler check`: the server's answer, without a server.

That it is the answer of each server to each message is shown in `differential/test_validation.py`, and all that is
warned of in `message/test_schedule_findings.py`.
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
    for pattern, expected in (
        (AT, "max_age of the stream (168h0m0s) removes it before"),
        ("@at 2020-01-01T00:00:00Z", ""),
    ):
        file = stream(tmp_path, allow_msg_ttl=True, max_age=7 * DAY)
        found = warnings(cli, *headers(f"Nats-Schedule: {pattern}", TARGET), "--stream-config", file)
        assert [expected in one for one in found] == ([True] if expected else []), (pattern, found)


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
