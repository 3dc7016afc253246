"""Values of the registry: the number of their format, one of a newer version, and two that write at once."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.engine.ownership.owners import OwnerChange, Owners, Reason, Record
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.registry import Delivered, Registry
from nats_scheduler.jetstream.value_formats import (
    ENTRY_FORMATS,
    FORMAT,
    FORMATS,
    UnknownFormatError,
    known_entries,
    marked,
    read_as_known,
)
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.shared import FAILING, Failures, read_failures, write_entry
from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.version import VERSION
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import PATIENCE_SECONDS, eventually

KEYS = [f"{kind}.S" for kind in FORMATS]
NEWER: list[Any] = [2, 0, -1, 10**30, True, 1.0, "1", None, [1], {}]


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


def test_a_marked_value_and_an_older_one_are_read() -> None:
    value = {"created": "then", "owner": ""}
    for key in KEYS:
        assert marked(key, value) == {FORMAT: FORMATS[key.partition(".")[0]], **value}
        assert read_as_known(key, marked(key, value)) == read_as_known(key, value) == value


def test_a_value_of_an_unknown_format_is_refused_with_a_sentence() -> None:
    for number in NEWER:
        with pytest.raises(UnknownFormatError) as refused:
            read_as_known("owner.emulated.S", {FORMAT: number, "owner": ""})
        said = str(refused.value)
        for part in ("owner.emulated.S", f"nats-scheduler {VERSION} reads format 1", "newer version"):
            assert part in said
        assert len(said) < 400
        if type(number) is int:
            assert str(number)[:80] in said


async def test_writing_adds_the_number_and_reading_removes_it(account: Account, registry: Registry) -> None:
    async def is_stored(key: str) -> None:
        assert json.loads(await stored(account, registry, key) or b"") == {FORMAT: 1, "a": 1}
        assert await registry.get(key) == {"a": 1}
        assert (await registry.revised(key))[0] == {"a": 1}

    for key in KEYS:
        await registry.put(key, {"a": 1})
        await is_stored(key)
        assert await registry.swap(key, {"a": 1}, (await registry.revised(key))[1])
        await is_stored(key)
        assert registry.send(key, {"a": 1})
        await account.connection.request("$JS.API.INFO", b"")
        await is_stored(key)


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


def test_failures_of_a_newer_instance_are_not_read_as_something_else() -> None:
    entry = {"more": 3, "streams": {}}
    assert read_failures({"a": {FORMAT: 2, **entry}}, {"a"}) == Failures()
    assert read_failures({"a": {FORMAT: 1, **entry}}, {"a"}).elsewhere == 3
    assert read_failures({"a": entry}, {"a"}).elsewhere == 3, "as 0.1.0 wrote it"
    assert FAILING in ENTRY_FORMATS


KEY = "emulated.S"


def test_a_record_that_cannot_be_read_ends_ownership() -> None:
    owners = Owners("me", frozenset({KEY}))
    owners.received("me", [KEY], 0, 0)
    owners.recorded(KEY, Record("me", revision=1))
    assert owners.is_owner(KEY)
    owners.recorded(KEY, Record(revision=2, is_foreign=True))
    now = 100 * MILLISECOND
    assert (owners.is_owner(KEY), owners.fires(KEY, now)) == (False, False)
    assert owners.change(KEY, now) is None
    assert owners.able([KEY], now) == frozenset(), "heartbeats do not name it as served, so others claim it"
    assert owners.on_record() == [], "and it is not removed as a leftover"
    owners.is_leaving = True
    assert owners.change(KEY, now) is None
    owners.is_leaving = False
    owners.recorded(KEY, Record(revision=3))
    owners.serves = owners.able([KEY], now)
    assert owners.change(KEY, now) == OwnerChange("me", Reason.FIRST)
