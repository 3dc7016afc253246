"""The permissions of the sidecar's user, read from the table of `docs/operating/security.md`, and servers that hold
users to them.

Its rule: the table is the one source; what a test grants stands there.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "operating" / "security.md"

MODES = ("2.10", "2.11", "portable", "native")
NEEDED, OPTIONAL, SPARE = "yes", "optional", "–"
PASSWORD = "swordfish"  # noqa: S105 - it guards a server on loopback

PATIENT = "authorization { timeout: 30 }\n"
"""The server takes 2 s (s) for too long without it, which a client on a busy machine may need to log in."""

_ROW = re.compile(r"^\| (publish|subscribe) \| `([^`]+)` \|((?: [^|]+ \|){4}) [^|]+ \|$", re.M)


@dataclass(frozen=True, slots=True)
class Permission:
    """One row: what may be done, and how much it is needed in each mode."""

    act: str
    subject: str
    need: tuple[str, ...]

    def needed_in(self, mode: str) -> str:
        """Return `yes`, `optional` or `–`."""
        return self.need[MODES.index(mode)]


def listed() -> list[Permission]:
    """Return all rows."""
    rows = _ROW.findall(DOCUMENT.read_text("utf-8"))
    return [
        Permission(act, subject, tuple(cell.strip() for cell in cells.split("|")[:4])) for act, subject, cells in rows
    ]


def permissions_of(mode: str) -> list[Permission]:
    """Return what the sidecar's user has in a mode, the optional included."""
    return [row for row in listed() if row.needed_in(mode) != SPARE]


def limited_to(version: str, targets: str) -> list[Permission]:
    """Return the list of a version that we fire for, with other targets."""
    return [*without(permissions_of(version.rpartition(".")[0]), "orders.>"), Permission("publish", targets, ())]


def without(permissions: Iterable[Permission], subject: str) -> list[Permission]:
    """Return what is left if nobody may publish on a subject."""
    return [each for each in permissions if (each.act, each.subject) != ("publish", subject)]


def allowing(permissions: Iterable[Permission]) -> str:
    """Write permissions as a server's configuration has them; what is not named is denied."""
    granted = {"publish": ["nothing"], "subscribe": ["nothing"]}
    for permission in permissions:
        granted[permission.act].append(permission.subject)
    acts = (f"{act}: {{ allow: [{', '.join(map(_quoted, subjects))}] }}" for act, subjects in granted.items())
    return f"{{ {', '.join(acts)} }}"


def accounts(grants: Sequence[Iterable[Permission]]) -> str:
    """Write a configuration with one account for each grant: users `admin-N` and, held to the grant, `sidecar-N`."""
    return PATIENT + "accounts {\n" + "\n".join(_account(n, grant) for n, grant in enumerate(grants)) + "\n}\n"


def shared_account(grants: Sequence[Iterable[Permission]]) -> str:
    """Write a configuration with one account: user `admin-0`, and for each grant `sidecar-N`, held to it."""
    users = [f"{{ user: admin-0, password: {PASSWORD} }}", *(_held_to(n, grant) for n, grant in enumerate(grants))]
    return f"{PATIENT}accounts {{ A {{ jetstream: enabled, users: [{', '.join(users)}] }} }}\n"


def url_of(url: str, user: str) -> str:
    """Return a server's address with a user of `accounts` in it."""
    return url.replace("nats://", f"nats://{user}:{PASSWORD}@")


def _account(number: int, grant: Iterable[Permission]) -> str:
    admin = f"{{ user: admin-{number}, password: {PASSWORD} }}"
    return f"A{number} {{ jetstream: enabled, users: [{admin}, {_held_to(number, grant)}] }}"


def _held_to(number: int, grant: Iterable[Permission]) -> str:
    return f"{{ user: sidecar-{number}, password: {PASSWORD}, permissions: {allowing(grant)} }}"


def _quoted(subject: str) -> str:
    return f'"{subject}"'
