"""The streams that are served: what puts the flag on a stream, what cannot have it, and what never takes it off.

How each request to create or change a stream is taken is in `tests/differential/test_stream_rules.py`.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.runtime.discovery import MAX_RESTORES_AWAITED
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, sidecar_on
from tests.harness.flagged import FLAG
from tests.harness.watched import Watched

Lines = list[dict[str, Any]]


@asynccontextmanager
async def watching(server: EmbeddedServer, account: Account, name: str, said: Lines) -> AsyncIterator[Watched]:
    """Run a sidecar after the stream was made."""
    said.clear()
    async with sidecar_on(server.url) as running:
        yield Watched(account, name, running, server.url, server.version, said)


# -- ways to flag a stream -------------------------------------------------------------------------------------------


async def test_a_stream_created_with_the_flag_is_served_as_it_is(watched: Watched) -> None:
    made = await watched.create(metadata={"team": "shop"})
    await watched.fires()
    assert (await watched.remembered())["created"] == made["created"]
    assert (await watched.account.api.stream(watched.name))["config"] == made["config"]


async def test_a_stream_that_was_marked_before_is_served_at_start(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: Lines
) -> None:
    """And a rewrite while no sidecar ran does not switch the flag off."""
    await account.create(swept, allow_msg_schedules=False, **FLAG)
    async with sidecar_on(emulated_server.url) as running:
        first = Watched(account, swept, running, said=said)
        await first.fires()
        await first.remembered()
    await first.rewrite(description="rewritten")
    async with watching(emulated_server, account, swept, said) as again:
        await again.fires("again")
        await again.config_with(metadata={}, description="rewritten")


# -- streams that cannot have it -------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "mirror": ({"mirror": {"name": "ORIGIN"}, "subjects": None}, 10186),
    "sources": ({"sources": [{"name": "ORIGIN"}]}, 10187),
    "discard-new": ({"discard": "new"}, 10052),
    "deny-purge": ({"deny_purge": True}, 10052),
    "pedantic": ({"pedantic": True}, 10052),
    "counter": ({"allow_msg_counter": True}, 10052),
    "a-word": ({"allow_msg_schedules": "yes"}, 10025),
}


@pytest.mark.clause("stream-json")
async def test_a_stream_that_cannot_have_the_flag_is_refused(
    watched: Watched,
) -> None:
    origin = f"{watched.name}-origin"
    await watched.account.create(origin, allow_msg_schedules=False)
    for kind, (config, code) in REFUSED.items():
        one = Watched(watched.account, f"{watched.name}-{kind}", watched.sidecar, said=watched.said)
        await one.create(**json.loads(json.dumps(config).replace("ORIGIN", origin)))
        line = await one.line("stream_refused", code=code)
        assert line["log_level"] == "warning", kind
        if code == 10025:
            assert line["description"].startswith("invalid JSON: json: cannot unmarshal "), kind
        assert (await one.config())["metadata"] == {}, kind
        assert one.name not in watched.sidecar.sidecar.served


# -- changes of a stream that is served ------------------------------------------------------------------------------

LATER_FAULTS: tuple[tuple[dict[str, Any], int], ...] = (
    ({"discard": "new", "allow_msg_schedules": True}, 10052),
    ({"discard": "new"}, 10052),
    ({"deny_purge": True, "allow_rollup_hdrs": False}, 10052),
    ({"allow_msg_schedules": "yes"}, 10025),
)


@pytest.mark.clause("stream-stays-on")
async def test_a_change_that_a_newer_server_refuses_ends_no_schedule(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: Lines
) -> None:
    """There nothing changes; here the older server has made the change. After a restart it is the same."""
    names = [f"{swept}-{number}" for number in range(len(LATER_FAULTS))]
    async with sidecar_on(emulated_server.url) as running:
        for name, (change, code) in zip(names, LATER_FAULTS, strict=True):
            one = Watched(account, name, running, said=said)
            await one.served()
            await one.rewrite(**change)
            await one.line("stream_refused", code=code)
            await one.fires()
        assert not [line for line in said if line["event"] == "stream_not_served" and line["stream"] in names]
    async with watching(emulated_server, account, names[1], said) as again:
        await again.fires("again")
        await again.line("stream_refused", code=10052)


@pytest.mark.clause("stream-sources")
async def test_a_stream_with_sources_is_not_served_until_they_are_gone(watched: Watched) -> None:
    """A schedule that was copied from another stream would fire here as well as there."""
    origin = f"{watched.name}-origin"
    await watched.account.create(origin, allow_msg_schedules=False)
    await watched.served()
    await watched.rewrite(sources=[{"name": origin}])
    await watched.line("stream_refused", code=10187)
    await watched.line("stream_not_served")
    await watched.schedule_at("s", watched.subject("out"))
    await watched.rewrite(description="without sources")
    assert len(await watched.wait_for("out")) == 1


async def test_restores_that_never_begin_are_awaited_up_to_a_number(watched: Watched) -> None:
    connection = watched.account.connection
    await watched.served()
    for number in range(MAX_RESTORES_AWAITED + 2):
        name = f"{watched.name}-{number}"
        config = {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True}
        connection.publish(f"$JS.API.STREAM.RESTORE.{name}", json.dumps({"config": config, "state": "none"}).encode())
    for number in range(2):
        await watched.sidecar.told_of("request_skipped", stream=f"{watched.name}-{number}")
    await watched.fires()
