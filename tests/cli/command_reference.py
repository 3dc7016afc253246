"""Pages about commands as data: the exit codes and JSON keys that the reference promises, and who may run them."""

import re
from functools import cache

from tests.harness.permissions import DOCUMENT, Permission, allowing
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


def users_of(section: str, columns: int) -> dict[str, tuple[int, list[Permission]]]:
    """Return users by the table of a section of the page about security, with the number of their column.

    Of each column `whole-C` has the permissions that it needs, and each `part-C-N` lacks another one of them.
    """
    _before, heading, text = DOCUMENT.read_text("utf-8").partition(f"\n### {section}\n")
    assert heading, f"there is no section about {section}"
    row = rf"^\| (publish|subscribe) \| `([^`]+)` \|((?: [^|]+ \|){{{columns}}})"
    rows = [
        (Permission(act, subject, ()), [need.strip() for need in needs.split("|")])
        for act, subject, needs in re.findall(row, text.partition("\n### ")[0], re.M)
    ]
    found = {}
    for column in range(columns):
        granted = [permission for permission, needs in rows if needs[column] == "yes"]
        assert granted, f"{section} needs nothing in column {column}"
        found[f"whole-{column}"] = (column, granted)
        for number, missing in enumerate(granted):
            found[f"part-{column}-{number}"] = (column, [one for one in granted if one is not missing])
    return found


def held_to(users: dict[str, tuple[int, list[Permission]]], *more: str) -> str:
    """Write the configuration of a server with these users, and the user `all`; each has the password `secret`."""
    lines = [f"{{ user: {name}, password: secret, permissions: {allowing(of)} }}" for name, (_, of) in users.items()]
    everybody = "\n  ".join(["{ user: all, password: secret }", *more, *lines])
    return f"accounts {{ A {{ jetstream: enabled, users: [\n  {everybody}] }} }}\n"


def as_user(url: str, user: str) -> str:
    """Return the address of a server with one of these users."""
    return url.replace("nats://", f"nats://{user}:secret@")
