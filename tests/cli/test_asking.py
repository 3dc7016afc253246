"""A command that asks a running sidecar prints what it prints where it reads what is stored itself."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from nats_scheduler.cli.session import NONE_RUNNING
from tests.cli.command_reference import sections
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Account, account_on, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.permissions import DOCUMENT, Permission, allowing
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

FAR = "@at 2200-01-01T00:00:00Z"

USERS = """
accounts {{ A {{ jetstream: enabled, users: [
  {{ user: all, password: secret }}
  {{ user: mute, password: secret, permissions: {{ publish: {{ deny: ["nats_scheduler.v1.>"] }} }} }}
{users}] }} }}
"""
"""Two users: one that may ask, and one that may do everything else; and those that a test adds."""

SCHEDULES = frozenset({"schedules.list", "rejected.list", "misnamed.list"})
"""The endpoints that are asked for schedules; on a native stream the stream is read instead."""

COMMANDS: dict[str, frozenset[str]] = {
    "history S S.s": frozenset({"fires.list"}),
    "history S S.s --limit 1 --since 1h": frozenset({"fires.list"}),
    "history S S.gone --target S.out": frozenset({"fires.list"}),
    "failures": frozenset({"failures.list"}),
    "failures S S.bad --since 1h": frozenset({"failures.list"}),
    "instances": frozenset({"instances.list"}),
    "stream ls": frozenset({"streams.modes"}),
    "next S S.s": SCHEDULES,
    "next S S.cron --count 3": SCHEDULES,
    "ls S": SCHEDULES,
    "info S S.s": SCHEDULES | {"fires.list"},
}
"""Commands, and the endpoints that each of them asks."""

FORMS = ((), ("--wide",), ("--json",))

VARYING = frozenset({"at", "after", "age_nanoseconds", "last_heartbeat"})
"""The keys whose values are of the moment."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep the log of the sidecar out of the output of the command, which runs in the same process."""
    with capture_logs():
        yield


Said = tuple[int, str, str]
"""Exit code, output, errors."""


class Scene(NamedTuple):
    """A server with a sidecar, and what has happened on it."""

    cli: Cli
    url: str
    account: Account

    def url_of(self, user: str) -> str:
        return self.url.replace("nats://", f"nats://{user}:secret@")

    async def says(self, user: str, *words: str) -> Said:
        """Run a command in a thread, as a user; return exit code, output and errors, without what is of the moment."""
        said = await asyncio.to_thread(self.cli, *words, "--server", self.url_of(user))
        output = json.dumps(lasting(json.loads(said.stdout)), indent=2) if "--json" in words else said.stdout
        return said.exit_code, re.sub(r"[\w.]+( s)? ago", "… ago", output), said.stderr

    async def asked(self) -> dict[str, int]:
        """Return how many requests each endpoint has received."""
        answer = await self.account.connection.request_json("$SRV.STATS.nats-scheduler", {}, WAIT_SECONDS)
        return {one["subject"].removeprefix("nats_scheduler.v1."): one["num_requests"] for one in answer["endpoints"]}

    async def same(self, words: tuple[str, ...]) -> tuple[Said, Said, set[str], set[str]]:
        """Do what `says_asked_and_not` does, until both outputs are the same.

        Times to come are shown to the second, which may pass between two commands.
        """
        seen: list[tuple[Said, Said, set[str], set[str]]] = []

        async def are_equal() -> bool:
            seen[:] = [await self.says_asked_and_not(words)]
            return seen[0][0] == seen[0][1]

        await eventually(are_equal, within_seconds=WAIT_SECONDS, describe=lambda: f"{words}: {seen}")
        return seen[0]

    async def says_asked_and_not(self, words: tuple[str, ...]) -> tuple[Said, Said, set[str], set[str]]:
        """Return what a command prints for both users, and which endpoints it asked each time."""
        before = await self.asked()
        with_asking = await self.says("all", *words)
        between = await self.asked()
        without = await self.says("mute", *words)
        after = await self.asked()
        return with_asking, without, grown(before, between), grown(between, after)


def grown(before: dict[str, int], after: dict[str, int]) -> set[str]:
    return {name for name in after if after[name] > before[name]}


def lasting(value: Any) -> Any:
    """Return a document without what is of the moment."""
    if isinstance(value, dict):
        return {key: lasting(one) for key, one in value.items() if key not in VARYING}
    return [*map(lasting, value)] if isinstance(value, list) else value


@asynccontextmanager
async def scene(cli: Cli, start_server: StartServer, version: str, users: str = "") -> AsyncIterator[Scene]:
    """Start a server with a sidecar; schedules have fired, are stored, and are invalid."""
    server = await start_server(version, config=USERS.format(users=users))
    one = Scene(cli, server.url, None)  # type: ignore[arg-type]  # the account needs the address of the user
    async with account_on(one.url_of("all")) as account, sidecar_on(one.url_of("all")) as running:
        x = "X-" if version == V2_15 else ""
        await account.create("S")
        await account.create("T", subjects=["T.*"])
        for name in ("S", "T"):
            await running.ready(name)
        for pattern in ("@every 1s", FAR):  # it has fired, and it fires no more while the outputs are compared
            headers = {f"{x}Nats-Schedule": pattern, f"{x}Nats-Schedule-Target": "S.out"}
            await account.publish("S.s", headers)
            await account.wait_for("S", "S.out", 2)
        zone = {f"{x}Nats-Schedule-Time-Zone": "Europe/Berlin"}
        cron = {f"{x}Nats-Schedule": "0 30 9 1 1 *", f"{x}Nats-Schedule-Target": "S.out"}
        await account.publish("S.cron", cron | zone)
        await account.publish("S.bad", {f"{x}Nats-Schedule": "@every soon", f"{x}Nats-Schedule-Target": "S.out"})
        await kept(account)
        yield one._replace(account=account)


