"""`nats-scheduler calendar`: edits that lose nothing, whatever others write, and what is no calendar."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from nats_scheduler.cli.calendar import _edited
from nats_scheduler.jetstream.registry import CalendarBucket
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.calendars import MAX_CALENDAR_PARTS, read_days, with_days, without_days
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import account_on
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import V2_10, V2_11, V2_15

Calendar = Callable[..., Awaitable[Result]]
"""`await calendar("set", "work", "2026-12-25")` runs one command against the test's server."""

TEXT = "# Bavaria\n2026-12-25  # Christmas Day\n2026-12-27..2027-01-01\n"


@pytest.fixture(params=[V2_10, V2_11, V2_15])
async def server(request: pytest.FixtureRequest, start_server: StartServer) -> EmbeddedServer:
    return await start_server(request.param)


@pytest.fixture
def calendar(cli: Cli, server: EmbeddedServer) -> Calendar:
    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(cli, "calendar", *arguments, "--server", server.url)

    return run


async def test_a_calendar_is_made_edited_shown_and_deleted(calendar: Calendar) -> None:
    said = [
        await calendar(*words.split())
        for words in (
            "ls",
            "set work 2026-12-25",
            "set work 2026-12-25",
            "add work 2026-12-27..2027-01-01 2026-12-25",
            "add work 2026-12-25",
            "show work",
            "rm work 2026-12-28",
            "ls",
            "delete work",
            "delete work",
        )
    ]
    assert [one.exit_code for one in said] == [0] * 9 + [1]
    made = "there is no calendar: `nats-scheduler calendar set NAME DAY…` makes one\n"
    assert [one.stdout for one in said[:7]] == [
        made,
        "calendar work created, 1 day\n",
        "calendar work unchanged, 1 day\n",
        "calendar work changed, 7 days\n",
        "calendar work unchanged, 7 days\n",
        "2026-12-25\n2026-12-27..2027-01-01\n",
        "calendar work changed, 6 days\n",
    ]
    assert "2026-12-25, 2026-12-27, 2026-12-29..2027-01-01" in said[7].stdout
    assert said[8].stdout == "calendar work deleted\n"
    assert "there is no calendar work" in said[9].stderr


async def test_a_file_is_taken_with_its_comments(calendar: Calendar, tmp_path: Path) -> None:
    file = tmp_path / "work.txt"
    file.write_text(TEXT)
    assert (await calendar("set", "work", "--file", str(file))).stdout == "calendar work created, 7 days\n"
    assert (await calendar("show", "work")).stdout == TEXT
    await calendar("rm", "work", "2026-12-28")
    await calendar("add", "work", "2027-01-06")
    after = "# Bavaria\n2026-12-25  # Christmas Day\n2026-12-27, 2026-12-29..2027-01-01\n2027-01-06\n"
    assert (await calendar("show", "work")).stdout == after


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("set", "work"), "expected days, or --file"),
        (("set", "a.b", "2026-12-25"), "'a.b': expected the name of a calendar"),
        (("set", "work", "tomorrow"), "DAY contains 'tomorrow': expected days"),
        (("add", "work", "--file", "/nonexistent"), "/nonexistent: No such file"),
        (("show", ""), "'': expected the name of a calendar"),
    ],
)
def test_what_cannot_be_a_calendar_is_refused_without_a_server(
    cli: Cli, arguments: tuple[str, ...], error: str
) -> None:
    said = cli("calendar", *arguments, "--server", "nats://127.0.0.1:1")
    assert (said.exit_code, error in said.stderr) == (2, True), said.stderr


async def test_an_invalid_calendar_is_shown_as_one_and_can_only_be_replaced(
    calendar: Calendar, server: EmbeddedServer
) -> None:
    async with account_on(server.url) as account:
        bucket = CalendarBucket(account.connection, account.api, SidecarSettings().calendars_bucket)
        await bucket.open()
        assert await bucket.write("work", b"soon\n", 0)
    shown = await calendar("show", "work")
    assert (shown.exit_code, shown.stdout) == (1, "soon\n")
    assert "line 1 contains 'soon'" in shown.stderr
    assert "invalid" in (await calendar("ls")).stdout
    document = json.loads((await calendar("ls", "--json")).stdout)["calendars"][0]
    assert (document["days"], document["error"][:6]) == (0, "line 1")
    added = await calendar("add", "work", "2026-12-25")
    assert (added.exit_code, "calendar set` replaces it" in added.stderr) == (1, True)
    assert (await calendar("set", "work", "2026-12-25")).stdout == "calendar work changed, 1 day\n"


