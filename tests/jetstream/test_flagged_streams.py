"""The registry records which streams carry the flag, and since when; the stream's configuration does not."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from nats_scheduler.jetstream.errors import ApiError, JetStreamError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import UNREADABLE, FlaggedStreams, Remembered, StreamState
from nats_scheduler.message.capabilities import capabilities
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import StartServer
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_11


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

    async def known(self) -> dict[str, object] | None:
        """Return its registry entry."""
        return await self.registry.get(f"stream.{self.name}")


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


async def test_what_is_adopted_is_known_by_when_it_was_made_and_left_as_it_is(flagging: Flagging) -> None:
    await flagging.registry.open()
    before = await flagging.state()
    asked = {"allow_msg_schedules": True, "allow_msg_ttl": True}
    adopted, refusal = await flagging.flagged.adopt(before, asked)
    assert (adopted.is_flagged, adopted.rules.allow_msg_ttl, refusal) == (True, True, None)
    assert await flagging.known() == {"created": adopted.created, "allow_msg_ttl": True}
    assert (await flagging.state()).config == before.config


async def test_what_cannot_be_remembered_is_not_adopted(flagging: Flagging) -> None:
    with pytest.raises(JetStreamError):
        await flagging.flagged.adopt(await flagging.state(), {"allow_msg_schedules": True})


async def test_it_is_known_since_when_it_was_flagged_whatever_was_added_since(flagging: Flagging) -> None:
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


async def test_a_stream_that_comes_back_from_a_backup_is_flagged_as_it_was(flagging: Flagging) -> None:
    """A stream that was created again holds no message that is older than itself."""
    await flagging.registry.open()
    adopted, _ = await flagging.flagged.adopt(await flagging.state(), {"allow_msg_schedules": True})
    restored = replace(await flagging.state(), created="2099-01-01T00:00:00Z", holds_older_messages=True)
    for state in (restored, await flagging.state()):
        await flagging.flagged.restore(adopted)
        await flagging.flagged.note_deletion(flagging.name, None)
        found = await flagging.flagged.recall(state)
        assert found.is_flagged
        await flagging.flagged.adopt(found, {})
        known = await flagging.known() or {}
        assert (known["created"], "deleted" in known) == (state.created, False)


@pytest.mark.parametrize("value", [{}, {"created": 7}, {"created": None, "since": "never"}])
async def test_an_entry_that_is_not_of_our_making_says_only_that_there_is_a_flag(
    flagging: Flagging, value: dict[str, object]
) -> None:
    await flagging.registry.open()
    await flagging.registry.put(f"stream.{flagging.name}", value)
    assert (await flagging.flagged.recall(await flagging.state())).remembered == Remembered(UNREADABLE, False, None)


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
        with pytest.raises(ApiError, match="no_such_field"):
            await flagged.add({"name": "S", "subjects": ["S.>"], "allow_msg_schedules": True, "no_such_field": 1})
