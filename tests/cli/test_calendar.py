"""`nats-scheduler calendar`: edits that lose nothing, whatever others write, and what is no calendar."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nats_scheduler.jetstream.calendar_bucket import CalendarBucket
from nats_scheduler.schedule.calendars import MAX_CALENDAR_PARTS
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.cli.prompt import Prompt

TEXT = "# Bavaria\n2026-12-25  # Christmas Day\n2026-12-27..2027-01-01\n"


async def test_a_calendar_is_made_edited_shown_and_deleted(prompt: Prompt) -> None:
    for line, printed in (
        ("ls", "there is no calendar: `nats-scheduler calendar set NAME DAY…` makes one\n"),
        ("set work 2026-12-25", "calendar work created, 1 day\n"),
        ("set work 2026-12-25", "calendar work unchanged, 1 day\n"),
        ("add work 2026-12-27..2027-01-01 2026-12-25", "calendar work changed, 7 days\n"),
        ("add work 2026-12-25", "calendar work unchanged, 7 days\n"),
        ("show work", "2026-12-25\n2026-12-27..2027-01-01\n"),
        ("rm work 2026-12-28", "calendar work changed, 6 days\n"),
    ):
        assert await prompt.shows(f"calendar {line}") == printed
    assert "2026-12-25, 2026-12-27, 2026-12-29..2027-01-01" in await prompt.shows("calendar ls")
    assert await prompt.shows("calendar delete work") == "calendar work deleted\n"
    again = await prompt.says("calendar delete work")
    assert (again.exit_code, "there is no calendar work" in again.stderr) == (1, True)


async def test_a_file_keeps_its_comments_and_stays_readable(prompt: Prompt, tmp_path: Path) -> None:
    file = tmp_path / "work.txt"
    file.write_text(TEXT)
    assert await prompt.shows(f"calendar set work --file {file}") == "calendar work created, 7 days\n"
    assert await prompt.shows("calendar show work") == TEXT
    await prompt.shows("calendar rm work 2026-12-28")
    await prompt.shows("calendar add work 2027-01-06")
    after = "# Bavaria\n2026-12-25  # Christmas Day\n2026-12-27, 2026-12-29..2027-01-01\n2027-01-06\n"
    assert await prompt.shows("calendar show work") == after
    file.write_text("".join(f"2{year:03}-01-01\n" for year in range(1_000)) * (MAX_CALENDAR_PARTS // 1_000))
    await prompt.shows(f"calendar set long --file {file}")
    said = await prompt.says("calendar add long 2026-12-25")
    assert (said.exit_code, "would be invalid: has 2,001 days" in said.stderr) == (1, True)


async def test_an_invalid_calendar_is_shown_as_one_and_can_only_be_replaced(prompt: Prompt) -> None:
    bucket = CalendarBucket(prompt.account.connection, prompt.account.api, SidecarSettings().calendars_bucket)
    await bucket.open()
    assert await bucket.write("work", b"soon\n", 0)
    shown = await prompt.says("calendar show work")
    assert (shown.exit_code, shown.stdout) == (1, "soon\n")
    assert "line 1 contains 'soon'" in shown.stderr
    assert "invalid" in await prompt.shows("calendar ls")
    document = (await prompt.document("calendar ls"))["calendars"][0]
    assert (document["days"], document["error"][:6]) == (0, "line 1")
    added = await prompt.says("calendar add work 2026-12-25")
    assert (added.exit_code, "calendar set` replaces it" in added.stderr) == (1, True)
    assert await prompt.shows("calendar set work 2026-12-25") == "calendar work changed, 1 day\n"


async def test_edits_of_many_at_once_are_all_kept(prompt: Prompt) -> None:
    await prompt.shows("calendar set work 2026-12-25")
    days = [f"2027-0{month}-01" for month in range(1, 6)]
    said = await asyncio.gather(*(prompt.says(f"calendar add work {day}") for day in days))
    assert [one.exit_code for one in said] == [0] * 5, [one.stderr for one in said]
    assert (await prompt.document("calendar show work"))["ranges"] == ["2026-12-25", *days]
