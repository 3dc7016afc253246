"""`nats-scheduler stream`: what a file requests, on servers that support the flag and on those that drop it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from nats_scheduler.runtime.embedded import EmbeddedServer, free_port
from nats_scheduler.runtime.modes import EXPLANATIONS, Mode
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import account_on
from tests.harness.servers import ALL_VERSIONS, NATIVE_VERSIONS, V2_10, V2_11, V2_14

Stream = Callable[..., Awaitable[Result]]
"""`await stream("add", file)` runs one command against the test's server."""


@pytest.fixture(params=ALL_VERSIONS)
async def server(request: pytest.FixtureRequest, start_server: StartServer) -> EmbeddedServer:
    """Start a server of each version."""
    return await start_server(request.param)


@pytest.fixture
def mode(server: EmbeddedServer) -> Mode:
    """Return what fires on a flagged stream of the server."""
    return Mode.NATIVE if server.version in NATIVE_VERSIONS else Mode.EMULATED


@pytest.fixture
def stream(cli: Cli, server: EmbeddedServer) -> Stream:
    """Run `nats-scheduler stream …` against the server."""
    return on(cli, server)


def on(cli: Cli, server: EmbeddedServer) -> Stream:
    """Return a function that runs `nats-scheduler stream …`, in a thread with an event loop of its own."""

    async def run(*arguments: object, **options: Any) -> Result:
        words = ("stream", *map(str, arguments), "--server", server.url)
        return await asyncio.to_thread(cli, *words, **options)

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a stream file: `write("ORDERS", mirror={…})`."""

    def to_file(name: str, **config: Any) -> Path:
        file = tmp_path / f"{name}.json"
        given = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "allow_msg_schedules": True, **config}
        file.write_text(json.dumps({key: value for key, value in given.items() if value is not None}))
        return file

    return to_file


Write = Callable[..., Path]


async def test_a_file_creates_its_stream_then_changes_it_then_finds_it_unchanged(
    stream: Stream, write: Write, mode: Mode
) -> None:
    said = [await stream("add", write("ORDERS", max_msgs=limit)) for limit in (1000, 2000, 2000)]
    tail = f", {mode}: {EXPLANATIONS[mode]}\n"
    assert [(one.stdout, one.stderr, one.exit_code) for one in said] == [
        (f"stream ORDERS {outcome}{tail}", "", 0) for outcome in ("created", "updated", "unchanged")
    ]


async def test_an_existing_stream_is_given_the_flag_and_is_left_as_it_is_otherwise(
    stream: Stream, write: Write, server: EmbeddedServer, mode: Mode
) -> None:
    async with account_on(server.url) as account:
        await account.create("ORDERS", allow_msg_schedules=False)
        said = await stream("add", write("ORDERS"))
        config = (await account.api.stream("ORDERS"))["config"]
    assert said.stdout.startswith(f"stream ORDERS updated, {mode}: ")
    is_native = mode is Mode.NATIVE
    assert (config.get("allow_msg_schedules", False), config["allow_rollup_hdrs"]) == (is_native, is_native)
    assert "nats-scheduler.allow_msg_schedules" not in (config.get("metadata") or {})


@pytest.mark.parametrize(
    ("config", "code", "reason"),
    [
        ({"mirror": {"name": "M"}, "subjects": None}, 10186, "mirror of 'M' is not possible"),
        ({"sources": [{"name": "A"}, {"name": "B"}]}, 10187, "sources of 'A, B' is not possible"),
        ({"discard": "new"}, 10052, "discard of 'new' excludes allow_msg_schedules"),
        ({"subjects": ["bad subject"]}, None, "server code"),
    ],
)
async def test_what_the_server_would_refuse_is_refused_with_its_code(
    stream: Stream, write: Write, config: dict[str, Any], code: int | None, reason: str
) -> None:
    file = write("ORDERS", **config)
    said = await stream("add", file)
    assert (said.stdout, said.exit_code) == ("", 1)
    assert said.stderr.startswith(f"nats-scheduler: error: {file}: ")
    assert reason in said.stderr
    assert code is None or f"(server code {code})" in said.stderr


async def test_the_flag_cannot_be_switched_off_again(stream: Stream, write: Write) -> None:
    await stream("add", write("ORDERS"))
    for off in (False, None):
        said = await stream("add", write("ORDERS", allow_msg_schedules=off))
        assert said.exit_code == 1
        assert "(server code 10052)" in said.stderr
    assert (await stream("add", write("ORDERS"))).stdout.startswith("stream ORDERS unchanged")


async def test_one_bad_file_does_not_keep_the_others_from_being_used(
    cli: Cli, start_server: StartServer, write: Write, tmp_path: Path
) -> None:
    stream = on(cli, await start_server(V2_11))
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    missing = tmp_path / "missing.json"
    copy = write("COPY", mirror={"name": "M"}, subjects=None)
    said = await stream("add", broken, write("A"), copy, missing, write("B"))
    assert said.exit_code == 2
    assert [line.split(",")[0] for line in said.stdout.splitlines()] == ["stream A created", "stream B created"]
    complained = [line.partition(".json")[0] for line in said.stderr.splitlines()]
    assert complained == [f"nats-scheduler: error: {tmp_path / name}" for name in ("broken", "missing", "COPY")]


async def test_json_is_one_document_with_what_was_done_and_what_was_not(
    cli: Cli, start_server: StartServer, write: Write, tmp_path: Path
) -> None:
    stream = on(cli, await start_server(V2_10))
    done, refused = write("A"), write("COPY", mirror={"name": "M"}, subjects=None)
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[]")
    said = await stream("add", done, refused, wrong, "--json")
    assert (said.exit_code, said.stderr) == (2, "")
    assert json.loads(said.stdout) == {
        "streams": [
            {
                "file": str(done),
                "stream": "A",
                "outcome": "created",
                "mode": "emulated",
                "served": EXPLANATIONS[Mode.EMULATED],
            }
        ],
        "errors": [
            {
                "file": str(wrong),
                "stream": None,
                "reason": f"{wrong} contains [], expected an object such as {{'name': 'ORDERS', ...}}",
            },
            {
                "file": str(refused),
                "stream": "COPY",
                "code": 400,
                "err_code": 10186,
                "description": "stream mirrors can not also schedule messages",
                "header": "mirror",
                "value": "M",
                "reason": "is not possible for a stream with schedules",
            },
        ],
    }


def test_a_server_that_is_not_reached_ends_with_1(cli: Cli, write: Write) -> None:
    server = f"nats://127.0.0.1:{free_port()}"
    for arguments in (["add", str(write("A"))], ["ls"]):
        said = cli("stream", *arguments, "--server", server)
        assert (said.exit_code, said.stdout) == (1, "")
        assert said.stderr.startswith(f"nats-scheduler: error: {server}: ")


def test_no_file_at_all_is_wrong_use(cli: Cli) -> None:
    assert cli("stream", "add").exit_code == 2


async def test_ls_lists_the_streams_that_carry_schedules(
    stream: Stream, write: Write, server: EmbeddedServer, mode: Mode
) -> None:
    async with account_on(server.url) as account:
        await account.create("PLAIN", allow_msg_schedules=False)
        await account.create("NAMED", allow_msg_schedules=False, retention="workqueue")
    await stream("add", write("ORDERS"))
    env = {"NATS_SCHEDULER_PORTABLE_STREAMS": "NAMED"}
    named, orders = json.loads((await stream("ls", "--json", env=env)).stdout)["streams"]
    assert (named["stream"], named["mode"], named["retention"], named["since"]) == (
        "NAMED",
        "portable",
        "workqueue",
        None,
    )
    assert (orders["stream"], orders["mode"], orders["retention"]) == ("ORDERS", mode, "limits")
    assert (orders["since"] is None) == (mode is Mode.NATIVE)
    table = (await stream("ls", env=env)).stdout.splitlines()
    assert [row.split()[:3] for row in table[1:3]] == [["NAMED", "portable", "0"], ["ORDERS", mode, "0"]]
    assert table[1].endswith("no sidecar is running: nothing fires these")
    assert table[3].startswith("2 in all: ")
    wide = (await stream("ls", "--wide", env=env)).stdout.splitlines()
    assert [row.split()[2] for row in wide[1:3]] == ["workqueue", "limits"]


@pytest.mark.clause("stream-sources")
@pytest.mark.parametrize("change", [{"sources": [{"name": "ORIGIN"}]}, {"sealed": True}], ids=["sources", "sealed"])
async def test_ls_leaves_out_a_stream_that_can_have_no_schedules_any_more(
    cli: Cli, start_server: StartServer, write: Write, change: dict[str, Any]
) -> None:
    server = await start_server(V2_11)
    stream = on(cli, server)
    await stream("add", write("ORDERS"))
    assert len(json.loads((await stream("ls", "--json")).stdout)["streams"]) == 1
    async with account_on(server.url) as account:
        await account.create("ORIGIN", allow_msg_schedules=False)
        config = (await account.api.stream("ORDERS"))["config"]
        await account.api.update_stream({**config, **change})
    assert json.loads((await stream("ls", "--json")).stdout)["streams"] == []


async def test_ls_writes_nothing(stream: Stream, server: EmbeddedServer) -> None:
    said = await stream("ls")
    assert (said.exit_code, said.stdout) == (
        0,
        "no stream carries schedules: `nats-scheduler stream add FILE` makes one\n",
    )
    async with account_on(server.url) as account:
        assert [info async for info in account.api.streams()] == []


async def test_a_stream_that_waits_for_the_flag_after_an_upgrade_is_dormant_until_it_is_added(
    cli: Cli, start_server: StartServer, write: Write
) -> None:
    server = await start_server(V2_14)
    stream = on(cli, server)
    marked = {"nats-scheduler.allow_msg_schedules": "true"}
    async with account_on(server.url) as account:
        await account.create("ORDERS", allow_msg_schedules=False, metadata=marked)
    assert json.loads((await stream("ls", "--json")).stdout)["streams"][0]["mode"] == "dormant"
    assert (await stream("add", write("ORDERS"))).stdout.startswith("stream ORDERS updated, native: ")
