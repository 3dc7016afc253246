"""The files of `streams_folder`: each is applied, and one that cannot be keeps no other from being served.

It tests `runtime/file_streams.py` too.
"""

import json
from pathlib import Path
from typing import Any

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, sidecar_on, started_sidecar
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import V2_11
from tests.harness.watched import Watched


def folder_of(tmp_path: Path, *configs: dict[str, Any]) -> Path:
    """Write stream files, the first ones first in order."""
    folder = tmp_path / "streams"
    folder.mkdir()
    for number, config in enumerate(configs):
        whole = {"subjects": [f"{config['name']}.>"], "allow_msg_schedules": True, **config}
        (folder / f"{number}.json").write_text(json.dumps(whole))
    return folder


async def fires(account: Account, stream: str) -> None:
    """Show that a stream is served."""
    await FlaggedStream(account, stream).canary()


def configured(running: Running, stream: str) -> list[dict[str, Any]]:
    """Return what was reported against a stream's file."""
    return [told for told in running.told("stream_configure_failed") if told["stream"] == stream]


async def test_the_streams_of_a_folder_are_created_or_updated_and_served(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]], tmp_path: Path
) -> None:
    """And an application that creates the same stream is not refused, at any start."""
    new, old = f"{swept}-new", f"{swept}-old"
    await account.create(old, allow_msg_schedules=False, metadata={"team": "shop"})
    folder = folder_of(
        tmp_path,
        {"name": new, "storage": "memory", "deny_purge": True},
        {"name": old, "storage": "memory", "description": "from a file"},
    )
    async with sidecar_on(emulated_server.url, streams_folder=folder) as running:
        created, updated = (Watched(account, name, running, said=said) for name in (new, old))
        await created.line("stream_configured", created=True)
        await created.config_with(metadata={}, allow_rollup_hdrs=False, deny_purge=False)
        await updated.line("stream_configured", created=False)
        await updated.config_with(metadata={"team": "shop"}, description="from a file")
        for one in (created, updated):
            await one.fires()
        await created.create(retention="limits")
    said.clear()
    async with sidecar_on(emulated_server.url, streams_folder=folder) as running:
        again = Watched(account, new, running, said=said)
        await again.line("stream_configured")
        await again.create(retention="limits")


async def test_a_file_that_fails_is_applied_when_it_can_be(start_server: StartServer, tmp_path: Path) -> None:
    """The account is full, and somebody makes room; an error of our own over one file ends no other."""
    server = await start_server(V2_11, config="jetstream { max_file_store: 64MB }\n")
    folder = folder_of(
        tmp_path,
        {"name": "broken", "sources": 7},
        {"name": "late", "max_bytes": 40_000_000},
        {"name": "odd", "discard": "new"},
        {"name": "orders"},
    )
    async with account_on(server.url) as account:
        await account.create("big", storage="file", max_bytes=40_000_000, allow_msg_schedules=False)
        settings = ConnectionSettings(servers=(server.url,))
        async with started_sidecar(settings, streams_folder=folder) as running:
            await running.ready("orders")
            await fires(account, "orders")
            for name, code in (("late", "10047"), ("odd", "10052"), ("broken", "")):
                assert code in (await running.told_of("stream_configure_failed", stream=name))["reason"]
            await account.api.call("STREAM.DELETE.big")
            await running.ready("late")
            await fires(account, "late")
            assert [len(configured(running, name)) for name in ("late", "odd")] == [1, 1]
