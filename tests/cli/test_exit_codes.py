"""Each exit code that the reference promises of a command, by a run that ends with it, and the document of an error."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click
import pytest

from nats_scheduler.cli.main import COMMANDS, main
from tests.cli import test_dev, test_doctor, test_main, test_process, test_top, test_watch
from tests.cli.command_reference import promised_exit_codes
from tests.cli.prompt import FAR, Cli, Prompt, prompt_on
from tests.conftest import SharedServer
from tests.harness.servers import V2_15

DAY = "--from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z"
STREAM_FILE = '{"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory", "allow_msg_schedules": true}'
FILES: Mapping[str, str] = {
    "stream.json": STREAM_FILE,
    "one.json": '{"stream": "ORDERS", "schedules": [{"subject": "orders.a", "every": "1h", "target": "orders.b"}]}',
    "none.yaml": "stream: S\nschedules: []\n",
    "wrong.yaml": "stream: S\nschedules: 5\n",
    "broken.yaml": "stream: [",
    "list.json": "[]",
    "brace.json": "{",
}
"""Files in the folder in which the commands are run; there is an empty folder `empty` too."""

WRONG_USE: Mapping[str, str] = {
    "fly": "no such command 'fly'",
    "list": "no such command 'list': did you mean 'nats-scheduler ls'?",
    "next 0 30 9 '*' '*' mon": "a PATTERN is one argument: '0 30 9 * * mon' in quotes",
    "run --window 0": "window of 0 (--window): expected a whole number from 1 to 8192",
    "dev --for 20": "expected a duration above zero, such as 20s",
    "dev --version no-such-file": "no-such-file",
    "dev --data list.json": "expected a folder to write to",
    "stream add missing.json": "missing.json",
    "stream ls --window 0": "No such option",
    "graduate": "Missing argument",
    "export a.b": "the name of a stream",
    "diff missing.yaml": "missing.yaml",
    "diff wrong.yaml": "wrong.yaml:2: schedules of 5: expected a list of schedules",
    "diff none.yaml --prune": "expected owner, or owner in each document",
    "diff none.yaml --owner ' '": "--owner of ' ': expected a text",
    "diff empty": "expected files that end in .yaml, .yml, .json",
    "apply broken.yaml --yes": ": is no YAML",
    "apply none.yaml": "--yes is needed where nobody can be asked",
    "files schema --window 0": "No such option",
    "calendar set work": "expected days, or --file",
    "calendar set work tomorrow": "DAY contains 'tomorrow': expected days",
    "calendar add work --file /nonexistent": "/nonexistent: No such file",
    "calendar ls --window 0": "No such option",
    "ls 'a b'": "the name of a stream",
    "ls --count 0": "--count",
    "ls --invalid --count 3": "--invalid",
    "ls --tz Atlantis": "no such time zone; expected a name such as Europe/Amsterdam",
    "ls --filter ''": "a part of a subject, or a subject such as",
    "info ORDERS a.*": "a subject without wildcards",
    "info ORDERS a --count 0": "--count",
    "add S S.s --every 5m": "expected --target",
    f"add S S.s --every 5m --at {FAR} --target a": "expected only one of --at",
    "add S S.s --at 2200-01-01T00:00:00 --target a": "--at of '2200-01-01T00:00:00': expected a",
    "add S S.s --after soon --target a": "--after of 'soon': expected a duration above zero",
    "add S S.s b --body-file f --every 5m --target a": "a BODY or --body-file, not both",
    "add S S.s --every 5m --target a --policy jiter=1s": "--policy: jiter of '1s' is no policy: X-Jitter may be meant",
    "add S S.s --every 5m --target a -H 'no colon'": "expected 'Name: value'",
    "add S S.s --every 5m --target a -H 'Nats-Schedule-TTL: 5m'": "the other options",
    "add S S.s --every '5m\n' --target a": "expected text without line breaks",
    "edit S S.s": "nothing is to be changed",
    "edit S S.s --ttl 5m --expect 0": "--expect",
    "pause S": "expected SUBJECT…, or --from-file",
    "pause S --from-file /nonexistent": "/nonexistent: No such file",
    "pause S S.>": "--yes is needed",
    "resume S": "expected SUBJECT…, or --from-file",
    "rm S S.>": "--yes is needed",
    "fire S S.*": "'S.*': expected the subject of a schedule",
    "backfill S S.s --from 2026-01-01T00:00:00Z": "Missing option '--to'",
    f"backfill S S.s --from 2026-01-01 --to {FAR}": "--from of '2026-01-01': expected a time",
    f"backfill S S.s --from {FAR} --to 2026-01-01T00:00:00Z": f"--from of '{FAR}' is later than",
    f"backfill S S.s --from {FAR} --to {FAR} --limit 1001": "--limit",
    "changes S.S": "'S.S': expected the name of a stream",
    "changes S --since soon": "--since of 'soon': expected a duration",
    "watch A.B": "the name of a stream",
    "watch A B": "unexpected extra argument",
    "top --interval soon": "--interval",
    "history S.S S.s": "the name of a stream",
    "history S S.s --since -2h": "a duration such as 2h",
    "history S S.s --limit 1001": "1<=x<=1000",
    "failures S.S": "the name of a stream",
    "instances --creds /nonexistent": "/nonexistent",
    "doctor a.b": "the name of a stream",
    "web --web-address ::": "web_address of :: is not loopback: expected web_token or web_token_file to be set too",
    "web --web-token hunter2": "expected a string",
    "next": "Missing argument",
    "next @daily --count 0": "--count",
    "next 'a\r\nb'": "line breaks",
    "next S S.s --tz UTC": "go with a PATTERN",
    "next S S.s S.t": "unexpected extra argument",
    "explain 'a\r\nb'": "line breaks",
    "check": "PATTERN",
    "check @daily -H 'Nats-Schedule: @daily'": "PATTERN",
    "check @daily --syntax cron": "--syntax",
    "check -H 'X-Nats-Schedule: @daily' --syntax quartz": "--syntax",
    "check -H 'no colon'": "expected 'Name: value'",
    "check -H 'A: b\r\nNats-Schedule: @daily'": "line breaks",
    "check -H 'Nats-Schedule: @daily' --stream-config list.json": "list.json",
    "check -H 'Nats-Schedule: @daily' --stream-config brace.json": "brace.json",
    "check -H 'Nats-Schedule: @daily' --stream-config bytes.json": "bytes.json",
    "settings show --window 0": "window of 0 (--window): expected a whole number from 1 to 8192",
    "completion tcsh": "tcsh",
    "service schema --window 0": "No such option",
    "advisories schema --window 0": "No such option",
}
"""Command lines, and what is printed of them."""

NOT_REACHED = (
    *("stream add stream.json", "stream ls", "graduate ORDERS", "export ORDERS", "apply one.json --yes"),
    *("calendar show work", "calendar ls", "ls", "doctor", "info S S.s", "instances", "history S S.s", "failures"),
    *("add S S.s --every 5m --target S.out", "edit S S.s --every 5m", "pause S S.s", "resume S S.s", "rm S S.s"),
    *("fire S S.s", f"backfill S S.s {DAY}", "changes", "watch", "top"),
)
NEGATIVE = ("next @often", "explain @often", "check -H 'Some: header'")
"""Command lines that end with 1 without a server."""

ON_A_SERVER = (
    *("stream add stream.json", "stream ls", "add ORDERS orders.s --every 5m --target orders.out"),
    *("edit ORDERS orders.s body", "pause ORDERS orders.s", "resume ORDERS orders.s", "fire ORDERS orders.s"),
    *(f"backfill ORDERS orders.s {DAY}", "info ORDERS orders.s", "history ORDERS orders.s", "ls", "export ORDERS"),
    *("apply one.json --yes", "diff one.json", "rm ORDERS orders.s", "instances", "changes", "failures"),
    *("calendar set work 2026-12-25", "calendar ls"),
)
"""Command lines that end with 0, one after the other on one server."""
POSITIVE = (
    *("files schema", "next @daily", "explain @daily", "check @daily", "settings show", "completion bash"),
    *("service schema", "advisories schema"),
)

SHOWN_ELSEWHERE: Mapping[tuple[str, int], Callable[..., object]] = {
    ("run", 0): test_process.test_a_closed_terminal_drains_as_sigterm_does,
    ("run", 1): test_process.test_a_fire_that_is_left_in_flight_is_exit_code_1,
    ("dev", 0): test_dev.test_the_demo_shows_all_four_kinds_and_a_summary,
    ("dev", 1): test_dev.test_a_server_that_dies_is_told_with_the_end_of_its_log,
    ("doctor", 0): test_doctor.test_the_worst_is_printed_first_and_decides_the_exit_code,
    ("doctor", 3): test_doctor.test_the_worst_is_printed_first_and_decides_the_exit_code,
    ("watch", 0): test_watch.test_fires_and_faults_are_lines_for_people,
    ("top", 0): test_top.test_once_prints_plain_text,
    ("web", 0): test_main.test_ctrl_c_ends_it,
}
AS_SCENES = {("graduate", 0), ("diff", 1)}
"""Shown by a test of its own below."""


def of(code: int, lines: Iterable[str]) -> set[tuple[str, int]]:
    """Return the commands of lines, with an exit code."""
    commands = {command for command, _code in promised_exit_codes()}
    words = [line.split() for line in lines]
    known = [each for each in words if each[0] in COMMANDS]
    return {(two if (two := " ".join(each[:2])) in commands else each[0], code) for each in known}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with the files that the lines name."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


def test_each_promised_exit_code_is_shown_and_no_other() -> None:
    shown = of(2, WRONG_USE) | of(1, NOT_REACHED) | of(1, NEGATIVE) | of(0, ON_A_SERVER) | of(0, POSITIVE)
    assert shown | SHOWN_ELSEWHERE.keys() | AS_SCENES == promised_exit_codes()


def test_the_reference_promises_exit_codes_of_every_command() -> None:
    promised = {command for command, _code in promised_exit_codes()}
    assert {command.split()[0] for command in promised} == set(COMMANDS)
    group = main.get_command(click.Context(main), "stream")
    assert isinstance(group, click.Group)
    assert {f"stream {name}" for name in group.commands} <= promised


def test_wrong_use_ends_with_2_and_says_what_was_expected(cli: Cli) -> None:
    nowhere = {"NATS_URL": "nats://127.0.0.1:1"}
    for line, complaint in WRONG_USE.items():
        said = cli(*shlex.split(line), env=nowhere)
        error = said.stderr.rpartition("\n\n")[2]  # after the usage
        assert (said.exit_code, said.stdout, complaint in error) == (2, "", True), (line, said.stderr)
    for line in {line.split()[0]: line for line in WRONG_USE}.values():
        said = cli(*shlex.split(line), "--json", env=nowhere)
        assert (said.exit_code, json.loads(said.stdout)["error"]["exit_code"]) == (2, 2), line


def test_what_is_negative_ends_with_1_and_what_is_not_with_0(cli: Cli) -> None:
    assert {line: cli(*shlex.split(line)).exit_code for line in NEGATIVE} == dict.fromkeys(NEGATIVE, 1)
    assert {line: cli(*shlex.split(line)).exit_code for line in POSITIVE} == dict.fromkeys(POSITIVE, 0)


def test_an_unreachable_server_is_exit_code_1_without_a_password(cli: Cli) -> None:
    env = {"NATS_URL": "nats://bob:hunter2@127.0.0.1:1"}
    for line in NOT_REACHED:
        said = cli(*line.split(), env=env)
        assert said.exit_code == 1, (line, said.output)
        assert "nats://bob:***@127.0.0.1:1" in said.output, (line, said.output)
        assert "hunter2" not in said.output, line
        if line == "doctor":  # it is a finding
            continue
        assert said.stdout == "", line
        assert said.stderr.startswith("nats-scheduler: error: nats://bob:***@127.0.0.1"), (line, said.stderr)
    for line in ("ls", "stream ls", "stream add stream.json", "instances", "graduate ORDERS"):
        failure = json.loads(cli(*line.split(), "--json", env=env).stdout)
        assert (failure.keys(), failure["error"].keys()) == ({"error"}, {"message", "exit_code"}), line
        assert (failure["error"]["exit_code"], failure["error"]["message"] != "") == (1, True), line


async def test_a_command_that_succeeds_on_a_server_ends_with_0(prompt: Prompt) -> None:
    kept = {"subjects": ["nats_scheduler.advisory.>"], "allow_msg_schedules": None}
    await prompt.account.create("nats_scheduler_failures", **kept)
    for line in ON_A_SERVER:
        assert (await prompt.says(line)).exit_code == 0, line
    await prompt.shows("rm ORDERS orders.a")
    assert (await prompt.says("diff one.json")).exit_code == 1, "there is a difference"


async def test_a_stream_that_is_native_already_is_graduated(
    cli: Cli, shared_server: SharedServer, stream_name: str
) -> None:
    async with prompt_on(cli, (await shared_server(V2_15)).url) as prompt:
        await prompt.create(stream_name)
        await prompt.shows(f"graduate {stream_name}")
        await prompt.account.api.call(f"STREAM.DELETE.{stream_name}")
