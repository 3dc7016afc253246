"""The files of `streams_folder`: one that cannot be applied keeps nothing else from being served and is tried again."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.runtime import file_streams
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, started_sidecar
from tests.harness.permissions import PASSWORD, Permission, allowing, permissions_of
from tests.harness.servers import V2_11, reload_config
from tests.harness.waiting import eventually

APPLYING = [
    Permission("publish", f"$JS.API.STREAM.{act}.{name}", ("yes",) * 4)
    for act in ("CREATE", "UPDATE")
    for name in ("orders", "late")
]


def folder_of(tmp_path: Path, *configs: dict[str, Any]) -> Path:
    """Write stream files, the first ones first in order."""
    folder = tmp_path / "streams"
    folder.mkdir()
    for number, config in enumerate(configs):
        whole = {"subjects": [f"{config['name']}.>"], "allow_msg_schedules": True, **config}
        (folder / f"{number}.json").write_text(json.dumps(whole))
    return folder


def users(sidecar: Iterable[Permission]) -> str:
    """Write an account with an owner and a sidecar that has these permissions."""
    owner = f"{{ user: owner, password: {PASSWORD} }}"
    held = f"{{ user: sidecar, password: {PASSWORD}, permissions: {allowing(sidecar)} }}"
    return f"accounts {{ A {{ jetstream: enabled, users: [{owner}, {held}] }} }}\n"


async def fires(account: Account, stream: str) -> None:
    """Show that a stream is served."""
    headers = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": f"{stream}.out"}
    await account.publish(f"{stream}.s", headers)
    await account.wait_for(stream, f"{stream}.out")


def configured(running: Running, stream: str) -> list[dict[str, Any]]:
    """Return what was reported against a stream's file."""
    return [told for told in running.told("stream_configure_failed") if told["stream"] == stream]


async def test_a_file_that_may_not_be_applied_leaves_the_account_served_and_is_applied_once_it_may(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_streams, "REFUSED_RETRY_WAITS_SECONDS", (0.2, 0.2))
    folder = folder_of(tmp_path, {"name": "forbidden"}, {"name": "orders"})
    permissions = [*permissions_of("2.11"), *APPLYING]
    server = await start_server(V2_11, config=users(permissions))
    url = server.url.replace("nats://", f"nats://sidecar:{PASSWORD}@")
    settings = ConnectionSettings(servers=(url,))
    async with (
        started_sidecar(settings, streams_folder=folder) as running,
        account_on(server.url.replace("nats://", f"nats://owner:{PASSWORD}@")) as account,
    ):
        await running.ready("orders")
        await fires(account, "orders")
        told = await running.told_of("stream_configure_failed", stream="forbidden")
        assert "permission" in told["reason"]
        await fires(account, "orders")
        assert len(configured(running, "forbidden")) == 1, "the same reason is told once"
        assert not running.told("jetstream_unavailable")
        assert not running.told("connection_lost")
        may = Permission("publish", "$JS.API.STREAM.CREATE.forbidden", ("yes",) * 4)
        reload_config(server, users([*permissions, may]))
        await running.ready("forbidden")


async def test_a_file_that_fails_for_the_moment_is_applied_when_it_can_be(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The account is full, and somebody makes room."""
    server = await start_server(V2_11, config="jetstream { max_file_store: 64MB }\n")
    folder = folder_of(
        tmp_path,
        {"name": "late", "max_bytes": 40_000_000},
        {"name": "odd", "allow_msg_schedules": True, "discard": "new"},
        {"name": "orders"},
    )
    async with account_on(server.url) as account:
        await account.create("big", storage="file", max_bytes=40_000_000, allow_msg_schedules=False)
        settings = ConnectionSettings(servers=(server.url,))
        async with started_sidecar(settings, streams_folder=folder) as running:
            await running.ready("orders")
            await fires(account, "orders")
            told = await running.told_of("stream_configure_failed", stream="late")
            assert "10047" in told["reason"]
            assert "10052" in (await running.told_of("stream_configure_failed", stream="odd"))["reason"]
            await account.api.call("STREAM.DELETE.big")
            await running.ready("late")
            await fires(account, "late")
            assert [len(configured(running, name)) for name in ("late", "odd")] == [1, 1]


async def test_a_file_that_failed_is_tried_again_at_once_on_the_next_connection(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Its next turn would come in 15 s: what has been refused is refused by what somebody has to change."""
    server = await start_server(V2_11)
    folder = folder_of(tmp_path, {"name": "late"})
    async with account_on(server.url) as account:
        await account.create("other", subjects=["late.>"], allow_msg_schedules=False)
        async with started_sidecar(ConnectionSettings(servers=(server.url,)), streams_folder=folder) as running:
            assert "10065" in (await running.told_of("stream_configure_failed", stream="late"))["reason"]
            await account.api.call("STREAM.DELETE.other")
            assert running.sidecar.connection is not None
            running.sidecar.connection.end("ended by the test")
            await running.ready("late", within_seconds=file_streams.REFUSED_RETRY_WAITS_SECONDS[0] / 2)


async def test_an_error_of_our_own_over_one_file_ends_no_other(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(V2_11)
    folder = folder_of(tmp_path, {"name": "orders", "sources": 7}, {"name": "late"})
    async with started_sidecar(ConnectionSettings(servers=(server.url,)), streams_folder=folder) as running:
        await running.ready("late")
        await eventually(lambda: configured(running, "orders"), within_seconds=20)
