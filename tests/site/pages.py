"""The pages whose commands are typed, in groups that run at the same time: one test file for each group."""

from pathlib import Path

from tests.house.sources import place
from tests.site.blocks import pages_with_commands
from tests.site.exceptions import RUN_BY_OTHER_TESTS

TUTORIALS, HOW_TO, REFERENCE, START = "docs/tutorials/", ("docs/operating/", "docs/coming-from/"), "docs/reference/", ""
GROUPS = (TUTORIALS, HOW_TO, REFERENCE, START)
"""The beginnings of the names of the pages of each group; a page is in the first group that fits."""


def pages_of(group: str | tuple[str, ...]) -> list[Path]:
    """List the pages of a group."""
    typed = [page for page in pages_with_commands() if place(page) not in RUN_BY_OTHER_TESTS]
    return [page for page in typed if next(one for one in GROUPS if place(page).startswith(one)) == group]
