"""The pages about commands: each command, option, key, header and fire that they name is there, and valid."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import click
import pytest

from nats_scheduler.cli.main import COMMANDS, main
from nats_scheduler.files.models import files_schema
from nats_scheduler.message.policies import POLICY_NAMES, value_fault
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import Pattern, Syntax, parse_pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.command_reference import PAGE
from tests.cli.prompt import Cli
from tests.house.coming_from import PAGES, commands, fires, headers
from tests.house.sources import ROOT, place
from tests.house.test_documents import FENCE

each_page = pytest.mark.parametrize("page", PAGES, ids=place)


# -- the reference ---------------------------------------------------------------------------------------------


def test_the_reference_page_names_every_option() -> None:
    page = PAGE.read_text("utf-8") + (PAGE.parent / "settings.md").read_text("utf-8")
    for name in ("next", "explain", "check", "settings show"):
        options = [option for each in command_of(main, name.split()).params for option in each.opts]
        assert [one for one in options if one.startswith("--") and f"`{one}" not in page] == [], name


def test_the_reference_has_every_key_of_a_file() -> None:
    page = (ROOT / "docs" / "reference" / "files.md").read_text("utf-8")
    parts = (page.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in ("A document", "A schedule"))
    document, schedule = (set(re.findall(r"^\| `([$\w]+)` \|", part, re.M)) for part in parts)
    schema = files_schema()
    assert document == set(schema["properties"])
    assert schedule == set(schema["$defs"]["ScheduleModel"]["properties"])


# -- coming from other schedulers ------------------------------------------------------------------------------


@each_page
def test_each_header_of_the_page_is_valid(page: Path) -> None:
    for where, shown in headers(page):
        syntaxes = [None, *(Syntax(value) for name, value in shown if name == "X-Syntax")]
        for name, value in shown:
            if name.removeprefix("X-") == "Nats-Schedule":
                assert any(isinstance(parse_pattern(value, None, one), Pattern) for one in syntaxes), (where, value)
            elif name in POLICY_NAMES:
                assert value_fault(name, value) is None, (where, name, value)
            else:
                assert name.startswith(("Nats-Schedule-", "X-Nats-Schedule-")), (where, name)


@each_page
def test_each_command_of_the_page_is_valid(page: Path, cli: Cli) -> None:
    assert {fence[2].strip() for fence in FENCE.findall(page.read_text("utf-8"))} <= {"sh"}
    for program, *arguments in commands(page):
        assert program in {"nats", "nats-scheduler"}, f"{program} is not checked"
        if program == "nats":
            given = [value for flag, value in pairwise(arguments) if flag == "-H"]
            arguments = ["check", *(word for header in given for word in ("-H", header))]
            if not any("Nats-Schedule" in header for header in given):
                continue
        command = command_of(main, arguments)
        command.make_context(arguments[0], arguments[arguments.index(str(command.name)) + 1 :])
        if arguments[0] in {"next", "explain", "check"}:
            ended = cli(*arguments)
            assert ended.exit_code == 0, ended.output
    assert set(re.findall(r"`nats-scheduler ([a-z]+)", page.read_text("utf-8"))) <= set(COMMANDS)


def command_of(group: click.Command, words: list[str]) -> click.Command:
    """Return the command that begins a line."""
    assert isinstance(group, click.Group)
    command = group.get_command(click.Context(group), words[0])
    assert command is not None, f"there is no command {words[0]}"
    return command_of(command, words[1:]) if isinstance(command, click.Group) else command


def test_a_table_shows_when_a_pattern_fires() -> None:
    for row in (row for page in PAGES for row in fires(page)):
        pattern = parse_pattern(row.pattern, None, Syntax(row.syntax) if row.syntax else None)
        stored_at = parse_rfc3339(row.stored_at)
        assert pattern is not None, row
        assert not isinstance(pattern, Invalid), row
        assert isinstance(stored_at, int), row
        printed, fire = [], pattern.first_fire(stored_at)
        for _ in row.shown:
            assert fire is not None, row
            printed.append(pattern.format(fire))
            fire = pattern.next_fire(fire, stored_at)
        assert tuple(printed) == row.shown, row
