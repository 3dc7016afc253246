"""The reports of commands about the running sidecars: whether there is one, and the settings that it uses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from click.testing import Result

from nats_scheduler.cli.session import NONE_RUNNING, NOT_SERVED_YET
from nats_scheduler.runtime.embedded import EmbeddedServer, free_port
from nats_scheduler.runtime.shared import SETTINGS, SHARED_SETTINGS, shared_settings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

NEVER = "@at 2200-01-01T00:00:00Z"


async def say(cli: Cli, server: EmbeddedServer, *arguments: str, **options: Any) -> Result:
    """Run a command in a thread, in which it has an event loop of its own."""
    return await asyncio.to_thread(cli, *arguments, "--server", server.url, **options)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep the log of the sidecar out of the output of the command, which runs in the same process."""
    with capture_logs():
        yield


KEY = f"$KV.nats_scheduler.{SETTINGS}"


async def settings_published(account: Account, count: int) -> list[str]:
    """Wait until `count` sidecars have published their settings, and return their ids."""

    async def enough() -> list[str] | None:
        message = await account.api.message("KV_nats_scheduler", last_by_subj=KEY)
        found = sorted(json.loads(message.body or b"{}")) if message is not None else []
        return [*found, ""] if len(found) == count else None

    found: list[str] = await eventually(enough, within_seconds=20, describe=f"{count} sidecars publish their settings")
    return found[:-1]


async def test_lists_say_whether_anything_fires_what_they_list(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        async with sidecar_on(server.url) as running:
            await account.create("ORDERS")
            await running.ready("ORDERS")
            await account.publish("ORDERS.s", {"Nats-Schedule": NEVER, "Nats-Schedule-Target": "ORDERS.out"})

            async def is_served() -> bool:
                document = json.loads((await say(cli, server, "ls", "--json")).stdout)
                return bool(document["streams"][0]["sidecars"] == 1)

            await eventually(is_served, within_seconds=20, describe="the sidecar says that it serves ORDERS")
            for command in (("ls",), ("stream", "ls")):
                document = json.loads((await say(cli, server, *command, "--json")).stdout)
                assert (len(document["sidecars"]), document["streams"][0]["problem"]) == (1, None)
                assert NONE_RUNNING not in (await say(cli, server, *command)).stdout
        for command in (("ls",), ("stream", "ls")):
            document = json.loads((await say(cli, server, *command, "--json")).stdout)
            assert document["sidecars"] == []
            assert {stream["problem"] for stream in document["streams"]} == {NONE_RUNNING}
            assert NONE_RUNNING in (await say(cli, server, *command)).stdout


async def test_a_sidecar_that_does_not_serve_a_stream_does_not_count_for_it(
    cli: Cli, start_server: StartServer
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url):
        await account.create("NAMED", allow_msg_schedules=False)
        await settings_published(account, 1)
        env = {"NATS_SCHEDULER_PORTABLE_STREAMS": "NAMED"}
        said = await say(cli, server, "ls", "NAMED", "--json", env=env)
        document = json.loads(said.stdout)
        assert (document["streams"][0]["sidecars"], document["streams"][0]["problem"]) == (0, NOT_SERVED_YET)
        assert document["warnings"] == [
            "portable_streams is set for this command, and the running sidecars have another value"
        ]
        text = await say(cli, server, "ls", "NAMED", env=env)
        assert "nats-scheduler: warning: portable_streams is set for this command" in text.stderr


async def test_lists_go_by_the_settings_of_the_sidecar_that_runs(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    restricted = {"allowed_targets": ("ORDERS=ORDERS.out",), "portable_streams": ("NAMED",)}
    async with account_on(server.url) as account, sidecar_on(server.url, **restricted) as running:
        await account.create("ORDERS")
        await account.create("NAMED", allow_msg_schedules=False)
        await running.ready("ORDERS")
        await settings_published(account, 1)
        for name in ("out", "secret"):
            headers = {"Nats-Schedule": NEVER, "Nats-Schedule-Target": f"ORDERS.{name}"}
            await account.publish(f"ORDERS.s.{name}", headers)
        document = json.loads((await say(cli, server, "ls", "--json")).stdout)
        assert [one["stream"] for one in document["streams"]] == ["NAMED", "ORDERS"]
        assert [one["subject"] for one in document["schedules"]] == ["ORDERS.s.out"]
        assert [one["subject"] for one in document["invalid"]] == ["ORDERS.s.secret"]
        assert document["warnings"] == []
        streams = json.loads((await say(cli, server, "stream", "ls", "--json")).stdout)["streams"]
        assert [one["stream"] for one in streams] == ["NAMED", "ORDERS"]


async def test_sidecars_that_disagree_are_told_apart(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with (
        account_on(server.url) as account,
        sidecar_on(server.url, max_schedules=("*=1",)),
        sidecar_on(server.url, max_schedules=("*=2",)),
    ):
        await account.create("ORDERS")
        await settings_published(account, 2)
        (warning,) = json.loads((await say(cli, server, "ls", "--json")).stdout)["warnings"]
        assert warning.startswith("the sidecars disagree about max_schedules: ")
        assert "*=1" in warning
        assert "*=2" in warning


async def _was_replaced(account: Account) -> bool:
    return await settings_published(account, 1) != ["killed"]


async def test_what_was_told_is_forgotten_with_who_told_it(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        async with sidecar_on(server.url):
            await settings_published(account, 1)
        await settings_published(account, 0)
        await account.publish(KEY, body=b'{"killed": {}}')
        async with sidecar_on(server.url):
            await eventually(
                partial(_was_replaced, account), within_seconds=20, describe="the settings of a killed sidecar are gone"
            )


async def test_what_a_stranger_writes_as_settings_is_told_and_not_used(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url):
        await account.create("ORDERS")
        (name,) = await settings_published(account, 1)
        for value in ({"max_schedules": ["*=-5"]}, {"max_schedules": 7}, {"too_large": True}, 7):
            await account.publish(KEY, body=json.dumps({name: value}).encode())
            (warning,) = json.loads((await say(cli, server, "ls", "--json")).stdout)["warnings"]
            assert "publishes its settings in a form that this version cannot read" in warning


def test_no_secret_and_nothing_too_large_is_told() -> None:
    assert set(shared_settings(SidecarSettings())) == set(SHARED_SETTINGS)
    many = tuple(f"STREAM{number}=subject.{number}" for number in range(5_000))
    assert shared_settings(SidecarSettings.model_validate({"allowed_targets": many})) == {"too_large": True}


@pytest.mark.parametrize(
    "command", [("ls",), ("ls", "NOPE"), ("stream", "ls"), ("instances",), ("graduate", "NOPE"), ("stream", "add")]
)
def test_a_failure_is_a_json_document_too(cli: Cli, command: tuple[str, ...]) -> None:
    said = cli(*command, "--json", "--server", f"nats://127.0.0.1:{free_port()}")
    assert said.exit_code in (1, 2)
    failure = json.loads(said.stdout)["error"]
    assert failure["exit_code"] == said.exit_code
    assert failure["message"]
    assert said.stderr


@pytest.mark.parametrize(
    "arguments",
    [["next", "@daily", "--count", "0"], ["check"], ["settings", "show", "--window", "0"], ["ls", "a b"], ["fly"]],
)
def test_wrong_use_is_a_json_document_too(cli: Cli, arguments: list[str]) -> None:
    said = cli(*arguments, "--json")
    assert (said.exit_code, json.loads(said.stdout)["error"]["exit_code"]) == (2, 2)
    assert cli(*arguments).stdout == ""
