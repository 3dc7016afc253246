"""Schedules that the server itself fires are read for a request, as `ls` reads them: exactly those stored then.

It tests `service/watched_stream.py` too.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.holding.table import Table
from nats_scheduler.engine.inputs import NOTHING_SETTLED
from nats_scheduler.engine.views.view import FiredBy, ListedSchedule
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stored_listing import read_schedules
from nats_scheduler.service import watched_stream, watched_streams
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.turns import Turns
from nats_scheduler.service.watched_streams import WatchedStreams
from tests.conftest import SharedServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds
from tests.harness.cluster import running_cluster
from tests.harness.servers import V2_15
from tests.harness.spare_time import Fires
from tests.harness.waiting import PATIENCE_SECONDS


def schedules_of(account: Account) -> WatchedStreams:
    return WatchedStreams(account.connection, account.api, CLOCK.now, Turns(Fires()))


@dataclass
class Asking:
    """A stream that the server schedules on, and who asks about it."""

    account: Account
    name: str
    schedules: WatchedStreams
    requests: list[str] = field(default_factory=list)
    """The consumers that were created on the stream."""

    def subject(self, rest: str) -> str:
        return f"{self.name}.{rest}"

    async def subjects(self) -> set[str]:
        return {one.subject.removeprefix(f"{self.name}.") for one in await self.asked()}

    async def agrees(self) -> set[str]:
        """Ask, and compare with what reading the stream gives; return the subjects."""
        assert await self.asked() == await self.read()
        return await self.subjects()

    async def delete(self, sequence: int) -> None:
        assert await self.account.api.delete_message(self.name, sequence)

    async def purge(self, **which: Any) -> None:
        await self.account.api.call(f"STREAM.PURGE.{self.name}", which)

    async def schedule(self, rest: str, pattern: str = "", target: str = "out") -> int:
        headers = {"Nats-Schedule": pattern or f"@at {in_seconds(3600)}", "Nats-Schedule-Target": self.subject(target)}
        return await self.account.publish(self.subject(rest), headers)

    async def schedules_are_stored(self, count: int, name: str = "s") -> list[int]:
        """Store schedules `<name>.<number>`, and return their sequences."""
        return [await self.schedule(f"{name}.{number}") for number in range(count)]

    async def asked(self) -> list[ListedSchedule]:
        """Ask once; the answer has to be complete."""
        view, through = await self.schedules.read(self.name, FiredBy.SERVER, PATIENCE_SECONDS)
        info = await self.account.api.stream(self.name)
        assert through <= info["state"]["last_seq"]
        return view.page(CLOCK.now()).answer().schedules

    async def read(self) -> list[ListedSchedule]:
        """Read the stream as `ls` does."""
        state = StreamState.from_info(await self.account.api.stream(self.name))
        api, connection = self.account.api, self.account.connection
        return list((await read_schedules(connection, api, state, Mode.NATIVE, NOTHING_SETTLED, CLOCK.now)).schedules)

    async def refused(self) -> str:
        with pytest.raises(ServiceError) as refused:
            await self.schedules.read(self.name, FiredBy.SERVER, PATIENCE_SECONDS)
        assert refused.value.code == 503
        return refused.value.sentence


Begin = Callable[..., Awaitable[Asking]]


@pytest.fixture
async def ask_on(shared_server: SharedServer, stream_name: str) -> AsyncIterator[Begin]:
    """Make a stream on a server that schedules, and ask about it."""
    stack = AsyncExitStack()

    async def begin(**config: Any) -> Asking:
        account = await stack.enter_async_context(account_on((await shared_server(V2_15)).url))
        await account.create(stream_name, **config)
        schedules = schedules_of(account)
        await stack.enter_async_context(schedules.opened())
        asking = Asking(account, stream_name, schedules)
        account.connection.subscribe(
            f"$JS.API.CONSUMER.CREATE.{stream_name}.*", lambda subject, *_: asking.requests.append(subject.decode())
        )
        return asking

    async with stack:
        yield begin


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_the_answer_is_what_is_stored_whatever_happened_before(ask_on: Begin, retention: str) -> None:
    asking = await ask_on(retention=retention, allow_msg_ttl=True)
    assert await asking.agrees() == set()
    first = {name: await asking.schedule(name) for name in ("at.1", "at.2", "at.3", "at.4", "at.5")}
    await asking.schedule("cron", "0 0 0 1 1 *")
    await asking.schedule("every", "@every 3h")
    expected = {*first, "cron", "every"}
    assert await asking.agrees() == expected
    newest = await asking.schedule("at.1", f"@at {in_seconds(7200)}")  # the server removes the version before
    await asking.delete(first["at.2"])
    assert await asking.agrees() == expected - {"at.2"}
    assert newest in {one.sequence for one in await asking.asked()}
    await asking.purge(filter=asking.subject("at.3"))
    await asking.account.publish(asking.subject("at.4"))  # an ordinary message is the last one there now
    cancel = {"Nats-Scheduler": asking.subject("at.5"), "Nats-Schedule-Next": "purge"}
    await asking.account.publish(asking.subject("stop"), cancel)
    await asking.schedule("more")
    assert await asking.agrees() == expected - {"at.2", "at.3", "at.4", "at.5"} | {"more"}
    await asking.schedule("soon", f"@at {in_seconds(0.3)}", "fired")
    await asking.account.wait_for(asking.name, asking.subject("fired"))
    assert await asking.agrees() == expected - {"at.2", "at.3", "at.4", "at.5"} | {"more"}
    await asking.purge()
    assert await asking.agrees() == set()


async def test_a_pull_that_ends_early_hides_nothing(ask_on: Begin) -> None:
    asking = await ask_on()
    connection = asking.account.connection
    await asking.schedules_are_stored(3)

    def end(_subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
        connection.unsubscribe(pulls)
        connection.write(frame(reply.decode(), "", b"NATS/1.0 404 No Messages\r\n\r\n", b""))

    pulls = connection.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{asking.name}.>", end)
    assert await asking.subjects() == {"s.0", "s.1", "s.2"}


async def test_no_consumer_is_created_where_it_would_do_harm(ask_on: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = await ask_on(retention="workqueue")
    await asking.schedules_are_stored(40)
    for number in range(40):
        await asking.account.publish(asking.subject(f"ordinary.{number % 3}"))
    assert len(await asking.agrees()) == 40
    await asking.schedule("new")
    assert len(await asking.agrees()) == 41
    assert asking.requests == []
    monkeypatch.setattr(watched_streams, "IDLE_LIMIT_SECONDS", -1.0)
    await asking.schedules.release_idle()
    monkeypatch.setattr(watched_stream, "MAX_LOOKED_UP", 5)
    assert "81 messages or subjects that can only be looked up" in await asking.refused()


async def test_the_schedules_of_a_stream_that_was_made_anew_are_read_anew(ask_on: Begin) -> None:
    asking = await ask_on()
    await asking.schedules_are_stored(3, "old")
    assert len(await asking.agrees()) == 3
    await asking.account.api.call(f"STREAM.DELETE.{asking.name}")
    with pytest.raises(ServiceError, match="does not exist"):
        await asking.asked()
    await asking.account.create(asking.name)
    await asking.schedules_are_stored(5, "new")
    assert await asking.agrees() == {f"new.{number}" for number in range(5)}
    await asking.account.api.call(f"STREAM.DELETE.{asking.name}")
    await asking.account.create(asking.name)  # and this time nobody asks in between
    await asking.schedules_are_stored(7, "newest")
    assert await asking.agrees() == {f"newest.{number}" for number in range(7)}


async def test_a_stream_with_too_many_schedules_is_refused(ask_on: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_streams, "MAX_BYTES", Table().bytes * 5 // 4)  # one small table, and not two
    asking = await ask_on()
    other = f"{asking.name}B"
    await asking.account.create(other)
    await asking.schedules_are_stored(12)
    for number in range(12):
        headers = {"Nats-Schedule": f"@at {in_seconds(3600)}", "Nats-Schedule-Target": f"{other}.out"}
        await asking.account.publish(f"{other}.s.{number}", headers)
    assert len(await asking.asked()) == 12
    view, _ = await asking.schedules.read(other, FiredBy.SERVER, PATIENCE_SECONDS)
    assert view.counts(CLOCK.now()).answer().total == 12
    assert "other requests are being answered" in await asking.refused(), "a request still has a view of the other one"
    del view
    assert len(await asking.asked()) == 12, "the other one was released, and this one is read again"
    assert len(asking.requests) == 3
    await asking.schedules_are_stored(108, "more")
    sentence = await asking.refused()
    found = re.search("too many schedules that the sidecar does not fire: ([0-9]+) of them take", sentence)
    assert found is not None
    assert 12 < int(found[1]) <= 120
    assert "nats-scheduler ls" in sentence
    reads = len(asking.requests)
    assert await asking.refused() == sentence
    assert len(asking.requests) == reads, "it is refused at once, and not read again for that"
    await asking.account.api.call(f"STREAM.DELETE.{other}")


@pytest.mark.server
async def test_in_a_cluster_an_answer_contains_what_was_acknowledged(tmp_path: Path) -> None:
    """The consumer may be on a node that has yet to apply what the leader has acknowledged."""
    async with running_cluster(V2_15, tmp_path) as cluster, AsyncExitStack() as stack:
        accounts_on = [await stack.enter_async_context(account_on(url)) for url in cluster.urls]
        await accounts_on[0].create("O", num_replicas=3, storage="file")
        asked = [schedules_of(account) for account in accounts_on]
        for schedules in asked:
            await stack.enter_async_context(schedules.opened())
        expected: set[str] = set()
        headers = {"Nats-Schedule": f"@at {in_seconds(3600)}", "Nats-Schedule-Target": "O.out"}
        for number in range(60):
            sequence = await accounts_on[number % 3].publish(f"O.s.{number}", headers)
            expected.add(f"O.s.{number}")
            if number % 10 == 5:
                assert await accounts_on[0].api.delete_message("O", sequence)
                expected.discard(f"O.s.{number}")
            view, _ = await asked[number % 2].read("O", FiredBy.SERVER, PATIENCE_SECONDS)
            assert {one.subject for one in view.page(CLOCK.now()).answer().schedules} == expected