async def test_edits_of_many_at_once_are_all_kept(calendar: Calendar) -> None:
    await calendar("set", "work", "2026-12-25")
    said = await asyncio.gather(*(calendar("add", "work", f"2027-0{month}-01") for month in range(1, 6)))
    assert [one.exit_code for one in said] == [0] * 5, [one.stderr for one in said]
    shown = json.loads((await calendar("show", "work", "--json")).stdout)
    assert shown["ranges"] == ["2026-12-25", *(f"2027-0{month}-01" for month in range(1, 6))]


async def test_what_another_client_wrote_meanwhile_is_not_lost(server: EmbeddedServer) -> None:
    async with account_on(server.url) as account:
        bucket = CalendarBucket(account.connection, account.api, SidecarSettings().calendars_bucket)
        await bucket.open()
        assert await bucket.write("work", b"2026-12-25\n", 0)
        seen: list[str] = []

        def change(text: str) -> str:
            seen.append(text)
            return with_days(text, [read_days("2027-01-06")])

        found, revision = await bucket.revised_text("work")
        assert found is not None

        class Slow(CalendarBucket):
            async def write(self, name: str, text: bytes | None, revision: int) -> bool:
                if len(seen) == 1:
                    assert await bucket.write("work", b"2026-12-26\n", revision)
                return await super().write(name, text, revision)

        edited = await _edited(Slow(account.connection, account.api, "nats_scheduler_calendars"), "work", change)
        assert edited[0] == "changed"
        last = await bucket.text("work")
        assert last is not None
        assert last.text == b"2026-12-26\n2027-01-06\n"
        assert not await bucket.write("work", b"", revision)


async def test_next_leaves_out_the_days_of_a_calendar_whether_a_sidecar_is_asked_or_not(
    calendar: Calendar, cli: Cli, server: EmbeddedServer
) -> None:
    async with account_on(server.url) as account:
        await account.create(
            "ORDERS", allow_msg_schedules=True, metadata={"nats-scheduler.allow_msg_schedules": "true"}
        )
        stream = FlaggedStream(account, "ORDERS")
        prefix = "X-" if server.version == V2_15 else ""
        headers = stream.headers("0 0 9 1 1 *", more={"X-Except": "calendar:work"})
        await stream.publish("s", {f"{prefix}{name}": value for name, value in headers.items()})
        waits = await asyncio.to_thread(cli, "ls", "ORDERS", "--server", server.url)
        assert "no_calendar" in waits.stdout
        await calendar("set", "work", "2027-01-01")
        said = await asyncio.to_thread(cli, "next", "ORDERS", "ORDERS.s", "--json", "--server", server.url)
        fires: list[dict[str, Any]] = json.loads(said.stdout)["fires"]
        assert [one["utc"][:4] for one in fires][:2] == ["2028", "2029"]


def test_days_are_added_once_and_removed_from_lines_that_keep_their_comments() -> None:
    assert with_days(TEXT, [read_days("2026-12-26..2026-12-28")]) == f"{TEXT}2026-12-26\n"
    assert with_days("2026-12-25", [read_days("2026-12-26"), read_days("2026-12-26")]) == "2026-12-25\n2026-12-26\n"
    left = without_days(TEXT, [read_days("2026-12-25"), read_days("2026-12-31")])
    assert left == "# Bavaria\n2026-12-27..2026-12-30, 2027-01-01\n"
    assert without_days("2026-12-25, 2026-12-26  # both\n", [read_days("2026-12-26")]) == "2026-12-25  # both\n"
    assert without_days(TEXT, [read_days("2030-01-01")]) == TEXT


async def test_a_calendar_does_not_grow_beyond_what_can_be_read(calendar: Calendar, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("".join(f"2{year:03}-01-01\n" for year in range(1_000)) * (MAX_CALENDAR_PARTS // 1_000))
    assert (await calendar("set", "long", "--file", str(file))).exit_code == 0
    said = await calendar("add", "long", "2026-12-25")
    assert (said.exit_code, "would be invalid: has 2,001 days" in said.stderr) == (1, True)
