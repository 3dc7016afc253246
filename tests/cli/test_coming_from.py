"""The pages for users of other schedulers: each message, each command, and each fire of a table is valid."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import click
import pytest

from nats_scheduler.cli.main import COMMANDS, main
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stream_rules import FLAG, StreamRules
from nats_scheduler.observe.message_warnings import warnings_about
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import Syntax, parse_pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.conftest import Cli
from tests.house.coming_from import (
    PAGES,
    STREAM_FILE,
    Fires,
    Message,
    commands,
    completed,
    fires,
    published,
    schedules,
    shown,
)
from tests.house.sources import ROOT, place
from tests.house.test_documents import FENCE

STREAM = StreamRules.from_config(json.loads(STREAM_FILE), schedules_enabled=json.loads(STREAM_FILE)[FLAG])
WRITTEN_ON = "2026-11-20T12:00:00Z"
"""The time at which the schedules are stored: before all the times that the pages name."""
WITHOUT_A_SERVER = {"next", "explain", "check"}
"""Our commands that need no server, and are run."""
ORDINARY = {"orders.due"}
"""Targets to which a page publishes without a schedule."""

each_page = pytest.mark.parametrize("page", PAGES, ids=place)


OF_CALENDARS = "if the calendar holidays exists"
"""A warning that is no fault here: calendars are in a bucket, and pages have none."""


def faults(message: Message) -> list[str]:
    """List what `check` would say of a message that a page calls a schedule: why it is none, and what it warns of."""
    stored_at = parse_rfc3339(WRITTEN_ON)
    assert isinstance(stored_at, int)
    block = with_headers(EMPTY_BLOCK, [(name.encode(), value.encode()) for name, value in message.headers])
    reading = read_message(block, message.subject, stored_at, STREAM, DIALECTS)
    if reading is None or reading.definition is None:
        return [f"{message.where}: {reading.rejection if reading else 'no schedule'}"]
    warnings = warnings_about(block, reading, STREAM, stored_at)
    return [f"{message.where}: {warning}" for warning in warnings if OF_CALENDARS not in warning]


def all_faults(messages: Iterable[Message]) -> list[str]:
    return [fault for message in messages for fault in faults(message)]


@each_page
def test_each_schedule_in_a_table_or_a_sentence_is_accepted(page: Path) -> None:
    assert all_faults(shown(page)) == []


@each_page
def test_each_message_that_a_command_publishes_is_a_schedule_or_lies_on_a_target(page: Path) -> None:
    messages = list(published(page))
    assert all_faults(message for message in messages if message.is_schedule) == []
    assert {message.subject for message in messages if not message.is_schedule} <= ORDINARY


@each_page
def test_each_command_is_one_of_ours_with_its_options_or_of_the_nats_cli(page: Path) -> None:
    for program, *arguments in commands(page):
        assert program in {"nats", "nats-scheduler"}, f"{program} is not checked"
        if program == "nats-scheduler":
            parses(main, arguments)
    named = re.findall(r"`nats-scheduler ([a-z]+)", page.read_text("utf-8"))
    assert set(named) <= set(COMMANDS)


@each_page
def test_each_block_is_one_of_commands(page: Path) -> None:
    assert {fence[2].strip() for fence in FENCE.findall(page.read_text("utf-8"))} <= {"sh"}


def parses(group: click.Group, arguments: list[str]) -> None:
    """Fail unless a command exists and takes these arguments."""
    name, *rest = arguments
    command = group.get_command(click.Context(group), name)
    assert command is not None, f"there is no command {name}"
    if isinstance(command, click.Group):
        parses(command, rest)
    else:
        command.make_context(name, list(rest))


@each_page
def test_each_command_that_needs_no_server_does_what_it_is_for(page: Path, cli: Cli) -> None:
    for program, *arguments in commands(page):
        if program == "nats-scheduler" and arguments[0] in WITHOUT_A_SERVER:
            ended = cli(*arguments)
            assert ended.exit_code == 0, ended.output


@pytest.mark.parametrize("row", [row for page in PAGES for row in fires(page)], ids=lambda row: f"{row.where}")
def test_a_table_shows_when_a_pattern_fires(row: Fires) -> None:
    pattern = parse_pattern(row.pattern, None, Syntax(row.syntax) if row.syntax else None)
    stored_at = parse_rfc3339(row.stored_at)
    assert pattern is not None
    assert not isinstance(pattern, Invalid)
    assert isinstance(stored_at, int)
    printed, fire = [], pattern.first_fire(stored_at)
    for _ in row.shown:
        assert fire is not None
        printed.append(pattern.format(fire))
        fire = pattern.next_fire(fire, stored_at)
    assert tuple(printed) == row.shown


def test_the_pages_show_enough_to_check() -> None:
    def most(count: Callable[[Path], Iterable[object]]) -> int:
        return min(len(list(count(page))) for page in PAGES if page.name != "README.md")

    assert len(PAGES) == 5
    assert most(shown) >= 8
    assert most(published) >= 1
    assert sum(len(list(fires(page))) for page in PAGES) >= 17


def test_the_headers_of_a_cell_become_whole_schedules() -> None:
    cell = [("X-Anchor", "a"), ("X-Start", "b"), ("X-Anchor", "c"), ("Nats-Schedule", "d"), ("X-Limit", "3")]
    portable, again, adr51 = (completed(headers) for headers in schedules(cell))
    assert portable == {
        "X-Nats-Schedule": "@every 1h",
        "X-Nats-Schedule-Target": "orders.due",
        "X-Nats-Schedule-X-Anchor": "a",
        "X-Nats-Schedule-X-Start": "b",
    }
    assert again["X-Nats-Schedule-X-Anchor"] == "c"
    assert adr51 == {"Nats-Schedule": "d", "Nats-Schedule-Target": "orders.due", "Nats-Schedule-X-Limit": "3"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Nats-Schedule": "0 9 * * *"},
        {"Nats-Schedule": "@daily", "X-Limit": "3"},  # a policy that has no effect where the server fires
        {"X-Limit": "0"},
        {"X-Note": "a note", "X-Nothing": "1"},
        {"X-Syntax": "quartz", "X-Nats-Schedule": "0 0 9 ? * 2-6"},  # numbers of weekdays
        {"Nats-Schedule-Target": "invoices.due"},
    ],
)
def test_the_check_finds_each_kind_of_fault(headers: dict[str, str]) -> None:
    message = Message("here", tuple(completed(headers).items()))
    assert len(faults(message)) == 1


def test_the_pages_are_linked() -> None:
    index = (ROOT / "docs" / "coming-from" / "README.md").read_text("utf-8")
    assert [page.name for page in PAGES if page.name != "README.md" and f"]({page.name})" not in index] == []
    assert "(docs/coming-from/README.md)" in (ROOT / "README.md").read_text("utf-8")
