"""The permissions that the security page lists for `export`, `diff` and `apply`: all of them, and no more."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.cli.changing_site import FAR, Cli
from tests.conftest import StartServer
from tests.harness.account import account_on
from tests.harness.permissions import DOCUMENT, Permission, allowing
from tests.harness.servers import V2_10, V2_15

_SECTION = re.compile(r"^### Users of files of schedules\n(.*?)^###", re.M | re.S)
_ROW = re.compile(r"^\| (publish|subscribe) \| `([^`]+)` \| (\S+) \| (\S+) \| (\S+) \|", re.M)
COMMANDS = (("export", "ORDERS"), ("diff", "FILE", "--prune"), ("apply", "FILE", "--prune", "--yes"))
"""The command of each column; FILE adds a schedule and removes another."""

DONE = {"export": 0, "diff": 1, "apply": 0}


def users() -> dict[str, tuple[int, list[Permission]]]:
    """Return for each column a user with what it needs, and one without each of these permissions."""
    [section] = _SECTION.findall(DOCUMENT.read_text("utf-8"))
    listed = [(Permission(act, subject, ()), needs) for act, subject, *needs in _ROW.findall(section)]
    found = {}
    for column, command in enumerate(COMMANDS):
        granted = [permission for permission, needs in listed if needs[column] == "yes"]
        found[f"{command[0]}-whole"] = (column, granted)
        for number, missing in enumerate(granted):
            found[f"{command[0]}-{number}"] = (column, [one for one in granted if one is not missing])
    return found


@pytest.mark.parametrize("version", [V2_10, V2_15])
async def test_the_permissions_are_enough_without_the_optional_ones_and_each_is_needed(
    cli: Cli, start_server: StartServer, tmp_path: Path, version: str
) -> None:
    limited = users()
    assert len(limited) == 3 + 4 + 4 + 6, "the table is read"
    lines = [
        f"{{ user: {name}, password: x, permissions: {allowing(granted)} }}" for name, (_, granted) in limited.items()
    ]
    everybody = "\n  ".join(["{ user: all, password: x }", *lines])
    server = await start_server(
        version, config=f"accounts {{ A {{ jetstream: enabled, users: [\n  {everybody}] }} }}\n"
    )
    file = tmp_path / "schedules.yaml"
    file.write_text(
        "stream: ORDERS\nowner: me\nspelling: portable\n"
        f"schedules:\n  - {{subject: orders.new, at: '{FAR}', target: orders.out}}\n"
    )
    async with account_on(server.url.replace("nats://", "nats://all:x@")) as account:
        marked = {"nats-scheduler.allow_msg_schedules": "true"}
        await account.create("ORDERS", subjects=["orders.>"], metadata=marked)
        await account.create("KV_nats_scheduler", subjects=["$KV.nats_scheduler.>"], allow_msg_schedules=None)
        for name, (column, _granted) in limited.items():
            await account.api.call("STREAM.PURGE.ORDERS", {})
            prefix = "X-Nats-Schedule"
            headers = {prefix: f"@at {FAR}", f"{prefix}-Target": "orders.out", f"{prefix}-X-Owner": "me"}
            await account.publish("orders.old", headers)
            command = [str(file) if word == "FILE" else word for word in COMMANDS[column]]
            url = server.url.replace("nats://", f"nats://{name}:x@")
            said = await asyncio.to_thread(cli, *command, "--server", url, "--timeout", "2s")
            assert (said.exit_code == DONE[command[0]]) is name.endswith("whole"), (name, said.output)
