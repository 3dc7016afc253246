"""`docs/reference/commands.md` as data: the exit codes and the JSON keys that it promises of each command."""

import re
from functools import cache

from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "commands.md"


@cache
def sections() -> dict[str, str]:
    """Return the text about each command, by its name."""
    parts = re.split(r"^## nats-scheduler (.+)$", PAGE.read_text("utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def promised_exit_codes() -> set[tuple[str, int]]:
    """List each command with each of its exit codes, as the first table of the page has them."""
    rows = re.findall(r"^\| \[`([a-z ]+)`\]\(#[a-z-]+\) \| .+ \| ([\d, ]+) \|$", PAGE.read_text("utf-8"), re.M)
    assert [command for command, _codes in rows if command not in sections()] == []
    return {(command, int(code)) for command, codes in rows for code in codes.split(", ")}


def promised_keys(command: str, of: str = "") -> tuple[set[str], set[str]]:
    """Return the keys that a document of a command always has, and those that it may have.

    `of` is the key of the document that holds the objects in question.
    """
    rows = " ".join(_rows(sections()[command], f"key of `{of}`" if of else "key with `--json`"))
    found = re.findall(r"`(\w+)`(\??)", rows)
    assert found, f"{command} has no table of the keys of {of or 'its document'}"
    return {key for key, mark in found if not mark}, {key for key, mark in found if mark}


def described_objects() -> set[tuple[str, str]]:
    """List the keys whose objects have a table of their own, with their commands."""
    return {
        (command, key)
        for command, text in sections().items()
        for key in re.findall(r"^\| key of `(\w+)` \|", text, re.M)
    }


def _rows(text: str, head: str) -> list[str]:
    """Return the first cells of the table that begins with a head."""
    table = re.search(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.M)
    return [line.split("|")[1] for line in table[1].splitlines()] if table else []
