"""Values of the registry: the number of their format, one of a newer version, and two that write at once."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from functools import partial

import pytest

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.registry import Delivered, Registry
from nats_scheduler.jetstream.value_formats import (
    ENTRY_FORMATS,
    FORMAT,
    FORMATS,
    UnknownFormatError,
    known_entries,
)
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.shared import write_entry
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import PATIENCE_SECONDS, eventually

KEYS = [f"{kind}.S" for kind in FORMATS]


@pytest.fixture
async def account(shared_server: SharedServer) -> AsyncIterator[Account]:
    """Connect to a server."""
    async with account_on((await shared_server(V2_11)).url) as connected:
        yield connected


@pytest.fixture
async def registry(account: Account, stream_name: str) -> Registry:
    """Open a bucket of its own."""
    bucket = Registry(account.connection, account.api, stream_name)
    assert await bucket.open()
    return bucket


async def stored(account: Account, registry: Registry, key: str) -> bytes | None:
    """Return what is stored under a key, byte for byte."""
    message = await account.api.message(registry.stream, last_by_subj=f"{registry.written_to}.{key}")
    return None if message is None else message.body


async def test_a_value_of_a_newer_version_is_neither_read_nor_replaced(account: Account, registry: Registry) -> None:
    newer = json.dumps({FORMAT: 2, "new": [1]}).encode()
    for key in KEYS:
        await account.publish(f"{registry.written_to}.{key}", body=newer)
        for attempt in (registry.get(key), registry.revised(key), registry.dated(key), registry.put(key, {"a": 1})):
            with pytest.raises(UnknownFormatError, match=re.escape(key)):
                await attempt
        assert await registry.swap(key, {"a": 1}, 0) is None, "its revision is never known"
        assert await stored(account, registry, key) == newer


async def received(registry: Registry, keys: str) -> dict[str, Delivered]:
    """Return what a follower receives of the keys that match."""
    found: dict[str, Delivered] = {}

    def receive(key: str, value: Delivered, _message: StoredMessage) -> None:
        found[key] = value

    is_read = asyncio.Event()
    following = asyncio.create_task(registry.follow((keys,), receive, is_read.set))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await is_read.wait()
    following.cancel()
    await asyncio.wait((following,))
    return found


async def test_followers_receive_why_a_value_cannot_be_read(account: Account, registry: Registry) -> None:
    await registry.put("owner.emulated.A", {"owner": ""})
    await account.publish(f"{registry.written_to}.owner.emulated.B", body=b'{"format": 7}')
    await account.publish(f"{registry.written_to}.owner.emulated.C", body=b"no JSON")
    found = await received(registry, "owner.>")
    assert found.pop("owner.emulated.A") == {"owner": ""}
    assert found.pop("owner.emulated.C") is None
    (unreadable,) = found.values()
    assert isinstance(unreadable, UnknownFormatError)


async def test_what_a_client_has_sent_into_the_bucket_is_no_value(account: Account, registry: Registry) -> None:
    """The server does not check where its answers go, so a permission for the bucket does not keep them out."""
    broken: list[str] = []
    registry.broken = lambda key, _reason: broken.append(key)
    await registry.put("owner.emulated.A", {"owner": ""})
    for key in ("stream.S", "owner.emulated.B"):
        asked = json.dumps({"last_by_subj": f"{registry.written_to}.owner.emulated.A"}).encode()
        account.connection.write(
            frame(f"$JS.API.DIRECT.GET.{registry.stream}", f"{registry.written_to}.{key}", b"", asked)
        )
        await eventually(partial(stored, account, registry, key), describe=f"{key} is written")
        assert (await registry.get(key), (await registry.revised(key))[0]) == (None, None)
        assert broken.pop() == key
        assert (await received(registry, key))[key] is None
        await registry.put(key, {"a": 1})
        assert await registry.get(key) == {"a": 1}, "it is replaced"


@pytest.mark.parametrize("key", ENTRY_FORMATS)
async def test_entries_of_newer_instances_stay_in_a_shared_value(
    account: Account, registry: Registry, key: str
) -> None:
    newer = {FORMAT: 2, "streams": ["another form"]}
    for name in ("newer", "ours"):
        await registry.put(f"instance.{name}", {})
    await account.publish(f"{registry.written_to}.{key}", body=json.dumps({"newer": newer}).encode())
    assert await write_entry(registry, key, "ours", lambda _room: {"more": 1})
    value = json.loads(await stored(account, registry, key) or b"")
    assert value == {"newer": newer, "ours": {FORMAT: 1, "more": 1}}
    known, unknown = known_entries(key, value)
    assert known == {"ours": {"more": 1}}
    assert [type(one) for one in unknown] == [UnknownFormatError]


async def test_of_two_writes_in_place_of_one_revision_one_is_stored(registry: Registry) -> None:
    first = await registry.swap("owner", {"by": "a"}, 0)
    assert first is not None
    assert await registry.swap("owner", {"by": "b"}, 0) is None
    assert await registry.revised("owner") == ({"by": "a"}, first)


async def test_a_write_that_came_second_is_no_error(account: Account, stream_name: str) -> None:
    registry = Registry(account.connection, account.api, stream_name)

    def refuse(key: str, code: int) -> None:
        """Answer writes as the leader of a stream does that refuses them."""
        answer = b'{"error":{"code":400,"err_code":%d,"description":"refused"}}' % code

        def sink(_subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
            account.connection.publish(reply.decode(), answer)

        account.connection.subscribe(f"$KV.{stream_name}.{key}", sink)

    for key, code in (("a", 10071), ("b", 10164)):
        refuse(key, code)
        assert await registry.swap(key, {}, 7) is None
    refuse("c", 10077)
    with pytest.raises(RefusedError, match="10077"):
        await registry.swap("c", {}, 7)
