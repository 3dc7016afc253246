"""The fenced blocks of the pages, as a reader takes them: files to save, commands to type, and what these print.

The rules: a block is a file if the line before it ends with "as `NAME`:", or its first line is a comment with the name
of a YAML file. A `text` block right after a block of commands, in the same section and no file, is what they print. All
commands are in `sh` blocks; a command goes on where a quote, a heredoc or a backslash at the end of a line says so.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.house.sources import ROOT, markdown_files, place
from tests.site.exceptions import RUN_BY_OTHER_TESTS

START = ("README.md", "CONTRIBUTING.md", "docs/start.md")
TUTORIALS = ("docs/tutorials/",)
HOW_TO = ("docs/operating/",)
LONG = ("docs/operating/changing.md", "docs/operating/monitoring.md")
"""The beginnings of the names of pages whose commands are typed; a group is followed at the same time as others."""
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.M | re.S)
NAMED = re.compile(r"\bas `([\w.-]+)`:$")
NAMED_INSIDE = re.compile(r"# (\S+\.yaml)\n")
HEREDOC = re.compile(r"<<'?(\w+)'?")
IN_ANY_ORDER = "<!-- printed in any order -->"
"""Stands before a `text` block whose lines may be printed in any order, with others between them."""
TO_BE_COPIED = {"sh", "console", "bash", "shell", "python"}
"""The languages of blocks that a reader runs."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    kind: str
    text: str
    before: str
    """The last line before it that is not blank."""
    section: str

    @property
    def where(self) -> str:
        return f"{place(self.page)}:{self.line}"

    @property
    def file(self) -> str | None:
        """Return the name under which a reader saves it."""
        named = NAMED.search(self.before) or (NAMED_INSIDE.match(self.text) if self.kind == "yaml" else None)
        return named and named[1]


@cache
def blocks_of(page: Path) -> tuple[Block, ...]:
    """List the blocks of a page."""
    text, found = page.read_text("utf-8"), []
    for match in FENCE.finditer(text):
        before = text[: match.start()]
        lines = [line for line in before.splitlines() if line.strip()]
        sections = [line for line in FENCE.sub("", before).splitlines() if line.startswith("#")]
        found.append(
            Block(
                page,
                before.count("\n") + 1,
                match[2].strip(),
                textwrap.dedent(match[3]),
                lines[-1] if lines else "",
                sections[-1] if sections else "",
            )
        )
    return tuple(found)


@cache
def pages_with_commands() -> tuple[Path, ...]:
    """List the pages for users and contributors that have commands; tests/README.md and changes name them in prose."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    pages += [page for page in markdown_files() if (ROOT / "docs") in page.parents]
    return tuple(page for page in pages if any(block.kind in TO_BE_COPIED for block in blocks_of(page)))


def pages_of(group: tuple[str, ...]) -> list[Path]:
    """List the pages of a group whose commands are typed."""
    pages = [page for page in pages_with_commands() if place(page).startswith(group)]
    apart = RUN_BY_OTHER_TESTS | (set() if group is LONG else set(LONG))
    return [page for page in pages if place(page) not in apart]


def steps(page: Path) -> Iterator[tuple[Block, Block | None]]:
    """Give the blocks of a page in their order, blocks of commands with the block of what they print."""
    blocks = blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        is_printed = (
            following and following.kind == "text" and following.file is None and following.section == block.section
        )
        yield block, following if block.kind == "sh" and is_printed else None


def commands_of(block: str) -> list[str]:
    """Divide a block into its commands, comments and empty lines left out."""
    found, current, heredoc = [], "", ""
    for line in block.splitlines():
        current += line + "\n"
        if heredoc:
            heredoc = "" if line == heredoc else heredoc
        elif started := HEREDOC.search(line):
            heredoc = started[1]
        if not heredoc and is_whole(current):
            found.append(current.strip())
            current = ""
    assert not current, f"a command without an end: {current}"
    return [command for command in found if command and not command.startswith("#")]


def is_whole(command: str) -> bool:
    """Return whether a shell would run a text, and not ask for more."""
    if command.endswith("\\\n"):
        return False
    if HEREDOC.search(command):
        return True
    if command.startswith(("for ", "while ")) and not command.endswith("done\n"):
        return False
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True
