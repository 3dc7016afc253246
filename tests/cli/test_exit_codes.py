"""Each exit code that the reference promises of a command, by a run that ends with it, and the document of an error."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click
import pytest

from nats_scheduler.cli.main import COMMANDS, main
from tests.cli import test_dev, test_doctor, test_failures, test_main, test_native, test_process, test_top, test_watch
from tests.cli.command_reference import promised_exit_codes
from tests.cli.prompt import FAR, Cli

DAY = "--from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z"
STREAM_FILE = '{"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory", "allow_msg_schedules": true}'
FILES: Mapping[str, str] = {
    "stream.json": STREAM_FILE,
    "one.json": '{"stream": "ORDERS", "schedules": [{"subject": "orders.a", "every": "1h", "target": "orders.b"}]}',
    "none.yaml": "stream: S\nschedules: []\n",
    "wrong.yaml": "stream: S\nschedules: 5\n",
    "broken.yaml": "stream: [",
    "list.json": "[]",
}
"""Files in the folder in which the commands are run."""

WRONG_USE: Mapping[str, str] = {
    "fly": "no such command 'fly'",
    "run --window 0": "window of 0 (--window): expected a whole number from 1 to 8192",
    "dev --for 20": "expected a duration above zero, such as 20s",
    "stream add missing.json": "missing.json",
    "stream ls --window 0": "No such option",
    "graduate": "Missing argument",
    "export a.b": "the name of a stream",
    "diff wrong.yaml": "wrong.yaml:2: schedules of 5: expected a list of schedules",
    "diff none.yaml --prune": "expected owner, or owner in each document",
    "apply broken.yaml --yes": ": is no YAML",
    "files schema --window 0": "No such option",
    "calendar set work tomorrow": "DAY contains 'tomorrow': expected days",
    "calendar ls --window 0": "No such option",
    "ls 'a b'": "the name of a stream",
    "ls --tz Atlantis": "no such time zone; expected a name such as Europe/Amsterdam",
    "info ORDERS a.*": "a subject without wildcards",
    f"add S S.s --every 5m --at {FAR} --target a": "expected only one of --at",
    "add S S.s --every 5m --target a --policy jiter=1s": "--policy: jiter of '1s' is no policy: X-Jitter may be meant",
    "add S S.s --every 5m --target a -H 'Nats-Schedule-TTL: 5m'": "the other options",
    "add S S.s --every '5m\n' --target a": "expected text without line breaks",
    "edit S S.s": "nothing is to be changed",
    "pause S S.>": "--yes is needed",
    "resume S": "expected SUBJECT…, or --from-file",
    "rm S S.>": "--yes is needed",
    "fire S S.*": "'S.*': expected the subject of a schedule",
    "backfill S S.s --from 2026-01-01T00:00:00Z": "Missing option '--to'",
    f"backfill S S.s --from {FAR} --to 2026-01-01T00:00:00Z": f"--from of '{FAR}' is later than",
    "changes S.S": "'S.S': expected the name of a stream",
    "watch A.B": "the name of a stream",
    "top --interval soon": "--interval",
    "history S.S S.s": "the name of a stream",
    "failures S.S": "the name of a stream",
    "instances --creds /nonexistent": "/nonexistent",
    "doctor a.b": "the name of a stream",
    "web --web-address ::": "web_address of :: is not loopback: expected web_token or web_token_file to be set too",
    "web --web-token hunter2": "expected a string",
    "next 'a\r\nb'": "line breaks",
    "explain 'a\r\nb'": "line breaks",
    "check @daily -H 'Nats-Schedule: @daily'": "PATTERN",
    "check -H 'A: b\r\nNats-Schedule: @daily'": "line breaks",
    "check -H 'Nats-Schedule: @daily' --stream-config list.json": "list.json",
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
    ("changes", 0): test_failures.test_each_change_is_shown_with_its_author_and_its_reason,
    ("failures", 0): test_failures.test_what_is_no_advisory_is_passed_over,
    ("watch", 0): test_watch.test_fires_and_faults_are_lines_for_people,
    ("top", 0): test_top.test_once_prints_plain_text,
    ("web", 0): test_main.test_ctrl_c_ends_it,
}


def of(code: int, lines: Iterable[str]) -> set[tuple[str, int]]:
    """Return the commands of lines, with an exit code."""
    commands = {command for command, _code in promised_exit_codes()}
    words = [line.split() for line in lines]
    known = [each for each in words if each[0] in COMMANDS]
    return {(two if (two := " ".join(each[:2])) in commands else each[0], code) for each in known}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with the files that the lines name."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


def test_each_promised_exit_code_is_shown_and_no_other() -> None:
    shown = of(2, WRONG_USE) | of(1, NOT_REACHED) | of(1, NEGATIVE) | of(0, POSITIVE)
    for words, _texts, code in test_native.table(Path()):
        shown |= of(code, [" ".join(words)])
    assert shown | SHOWN_ELSEWHERE.keys() == promised_exit_codes()


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
    for more in ((), ("--json",)):
        assert {line: cli(*shlex.split(line), *more).exit_code for line in NEGATIVE} == dict.fromkeys(NEGATIVE, 1), more
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
    for line in ("ls", "stream add stream.json"):
        failure = json.loads(cli(*line.split(), "--json", env=env).stdout)
        assert (failure.keys(), failure["error"].keys()) == ({"error"}, {"message", "exit_code"}), line
        assert (failure["error"]["exit_code"], failure["error"]["message"] != "") == (1, True), line
