"""The page about changing schedules shows each command that does so; `tests/site/` types what it shows."""

from nats_scheduler.cli.main import COMMANDS
from tests.house.coming_from import commands
from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "operating" / "changing.md"


def test_the_page_shows_each_command_that_changes_schedules() -> None:
    shown = {arguments[1] for arguments in commands(PAGE) if arguments[0] == "nats-scheduler"}
    wanted = {"add", "edit", "pause", "resume", "rm", "fire", "backfill", "changes"}
    assert wanted <= set(COMMANDS)
    assert wanted <= shown
