"""The listing of a stream: what the sidecar would hold, and a stream that is the same after the look."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.engine.inputs import NOTHING_SETTLED, Checkpoint
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.fires import following_fire
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stored_listing import read_schedules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.client import Listed
from tests.conftest import SharedServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds
from tests.harness.servers import V2_15
from tests.harness.waiting import PATIENCE_SECONDS, eventually

LONG_PAST = "@at 2020-01-01T00:00:00Z"


@dataclass
class Looked:
    """A stream that nobody serves, and a look at it."""

    account: Account
    name: str

    async def publish(self, rest: str, headers: dict[str, str] | None = None) -> int:
        """Store a message on a subject of the stream."""
        return await self.account.publish(f"{self.name}.{rest}", headers or "")

    async def schedule(self, rest: str, pattern: str) -> int:
        """Store a schedule."""
        return await self.publish(rest, {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"{self.name}.out"})

    async def state(self) -> StreamState:
        """Return the stream as the server describes it."""
        return StreamState.from_info(await self.account.api.stream(self.name))

    async def look(
        self,
        mode: Mode = Mode.EMULATED,
        checkpoint: Checkpoint = NOTHING_SETTLED,
        now: Callable[[], int] = CLOCK.now,
        *,
        removes_expired: bool = False,
    ) -> Listed:
        """Read a listing."""
        connection, api = self.account.connection, self.account.api
        reading = connection, api, await self.state(), mode, checkpoint, now
        return await read_schedules(*reading, expires=removes_expired)

    def brief(self, listing: Listed) -> list[tuple[str, State]]:
        """Return which schedules were listed, without the stream's name, and how they stand."""
        return [(one.subject.removeprefix(f"{self.name}."), one.state) for one in listing.schedules]


@pytest.fixture
async def account(emulated_server: EmbeddedServer) -> AsyncIterator[Account]:
    """Connect to a server of each version that we fire for."""
    async with account_on(emulated_server.url) as connected:
        yield connected


@pytest.fixture(params=["limits", "workqueue"])
async def looked(request: pytest.FixtureRequest, account: Account, stream_name: str) -> Looked:
    """Make a stream of each kind that is followed in its own way."""
    await account.create(stream_name, retention=request.param)
    return Looked(account, stream_name)


def pick(info: Any) -> Any:
    """Return what a look must not change."""
    return {key: info["state"].get(key) for key in ("messages", "first_seq", "last_seq", "consumer_count")}


async def test_a_look_lists_the_last_of_each_subject_and_changes_nothing(looked: Looked) -> None:
    """What has fired or is cancelled is listed until it is removed."""
    await looked.schedule("past", LONG_PAST)
    await looked.schedule("twice", "@every 1h")
    await looked.schedule("twice", f"@at {in_seconds(7200)}")
    await looked.schedule("ended", "@daily")
    await looked.publish("ended")
    await looked.schedule("mended", "@every nonsense")
    mended = await looked.schedule("mended", f"@at {in_seconds(3600)}")
    broken = [await looked.schedule("broken", pattern) for pattern in ("@daily", "@weekly", "@every 1ms")][-1]
    fired = await looked.schedule("fired", LONG_PAST)
    await looked.schedule("cancelled", "@daily")
    subject = f"{looked.name}.fired"
    identity = fire_identity(subject, fired, 1_577_836_800 * SECOND)
    fire = {"Nats-Scheduler": subject, "Nats-Schedule-Next": "purge", "Nats-Msg-Id": identity}
    await looked.publish("out", fire)
    await looked.publish("stop", {"Nats-Scheduler": f"{looked.name}.cancelled", "Nats-Schedule-Next": "purge"})
    before = await looked.account.api.stream(looked.name)
    listing = await looked.look()
    assert looked.brief(listing)[:3] == [
        ("past", State.OVERDUE),
        ("mended", State.WAITING),
        ("twice", State.WAITING),
    ], "the soonest fire comes first"
    assert listing.schedules[1].sequence == mended
    done = [one for one in listing.schedules if one.next_fire is None]
    assert sorted(looked.brief(listing)[3:]) == [("cancelled", State.CANCELLED), ("fired", State.FIRED)]
    assert len(done) == 2
    (rejected,) = listing.rejected
    assert (rejected.subject, rejected.sequence, rejected.pattern, rejected.target, rejected.rejection.code) == (
        f"{looked.name}.broken",
        broken,
        "@every 1ms",
        f"{looked.name}.out",
        10189,
    )

    async def is_as_before() -> bool:
        return bool(pick(await looked.account.api.stream(looked.name)) == pick(before))

    await eventually(is_as_before, describe="the consumer that read is deleted, which nobody waits for")


