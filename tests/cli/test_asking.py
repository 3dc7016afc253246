"""A command that asks a running sidecar prints what it prints where it reads what is stored itself."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.cli.command_reference import as_user, held_to, users_of
from tests.cli.prompt import NEVER, Cli, prompt_on
from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.permissions import Permission
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

MUTE = '{ user: mute, password: secret, permissions: { publish: { deny: ["nats_scheduler.v1.>"] } } }'
"""A user that may do everything but ask."""

COMMANDS = (
    *("history S S.s", "history S S.s --limit 2 --contents", "failures", "instances", "stream ls", "next S S.s"),
    *("ls S", "info S S.s"),
)

VARYING = frozenset({"at", "after", "age_nanoseconds", "last_heartbeat"})
"""The keys whose values are of the moment."""

Said = tuple[int, str, str]
"""Exit code, output, errors."""


class Scene(NamedTuple):
    """A server with a sidecar, and what has happened on it."""

    cli: Cli
    url: str

    async def says(self, user: str, *words: str) -> Said:
        """Run a command in a thread, as a user; return exit code, output and errors, without what is of the moment."""
        said = await asyncio.to_thread(self.cli, *words, "--server", as_user(self.url, user))
        output = json.dumps(lasting(json.loads(said.stdout)), indent=2) if "--json" in words else said.stdout
        return said.exit_code, re.sub(r"[\w.]+( s)? ago", "… ago", output), said.stderr

    async def same(self, words: tuple[str, ...]) -> Said:
        """Return what a command prints for a user who may ask, and the same for one who may not.

        Times to come are shown to the second, which may pass between two commands: it is run until both are the same.
        """
        seen: list[tuple[Said, Said]] = []

        async def are_equal() -> bool:
            seen[:] = [(await self.says("all", *words), await self.says("mute", *words))]
            return seen[0][0] == seen[0][1]

        await eventually(are_equal, describe=lambda: f"{words}: {seen}")
        return seen[0][0]


def lasting(value: Any) -> Any:
    """Return a document without what is of the moment."""
    if isinstance(value, dict):
        return {key: lasting(one) for key, one in value.items() if key not in VARYING}
    return [*map(lasting, value)] if isinstance(value, list) else value


@asynccontextmanager
async def scene(
    cli: Cli, start_server: StartServer, users: dict[str, tuple[int, list[Permission]]] | None = None
) -> AsyncIterator[Scene]:
    """Start a server with a sidecar; schedules have fired, are stored, and are invalid."""
    server = await start_server(V2_11, config=held_to(users or {}, MUTE))
    url = as_user(server.url, "all")
    async with prompt_on(cli, url) as prompt, sidecar_on(url) as running:
        account = prompt.account
        await account.create("S")
        await running.ready("S")
        for pattern in ("@every 1s", NEVER):  # it has fired, and it fires no more while the outputs are compared
            await prompt.schedule("S.s", pattern)
            await account.wait_for("S", "S.out", 2)
        await prompt.schedule("S.bad", "@every soon")

        async def is_kept() -> bool:
            info = await account.api.stream("nats_scheduler_failures")
            return info is not None and info["state"]["messages"] > 0

        await eventually(is_kept, describe="the failure is kept")
        yield Scene(cli, server.url)


async def test_the_output_is_the_same_whether_a_sidecar_is_asked_or_not(cli: Cli, start_server: StartServer) -> None:
    async with scene(cli, start_server) as one:
        for command in COMMANDS:
            words = (*command.split(), "--json")
            code, _output, errors = await one.same(words)
            assert (code, errors) == (0, ""), words
    code, output, _errors = await one.says("all", "stream", "ls")
    assert (code, "no sidecar is running: nothing" in output) == (0, True)
    assert "no sidecar lives" in (await one.says("all", "instances"))[1]


WORDS: tuple[tuple[str, ...], ...] = (
    ("history S S.s", "failures", "instances"),
    ("ls S", "info S S.s", "next S S.s", "stream ls"),
    ("history S S.s", "failures", "instances", "ls", "info S S.s", "stream ls"),
)
"""The commands of each column of the table of permissions: about the past, what is served, and without asking."""


async def test_the_documented_permissions_to_ask_and_read_are_right(cli: Cli, start_server: StartServer) -> None:
    limited = users_of("Users of the commands", len(WORDS))
    async with scene(cli, start_server, limited) as one:
        expected = {line: await one.says("all", *line.split(), "--json") for column in WORDS for line in column}
        for user, (column, _granted) in limited.items():
            is_whole = user.startswith("whole")
            patience = () if is_whole else ("--timeout", "1s")
            same = True
            for line in WORDS[column]:
                same = same and await one.says(user, *line.split(), "--json", *patience) == expected[line]
            assert same is is_whole, user
