"""All answers of a server describe a stream alike, so that a round over all streams finds those that changed."""

from typing import Any

import pytest

from nats_scheduler.jetstream.streams import StreamState, as_kept
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import account_on


async def described(server: EmbeddedServer, name: str, **config: Any) -> tuple[StreamState, StreamState, StreamState]:
    """Create a stream and return it as its creation, its information and the list of streams describe it."""
    async with account_on(server.url) as account:
        created = await account.api.create_stream({"name": name, "subjects": [f"{name}.>"], **config})
        alone, found = await account.api.stream(name), await account.api.listed_streams()
        listed = next(one for one in found[0] if one["config"]["name"] == name)
        await account.api.call(f"STREAM.DELETE.{name}")
    return StreamState.from_info(created), StreamState.from_info(alone), StreamState.from_info(listed)


@pytest.mark.parametrize("config", [{}, {"metadata": {"team": "shop"}}, {"max_age": 10**12, "allow_direct": True}])
async def test_an_emulated_stream_is_described_alike(
    emulated_server: EmbeddedServer, stream_name: str, config: dict[str, Any]
) -> None:
    created, alone, listed = await described(emulated_server, stream_name, **config)
    assert created == alone == listed


async def test_a_native_stream_is_described_alike(native_server: EmbeddedServer, stream_name: str) -> None:
    created, alone, listed = await described(native_server, stream_name, metadata={"team": "shop"})
    assert created == alone == listed


def test_only_what_the_server_adds_to_an_answer_is_left_out() -> None:
    kept = {"_nats.req.level": "0", "team": "shop"}
    added = {"_nats.ver": "2.11.11", "_nats.level": "1"}
    assert as_kept({"name": "A", "metadata": kept | added}) == {"name": "A", "metadata": kept}
    assert as_kept({"name": "A", "metadata": added}) == {"name": "A"}
    assert as_kept({"name": "A", "metadata": {}}) == {"name": "A", "metadata": {}}
    assert as_kept({"name": "A"}) == {"name": "A"}