async def test_a_checkpoint_counts_as_it_does_for_the_sidecar(looked: Looked) -> None:
    settled = await looked.schedule("settled", LONG_PAST)
    await looked.schedule("open", LONG_PAST)
    listing = await looked.look(checkpoint=Checkpoint(through=CLOCK.now(), sequence=settled))
    assert looked.brief(listing) == [("open", State.OVERDUE), ("settled", State.FIRED)]


async def test_the_end_is_found_if_the_last_message_is_removed_meanwhile(account: Account, stream_name: str) -> None:
    """A consumer with one pending message that it never gets has read everything all the same."""
    await account.create(stream_name)
    looked = Looked(account, stream_name)
    sequence = await looked.publish("only")
    delete = json.dumps({"seq": sequence}).encode()

    def remove_it(*_message: bytes) -> None:
        account.connection.write(frame(f"$JS.API.STREAM.MSG.DELETE.{stream_name}", "", b"", delete))

    account.connection.subscribe(f"$JS.API.CONSUMER.CREATE.{stream_name}.*", remove_it)
    read: list[StoredMessage] = []

    def take(messages: Sequence[StoredMessage]) -> None:
        read.extend(messages)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await StretchReader(account.connection, account.api, (await looked.state()).config).read_all(take)
    assert len(read) <= 1


@pytest.fixture
async def native(shared_server: SharedServer, stream_name: str) -> AsyncIterator[Looked]:
    """Make a stream that the server itself schedules on."""
    async with account_on((await shared_server(V2_15)).url) as account:
        await account.create(stream_name)
        yield Looked(account, stream_name)


async def test_in_both_spellings_it_is_two_schedules_on_a_native_stream(native: Looked) -> None:
    both = {"Nats-Schedule": f"@at {in_seconds(3600)}", "X-Nats-Schedule": f"@at {in_seconds(7200)}"}
    await native.publish("both", both | {f"{name}-Target": f"{native.name}.out" for name in both})
    found = {mode: (await native.look(mode)).schedules for mode in (Mode.NATIVE, Mode.DORMANT, Mode.EMULATED)}
    assert {mode: [(one.terms.dialect.name, one.fired_by) for one in found[mode]] for mode in found} == {
        Mode.NATIVE: [("adr51", FiredBy.SERVER), ("portable", FiredBy.SIDECAR)],
        Mode.DORMANT: [("adr51", FiredBy.NONE), ("portable", FiredBy.SIDECAR)],
        Mode.EMULATED: [("adr51", FiredBy.SIDECAR)],
    }


async def test_the_next_fire_is_the_one_that_the_server_will_store(
    native: Looked,
) -> None:
    """The server rounds 1.4 s to one second after the first fire, so only its own fires show when it fires next."""
    account, target = native.account, f"{native.name}.out"
    await native.schedule("every", "@every 1.4s")
    await account.wait_for(native.name, target, 2)
    listing = await native.look(Mode.NATIVE)
    (one,) = listing.schedules
    assert (one.subject, one.fired_by, listing.rejected) == (f"{native.name}.every", FiredBy.SERVER, [])
    assert one.next_fire is not None

    async def announced() -> list[int | None]:
        """Return the fire times that the fires so far have announced, once the one that was listed is stored."""
        fires = await account.messages(native.name, target)
        is_stored = fires[-1].stored_at >= (one.next_fire or 0)
        return [following_fire(fire.block, ADR51) for fire in fires] if is_stored else []

    found = await eventually(announced, describe="it fires again")
    assert one.next_fire in found
