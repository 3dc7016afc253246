"""Streams: how servers describe them, which requested configurations are in force, and which carry the flag.

The registry records the flag, and since when; the stream's configuration does not. The sidecar may update a stream
only if the configuration that was requested is in force.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import (
    METADATA_FLAG,
    FlaggedStreams,
    Remembered,
    StreamState,
    is_in_force,
)
from nats_scheduler.message.capabilities import capabilities
from nats_scheduler.message.stream_rules import FLAG
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import SharedServer, StartServer
from tests.harness.account import Account, account_on
from tests.harness.servers import ALL_VERSIONS, EMULATED_VERSIONS, V2_11

KEPT: dict[str, Any] = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_age": 0,
    "num_replicas": 1,
    "duplicate_window": 120_000_000_000,
    "allow_direct": True,
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "deny_purge": False,
    "consumer_limits": {},
    "metadata": {"_nats.ver": "2.11.11", METADATA_FLAG: "true", "team": "shop"},
}
"""The configuration that a server of 2.11 returns for a stream that the sidecar adopted."""

ASKED: dict[str, Any] = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "deny_delete": True,
    "metadata": {"team": "shop"},
    FLAG: True,
}
"""The shortest request that results in it."""


def test_what_the_server_filled_in_and_what_we_added_does_not_count() -> None:
    for asked in (ASKED, {**KEPT, FLAG: True}, {**ASKED, "allow_rollup_hdrs": False, "max_msgs": 0}):
        for closely in (True, False):
            assert is_in_force(asked, KEPT, closely=closely, echoed=False), (asked, closely)


def test_a_difference_that_no_server_makes_by_itself_is_one() -> None:
    changes: list[dict[str, Any]] = [
        {"subjects": ["orders.>", "more.>"]},
        {"description": "new"},
        {"storage": "memory"},
        {"retention": "interest"},
        {"max_age": 1},
        {"max_consumers": 3},
        {"deny_delete": False},
        {"mirror": {"name": "other"}},
        {"sources": [{"name": "other"}]},
        {"republish": {"src": ">", "dest": "again.>"}},
        {"metadata": {"team": "other"}},
        {"metadata": {}},
    ]
    for change in changes:
        for closely in (True, False):
            assert not is_in_force({**ASKED, **change}, KEPT, closely=closely, echoed=False), (change, closely)


def test_a_newer_flag_is_awaited_closely_and_then_unknown() -> None:
    for change in ({"allow_msg_ttl": True}, {"allow_direct": False}):
        assert not is_in_force({**ASKED, **change}, KEPT, closely=True, echoed=False)
        assert is_in_force({**ASKED, **change}, KEPT, closely=False, echoed=False)


def test_where_the_server_keeps_the_flag_it_has_to_show() -> None:
    kept = {**KEPT, FLAG: False}
    assert not is_in_force(ASKED, kept, closely=False, echoed=True)
    assert is_in_force(ASKED, {**KEPT, FLAG: True}, closely=False, echoed=True)


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_a_stream_is_described_alike_by_all_answers(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    """So that a round over all streams finds those that changed."""
    configs: list[dict[str, Any]] = [{"metadata": {"team": "shop"}}]
    if version in EMULATED_VERSIONS:
        configs += [{}, {"max_age": 10**12, "allow_direct": True}]
    async with account_on((await shared_server(version)).url) as account:
        for config in configs:
            created = await account.api.create_stream({"name": stream_name, "subjects": [stream_name], **config})
            alone, (found, *_rest) = await account.api.stream(stream_name), await account.api.listed_streams()
            [listed] = [one for one in found if one["config"]["name"] == stream_name]
            await account.api.call(f"STREAM.DELETE.{stream_name}")
            first, *others = map(StreamState.from_info, (created, alone, listed))
            assert others == [first, first], config


# -- the flag --------------------------------------------------------------------------------------------------------


@dataclass
class Flagging:
    """A stream that is not adopted yet, and what can adopt it."""

    account: Account
    registry: Registry
    flagged: FlaggedStreams
    name: str

    async def state(self) -> StreamState:
        """Return the server's information on the stream."""
        return StreamState.from_info(await self.account.api.stream(self.name))


@pytest.fixture
async def flagging(emulated_server: EmbeddedServer, stream_name: str) -> AsyncIterator[Flagging]:
    async with account_on(emulated_server.url) as account:
        connection, api = account.connection, account.api
        registry = Registry(connection, api, f"bucket-of-{stream_name}")
        server = capabilities(await api.info(), connection.server.version, connection.server.max_payload)
        await account.create(stream_name)
        yield Flagging(account, registry, FlaggedStreams(api, registry, server), stream_name)
        await api.call(f"STREAM.DELETE.{stream_name}")
        if await api.stream(registry.stream):
            await api.call(f"STREAM.DELETE.{registry.stream}")


async def test_it_is_known_since_when_a_stream_has_its_flag(flagging: Flagging) -> None:
    """Also if the server now reports another creation time, or if the bucket was lost."""
    await flagging.registry.open()
    await flagging.flagged.adopt(await flagging.state(), {"allow_msg_schedules": True})
    first = await flagging.flagged.recall(await flagging.state())
    assert first.remembered is not None
    moved = replace(first, created="2099-01-01T00:00:00Z")
    await flagging.flagged.adopt(moved, {"allow_msg_schedules": True, "allow_msg_ttl": True})
    again = await flagging.flagged.recall(moved)
    assert again.remembered == Remembered(moved.created, True, first.remembered.since)
    await flagging.account.api.call(f"STREAM.PURGE.{flagging.registry.stream}")
    await flagging.flagged.restore(again)
    assert (await flagging.flagged.recall(moved)).remembered == again.remembered


async def test_only_a_stream_that_is_gone_or_another_one_counts_as_deleted(flagging: Flagging) -> None:
    await flagging.registry.open()
    adopted, _ = await flagging.flagged.adopt(await flagging.state(), {"allow_msg_schedules": True})
    assert not await flagging.flagged.note_deletion(flagging.name, adopted.created)
    another = replace(await flagging.state(), created="2099-01-01T00:00:00Z")
    for created in (None, another.created):
        await flagging.flagged.restore(adopted)
        assert await flagging.flagged.note_deletion(flagging.name, created)
        assert not (await flagging.flagged.recall(another)).is_flagged


async def test_a_repeated_creation_is_accepted_after_it_was_added(flagging: Flagging) -> None:
    await flagging.registry.open()
    name = f"{flagging.name}-added"
    config = {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True, "allow_msg_ttl": True}
    state, created = await flagging.flagged.add(config)
    assert (created, state.is_flagged) == (True, True)
    await flagging.account.api.create_stream(config)
    await flagging.flagged.add(config)
    await flagging.account.api.create_stream(config)
    await flagging.account.api.call(f"STREAM.DELETE.{name}")


async def test_a_server_that_minds_unknown_fields_is_asked_without_the_flag(start_server: StartServer) -> None:
    server = await start_server(V2_11, config="jetstream { strict: true }\n")
    async with account_on(server.url) as account:
        connection, api = account.connection, account.api
        registry = Registry(connection, api, "bucket")
        await registry.open()
        known = capabilities(await api.info(), connection.server.version, connection.server.max_payload)
        flagged = FlaggedStreams(api, registry, known)
        state, _ = await flagged.add({"name": "S", "subjects": ["S.>"], "allow_msg_schedules": True})
        assert state.is_flagged
        with pytest.raises(RefusedError, match="no_such_field"):
            await flagged.add({"name": "S", "subjects": ["S.>"], "allow_msg_schedules": True, "no_such_field": 1})
