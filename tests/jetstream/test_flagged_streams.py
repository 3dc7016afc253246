"""A stream that somebody flagged is known in the registry before its metadata show it, and not where it was refused."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from nats_scheduler.jetstream.capabilities import capabilities
from nats_scheduler.jetstream.errors import ApiError, JetStreamError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import FlaggedStreams, StreamState
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, account_on


@dataclass
class Flagging:
    """A stream that nobody adopted yet, and who may adopt it."""

    account: Account
    registry: Registry
    flagged: FlaggedStreams
    name: str

    async def state(self) -> StreamState:
        """Return what the server says of the stream."""
        return StreamState.from_info(await self.account.api.stream(self.name))

    async def known(self) -> dict[str, object] | None:
        """Return what the registry says of it."""
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


async def test_what_cannot_be_remembered_is_not_marked(flagging: Flagging) -> None:
    """Whoever sees the mark may rewrite it away at once, so that the registry has to know by then."""
    with pytest.raises(JetStreamError):
        await flagging.flagged.adopt(await flagging.state(), {"allow_msg_schedules": True})
    assert not (await flagging.state()).is_marked


async def test_what_is_adopted_is_known_by_when_it_was_made(flagging: Flagging) -> None:
    await flagging.registry.open()
    asked = {"allow_msg_schedules": True, "allow_msg_ttl": True}
    adopted, refusal = await flagging.flagged.adopt(await flagging.state(), asked)
    assert (adopted.is_marked, refusal) == (True, None)
    assert await flagging.known() == {"created": adopted.created, "allow_msg_ttl": True}


@pytest.mark.parametrize("before", [None, {"created": "2020-01-01T00:00:00Z"}])
async def test_what_the_server_refuses_is_forgotten_again(flagging: Flagging, before: dict[str, str] | None) -> None:
    await flagging.registry.open()
    if before is not None:
        await flagging.registry.put(f"stream.{flagging.name}", before)
    state = await flagging.state()
    other = replace(state, config={**state.config, "storage": "file"})
    with pytest.raises(ApiError, match="storage"):
        await flagging.flagged.adopt(other, {"allow_msg_schedules": True})
    assert await flagging.known() is None
    assert not (await flagging.state()).is_marked


async def test_what_it_was_known_for_survives_a_refusal(flagging: Flagging) -> None:
    await flagging.registry.open()
    state = await flagging.state()
    known = {"created": state.created}
    await flagging.registry.put(f"stream.{flagging.name}", known)
    with pytest.raises(ApiError, match="storage"):
        await flagging.flagged.adopt(
            replace(state, config={**state.config, "storage": "file"}),
            {"allow_msg_schedules": True, "allow_msg_ttl": True},
        )
    assert await flagging.known() == known


async def test_a_refusal_leaves_alone_since_when_it_is_known(flagging: Flagging) -> None:
    """Graduation judges what was stored by that time."""
    await flagging.registry.open()
    state = await flagging.state()
    await flagging.flagged.remember(state)
    since = await flagging.flagged.remembered_since(state)
    other = replace(state, config={**state.config, "storage": "file"})
    with pytest.raises(ApiError, match="storage"):
        await flagging.flagged.adopt(other, {"allow_msg_schedules": True})
    assert await flagging.flagged.remembered_since(state) == since


async def test_a_stream_made_anew_at_that_moment_is_neither_marked_nor_known(flagging: Flagging) -> None:
    await flagging.registry.open()
    read = await flagging.state()
    await flagging.account.api.call(f"STREAM.DELETE.{flagging.name}")
    await flagging.account.create(flagging.name, allow_msg_schedules=False)
    with pytest.raises(JetStreamError, match="made again"):
        await flagging.flagged.adopt(read, {"allow_msg_schedules": True})
    assert not (await flagging.state()).is_marked
    assert await flagging.known() is None