async def kept(account: Account) -> None:
    """Wait until the invalid schedule is among the failures."""

    async def one() -> bool:
        info = await account.api.stream("nats_scheduler_failures")
        return info is not None and info["state"]["messages"] > 0

    await eventually(one, within_seconds=WAIT_SECONDS, describe="the failure is kept")


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_the_output_is_the_same_whether_a_sidecar_is_asked_or_not(
    cli: Cli, start_server: StartServer, version: str
) -> None:
    async with scene(cli, start_server, version) as one:
        for command, endpoints in COMMANDS.items():
            for form in FORMS:
                words = (*command.split(), *form)
                with_asking, without, asked, asked_without = await one.same(words)
                assert (with_asking, with_asking[0], with_asking[2]) == (without, 0, ""), words
                assert (asked, asked_without) == ({*endpoints}, set()), words


async def test_with_no_sidecar_running_the_commands_read_what_is_stored(cli: Cli, start_server: StartServer) -> None:
    async with scene(cli, start_server, V2_11) as one:
        commands = [command for command in COMMANDS if command.split()[0] in NOT_ABOUT_SIDECARS]
        before = [await one.says("all", *command.split(), "--json") for command in commands]
    async with account_on(one.url_of("all")):
        assert [await one.says("all", *command.split(), "--json") for command in commands] == before
        code, output, _errors = await one.says("all", "stream", "ls")
        assert (code, NONE_RUNNING in output) == (0, True)
        assert "no sidecar lives" in (await one.says("all", "instances"))[1]


async def test_a_sidecar_of_another_bucket_is_asked_and_its_answer_is_not_used(
    cli: Cli, start_server: StartServer
) -> None:
    server = await start_server(V2_11, config=USERS.format(users=""))
    one = Scene(cli, server.url, None)  # type: ignore[arg-type]  # the account needs the address of the user
    async with account_on(one.url_of("all")) as account, sidecar_on(one.url_of("all"), registry_bucket="other"):
        one = one._replace(account=account)
        before = await one.asked()
        assert "no sidecar lives" in (await one.says("all", "instances"))[1]
        assert grown(before, await one.asked()) == {"instances.list"}


NOT_ABOUT_SIDECARS = frozenset({"history", "failures", "next"})


@pytest.mark.parametrize("command", ["ls", "info", "next", "history", "failures", "instances", "stream ls"])
def test_help_and_reference_say_of_each_command_that_it_asks(cli: Cli, command: str) -> None:
    assert "A running sidecar is asked" in " ".join(
        cli(*command.split(), "--help").stdout.replace(": a", ". A").split()
    )
    assert "](#asked-or-read)" in sections()[command]


# -- permissions -----------------------------------------------------------------------------------------------

_ROW = re.compile(r"^\| (publish|subscribe) \| `([^`]+)` \| (\S+) \| (\S+) \| (\S+) \| [^|]+ \|$", re.M)

PAST, SERVED, READING = range(3)
"""The columns of the table about the users of the commands."""

WORDS: dict[int, tuple[tuple[str, ...], ...]] = {
    PAST: (("history", "S", "S.s"), ("failures",), ("instances",)),
    SERVED: (("ls", "S"), ("info", "S", "S.s"), ("next", "S", "S.s"), ("stream", "ls")),
    READING: (("history", "S", "S.s"), ("failures",), ("instances",), ("ls",), ("info", "S", "S.s"), ("stream", "ls")),
}

ASKED: dict[int, set[str]] = {
    PAST: {"fires", "failures", "instances"},
    SERVED: {"schedules", "streams"},
    READING: set(),
}
"""The first parts of the names of their endpoints."""


def permissions(column: int, need: str = "yes") -> list[Permission]:
    """Return the permissions of one column."""
    _before, _heading, section = DOCUMENT.read_text("utf-8").partition("\n### Users of the commands\n")
    rows = [(act, subject, needs) for act, subject, *needs in _ROW.findall(section.partition("\n### ")[0])]
    return [Permission(act, subject, ()) for act, subject, needs in rows if needs[column] == need]


def users() -> dict[str, tuple[int, list[Permission]]]:
    """Return users: of each column one with its permissions, and one without each of them."""
    found = {}
    for column in WORDS:
        granted = permissions(column)
        found[f"whole-{column}"] = (column, granted)
        for number, missing in enumerate(granted):
            found[f"part-{column}-{number}"] = (column, [one for one in granted if one is not missing])
    return found


async def test_the_permissions_to_ask_and_to_read_are_those_that_are_documented(
    cli: Cli, start_server: StartServer
) -> None:
    limited = users()
    assert len(limited) > 12, "the table is read"
    config = "".join(
        f"  {{ user: {name}, password: secret, permissions: {allowing(granted)} }}\n"
        for name, (_column, granted) in limited.items()
    )
    async with scene(cli, start_server, V2_11, users=config) as one:
        expected = {words: await one.says("all", *words, "--json") for column in WORDS.values() for words in column}
        for user, (column, _granted) in limited.items():
            before, same = await one.asked(), True
            for words in WORDS[column]:
                same = same and await one.says(user, *words, "--json") == expected[words]
            asked = {name.partition(".")[0] for name in grown(before, await one.asked())}
            assert (same and ASKED[column] <= asked) is user.startswith("whole"), (user, same, asked)
