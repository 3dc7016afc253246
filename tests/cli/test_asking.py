"""A command that asks a running sidecar prints what it prints where it reads what is stored itself."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from nats_scheduler.control.transport import request_json
from tests.cli.command_reference import as_user, held_to, users_of
from tests.cli.prompt import NEVER, Cli, prompt_on
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.permissions import Permission
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import PATIENCE_SECONDS, eventually

MUTE = '{ user: mute, password: secret, permissions: { publish: { deny: ["nats_scheduler.v1.>"] } } }'
"""A user that may do everything but ask."""

SCHEDULES = frozenset({"schedules.list", "rejected.list", "misnamed.list"})
"""The endpoints that are asked for schedules; on a native stream the stream is read instead."""

COMMANDS: dict[str, frozenset[str]] = {
    "history S S.s": frozenset({"fires.list"}),
    "history S S.s --limit 1 --since 1h": frozenset({"fires.list"}),
    "history S S.s --limit 2 --contents": frozenset({"fires.list", "content.get"}),
    "history S S.gone --target S.out": frozenset({"fires.list"}),
    "failures": frozenset({"failures.list"}),
    "failures S S.bad --since 1h": frozenset({"failures.list"}),
    "instances": frozenset({"instances.list"}),
    "stream ls": frozenset({"streams.modes"}),
    "next S S.s": SCHEDULES,
    "next S S.cron --count 3": SCHEDULES,
    "ls S": SCHEDULES,
    "ls S --wide": SCHEDULES,
    "info S S.s": SCHEDULES | {"fires.list", "failures.list", "content.get"},
}
"""Commands, and the endpoints that each of them asks."""
NOT_ABOUT_SIDECARS = frozenset({"history", "failures", "next"})

VARYING = frozenset({"at", "after", "age_nanoseconds", "last_heartbeat"})
"""The keys whose values are of the moment."""

Said = tuple[int, str, str]
"""Exit code, output, errors."""


class Scene(NamedTuple):
    """A server with a sidecar, and what has happened on it."""

    cli: Cli
    url: str
    account: Account

    async def says(self, user: str, *words: str) -> Said:
        """Run a command in a thread, as a user; return exit code, output and errors, without what is of the moment."""
        said = await asyncio.to_thread(self.cli, *words, "--server", as_user(self.url, user))
        output = json.dumps(lasting(json.loads(said.stdout)), indent=2) if "--json" in words else said.stdout
        return said.exit_code, re.sub(r"[\w.]+( s)? ago", "… ago", output), said.stderr

    async def asked(self) -> dict[str, int]:
        """Return how many requests each endpoint has received: statistics that count the request made here."""
        connection, found = self.account.connection, dict[str, int]()

        async def count() -> int:
            answer = await request_json(
                connection, "$SRV.STATS.nats-scheduler", {}, PATIENCE_SECONDS, is_repeatable=True
            )
            for one in answer["endpoints"]:
                found[one["subject"].removeprefix("nats_scheduler.v1.")] = one["num_requests"]
            return found.pop("health.get")

        async def is_counted() -> bool:
            return await count() > before

        before = await count()
        await request_json(connection, "nats_scheduler.v1.health.get", {}, PATIENCE_SECONDS)
        await eventually(is_counted)
        return found

    async def same(self, words: tuple[str, ...], endpoints: set[str]) -> Said:
        """Return what a command prints for a user who may ask, at these endpoints, and the same for one who may not.

        Times to come are shown to the second, which may pass between two commands, and statistics are a moment old: it
        is run until both are the same.
        """
        seen: list[tuple[Said, Said, set[str], set[str]]] = []

        async def are_equal() -> bool:
            before = await self.asked()
            with_asking = await self.says("all", *words)
            between = await self.asked()
            without = await self.says("mute", *words)
            after = await self.asked()
            seen[:] = [(with_asking, without, grown(before, between), grown(between, after))]
            return with_asking == without and seen[0][2:] == (endpoints, set())

        await eventually(are_equal, describe=lambda: f"{words}: {seen}")
        return seen[0][0]


def grown(before: dict[str, int], after: dict[str, int]) -> set[str]:
    return {name for name in after if after[name] > before[name]}


def lasting(value: Any) -> Any:
    """Return a document without what is of the moment."""
    if isinstance(value, dict):
        return {key: lasting(one) for key, one in value.items() if key not in VARYING}
    return [*map(lasting, value)] if isinstance(value, list) else value


@asynccontextmanager
async def scene(
    cli: Cli, start_server: StartServer, version: str, users: dict[str, tuple[int, list[Permission]]] | None = None
) -> AsyncIterator[Scene]:
    """Start a server with a sidecar; schedules have fired, are stored, and are invalid."""
    server = await start_server(version, config=held_to(users or {}, MUTE))
    url, x = as_user(server.url, "all"), "X-" if version == V2_15 else ""
    async with prompt_on(cli, url) as prompt, sidecar_on(url) as running:
        account = prompt.account
        await account.create("S")
        await account.create("T", subjects=["T.*"])
        for name in ("S", "T"):
            await running.ready(name)
        for pattern in ("@every 1s", NEVER):  # it has fired, and it fires no more while the outputs are compared
            await prompt.schedule("S.s", pattern, x=x)
            await account.wait_for("S", "S.out", 2)
        await prompt.schedule("S.cron", "0 30 9 1 1 *", x=x, Time_Zone="Europe/Berlin")
        await prompt.schedule("S.bad", "@every soon", x=x)
        if x:
            await prompt.schedule("S.native", NEVER)  # the server fires it

        async def is_kept() -> bool:
            info = await account.api.stream("nats_scheduler_failures")
            return info is not None and info["state"]["messages"] > 0

        await eventually(is_kept, describe="the failure is kept")
        yield Scene(cli, server.url, account)


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_the_output_is_the_same_whether_a_sidecar_is_asked_or_not(
    cli: Cli, start_server: StartServer, version: str
) -> None:
    async with scene(cli, start_server, version) as one:
        for command, endpoints in COMMANDS.items():
            words = (*command.split(), "--json")
            code, _output, errors = await one.same(words, {*endpoints})
            assert (code, errors) == (0, ""), words
        commands = [command.split() for command in COMMANDS if command.split()[0] in NOT_ABOUT_SIDECARS]
        before = [await one.says("all", *command, "--json") for command in commands]
    assert [await one.says("all", *command, "--json") for command in commands] == before, "no sidecar is running"
    code, output, _errors = await one.says("all", "stream", "ls")
    assert (code, "no sidecar is running: nothing" in output) == (0, version != V2_15), (
        "a native server fires by itself"
    )
    assert "no sidecar lives" in (await one.says("all", "instances"))[1]


async def test_the_answer_of_a_sidecar_of_another_bucket_is_not_used(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11, config=held_to({}))
    url = as_user(server.url, "all")
    async with account_on(url) as account, sidecar_on(url, registry_bucket="other"):
        one = Scene(cli, server.url, account)
        before = await one.asked()
        assert "no sidecar lives" in (await one.says("all", "instances"))[1]
        assert grown(before, await one.asked()) == {"instances.list"}


WORDS: tuple[tuple[str, ...], ...] = (
    ("history S S.s", "failures", "instances"),
    ("ls S", "info S S.s", "next S S.s", "stream ls"),
    ("history S S.s", "failures", "instances", "ls", "info S S.s", "stream ls"),
)
"""The commands of each column of the table of permissions: about the past, what is served, and without asking."""
ASKED: tuple[set[str], ...] = ({"fires", "failures", "instances"}, {"schedules", "streams"}, set())
"""The first parts of the names of their endpoints."""


async def test_the_documented_permissions_to_ask_and_read_are_right(cli: Cli, start_server: StartServer) -> None:
    limited = users_of("Users of the commands", len(WORDS))
    async with scene(cli, start_server, V2_11, limited) as one:
        expected = {line: await one.says("all", *line.split(), "--json") for column in WORDS for line in column}
        for user, (column, _granted) in limited.items():
            before, same, is_whole = await one.asked(), True, user.startswith("whole")
            patience = () if is_whole else ("--timeout", "1s")
            for line in WORDS[column]:
                same = same and await one.says(user, *line.split(), "--json", *patience) == expected[line]
            asked = {name.partition(".")[0] for name in grown(before, await one.asked())}
            assert (same and ASKED[column] <= asked) is is_whole, (user, same, asked)
