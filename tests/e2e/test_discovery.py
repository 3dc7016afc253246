"""The streams that are served: by request, by file, by metadata, and what never switches the flag on or off."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import HOUR, MINUTE
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, in_seconds, sidecar_on
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.watched import MARKED, Watched


def put(folder: Path, config: Mapping[str, Any]) -> None:
    """Write a flagged stream file."""
    (folder / "orders.json").write_text(json.dumps({**config, "allow_msg_schedules": True}), "utf-8")


# -- ways to flag a stream -------------------------------------------------------------------------------------------


async def test_a_stream_created_with_the_flag_by_anyone_is_served_and_left_as_it_is(watched: Watched) -> None:
    made = await watched.create(metadata={"team": "shop"})
    await watched.fires()
    assert (await watched.remembered())["created"] == made["created"]
    assert (await watched.account.api.stream(watched.name))["config"] == made["config"]


async def test_a_stream_updated_with_the_flag_is_served_and_every_other_change_survives(watched: Watched) -> None:
    await watched.create(allow_msg_schedules=False, allow_direct=True, metadata={"team": "none", "old": "1"})
    changes = {
        "description": "new",
        "max_msgs": 1000,
        "max_age": HOUR,
        "duplicate_window": MINUTE,
        "allow_direct": False,
        "republish": {"src": f"{watched.name}.>", "dest": f"{watched.name}-again.>"},
        "metadata": {"team": "shop"},
    }
    await watched.update(allow_msg_schedules=True, subjects=[f"{watched.name}.>", f"{watched.name}-2.>"], **changes)
    await watched.fires(target=f"{watched.name}-2.out")
    subjects = [f"{watched.name}.>", f"{watched.name}-2.>"]
    await watched.config_with(**{**changes, "subjects": subjects})


async def test_a_schedule_stored_before_the_flag_was_put_fires(watched: Watched) -> None:
    await watched.create(allow_msg_schedules=False)
    await watched.schedule("s", f"{watched.name}.out")
    await watched.update(allow_msg_schedules=True)
    assert await watched.account.wait_for(watched.name, f"{watched.name}.out")


async def test_a_metadata_key_set_by_hand_stands_for_the_flag(watched: Watched) -> None:
    await watched.create(allow_msg_schedules=False)
    await watched.update(metadata=MARKED)
    await watched.remembered()
    await watched.config_with(metadata=MARKED, allow_rollup_hdrs=False)
    await watched.fires()


@pytest.mark.parametrize("spelled", ["TRUE", "1", "yes", "on"])
async def test_a_mark_is_understood_however_it_says_yes(watched: Watched, spelled: str) -> None:
    await watched.create(allow_msg_schedules=False, metadata={METADATA_FLAG: spelled})
    await watched.fires()


async def test_a_stream_marked_before_the_sidecar_starts_is_served_at_start(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]]
) -> None:
    await account.create(swept, allow_msg_schedules=False, metadata=MARKED)
    async with sidecar_on(emulated_server.url) as running:
        await Watched(account, running, swept, emulated_server.url, said).fires()


async def test_the_streams_of_a_folder_are_created_and_served(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]], tmp_path: Path
) -> None:
    put(tmp_path, {"name": swept, "subjects": [f"{swept}.>"], "storage": "memory", "deny_purge": True})
    async with sidecar_on(emulated_server.url, streams_folder=tmp_path) as running:
        watched = Watched(account, running, swept, emulated_server.url, said)
        await watched.line("stream_configured", created=True)
        await watched.config_with(metadata={}, allow_rollup_hdrs=False, deny_purge=False)
        await watched.fires()


async def test_a_folder_updates_a_stream_that_exists_and_leaves_it_flagged(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]], tmp_path: Path
) -> None:
    await account.create(swept, allow_msg_schedules=False, metadata={"team": "shop"})
    config = {"name": swept, "subjects": [f"{swept}.>"], "storage": "memory", "description": "from a file"}
    put(tmp_path, config)
    async with sidecar_on(emulated_server.url, streams_folder=tmp_path) as running:
        watched = Watched(account, running, swept, emulated_server.url, said)
        await watched.line("stream_configured", created=False)
        await watched.config_with(metadata={"team": "shop"}, description="from a file")
        await watched.fires()


# -- what does not switch it off -------------------------------------------------------------------------------------


async def test_a_rewrite_without_the_flag_does_not_switch_it_off_and_is_said(watched: Watched) -> None:
    await watched.create(metadata={"team": "shop"})
    await watched.sidecar.ready(watched.name)
    await watched.rewrite(description="rewritten")
    await watched.line("flag_removal_ignored", code=10052)
    await watched.fires()
    await watched.config_with(metadata={}, description="rewritten", allow_rollup_hdrs=False)


async def test_a_rewrite_while_no_sidecar_ran_does_not_switch_it_off(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]]
) -> None:
    async with sidecar_on(emulated_server.url) as running:
        first = Watched(account, running, swept, emulated_server.url, said)
        await first.create()
        await first.remembered()
    await first.rewrite(description="rewritten")
    async with sidecar_on(emulated_server.url) as running:
        watched = Watched(account, running, swept, emulated_server.url, said)
        await watched.fires()
        await watched.config_with(metadata={}, description="rewritten")


async def test_an_explicit_no_does_not_switch_it_off_and_is_said(watched: Watched) -> None:
    await watched.create()
    await watched.remembered()
    await watched.rewrite(allow_msg_schedules=False, description="off?")
    said = await watched.line("flag_removal_ignored", code=10052)
    assert said["reason"] == "message schedules can not be disabled"
    await watched.config_with(metadata={}, description="off?")
    await watched.fires()


async def test_message_ttls_stay_allowed_through_a_rewrite(watched: Watched) -> None:
    await watched.create(allow_msg_ttl=True)
    await watched.sidecar.ready(watched.name)
    await watched.rewrite(allow_msg_ttl=True, description="rewritten")
    await watched.config_with(description="rewritten")
    at = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": f"{watched.name}.out"}
    await watched.account.publish(f"{watched.name}.s", {**at, "Nats-Schedule-TTL": "1h"})
    [fired] = await watched.account.wait_for(watched.name, f"{watched.name}.out")
    assert b"Nats-TTL: 1h\r\n" in fired.block


# -- deleted and made again ------------------------------------------------------------------------------------------


async def test_a_stream_made_again_without_the_flag_is_not_served(watched: Watched) -> None:
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.delete()
    await watched.create(allow_msg_schedules=False)
    await watched.line("stream_not_served")
    await watched.does_not_fire()


async def test_a_stream_made_again_with_the_flag_is_served_and_knows_nothing_of_the_first(watched: Watched) -> None:
    await watched.create()
    await watched.account.publish(
        f"{watched.name}.s",
        {"Nats-Schedule": f"@at {in_seconds(0.7)}", "Nats-Schedule-Target": f"{watched.name}.old"},
    )
    await watched.sidecar.ready(watched.name)
    await watched.delete()
    await watched.create()
    headers = {"Nats-Schedule": f"@at {in_seconds(0.9)}", "Nats-Schedule-Target": f"{watched.name}.new"}
    sequence = await watched.account.publish(f"{watched.name}.s", headers)
    [fired] = await watched.account.wait_for(watched.name, f"{watched.name}.new")
    assert (sequence, b"Nats-Msg-Id: nats-scheduler:1:" in fired.block) == (1, True)
    assert await watched.account.messages(watched.name, f"{watched.name}.old") == []


async def test_a_stream_that_is_gone_is_served_no_longer(watched: Watched) -> None:
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.delete()
    await watched.line("stream_not_served", reason="the stream is gone")
    assert watched.name not in watched.sidecar.sidecar.served


async def test_a_flag_is_seen_from_the_moment_that_the_sidecar_says_connected(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        with sidecar("run", "-s", server.url, folder=tmp_path) as process:
            await process.wait_for_line("connected")
            await account.create("S")
            await process.wait_for_line("stream_ready")
