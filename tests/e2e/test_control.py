"""Schedules are changed beside sidecars and native schedulers: nothing is lost, doubled or reported as a fault."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from nats_scheduler.control.changes import Author, Kind
from nats_scheduler.control.edits import add, edit, pause, remove, resume
from nats_scheduler.control.errors import ConflictError
from nats_scheduler.control.fires import backfill, fire
from nats_scheduler.control.store import ScheduleStore, current
from nats_scheduler.control.words import Edit
from nats_scheduler.engine.events import FireForged, FireReadBack, ScheduleRejected
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.identity import parse_beside, parse_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND, round_to_second
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import SharedServer, StartServer
from tests.control.test_connection_store import store_of
from tests.harness.account import WAIT_SECONDS, Account, Running, account_on, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.blocks import block_to_send
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11, V2_14, V2_15
from tests.harness.waiting import eventually

NEVER = "@at 2200-01-01T00:00:00Z"


class Changed:
    """A stream that a sidecar or the server fires, and its store."""

    def __init__(self, account: Account, store: ScheduleStore, name: str, sidecar: Running) -> None:
        self.account, self.store, self.name, self.sidecar = account, store, name, sidecar
        self.subject, self.target = f"{name}.s", f"{name}.out"

    def block(self, pattern: str, prefix: str = "", **more: str) -> bytes:
        """Return the headers of a schedule."""
        headers = {f"{prefix}Nats-Schedule": pattern, f"{prefix}Nats-Schedule-Target": self.target}
        return block_to_send(headers | {name.replace("_", "-"): value for name, value in more.items()})

    async def fires(self) -> list[StoredMessage]:
        """Return what is stored on the target."""
        return await self.account.messages(self.name, self.target)

    async def fired(self, count: int, after: int = 0) -> list[StoredMessage]:
        """Wait for fires above a sequence that nobody requested."""

        async def enough() -> list[StoredMessage] | None:
            found = [one for one in await self.fires() if one.sequence > after and not is_requested(one)]
            return found if len(found) >= count else None

        return await eventually(enough, within_seconds=WAIT_SECONDS, describe=f"{count} fires of {self.subject}")

    async def is_read(self, sequence: int) -> None:
        """Wait until the sidecar has read a sequence."""
        await eventually(
            lambda: self.sidecar.sidecar.served[self.name].engine.last_read >= sequence,
            within_seconds=WAIT_SECONDS,
            describe=f"sequence {sequence} is read",
        )

    def faults(self) -> list[object]:
        """Return what the sidecar reported as wrong."""
        return [*self.sidecar.of(self.name, FireForged), *self.sidecar.of(self.name, ScheduleRejected)]


def is_requested(message: StoredMessage) -> bool:
    return header_value(message.block, b"X-Nats-Schedule-X-By") is not None


def identity_of(message: StoredMessage) -> str:
    return (header_value(message.block, b"Nats-Msg-Id") or b"").decode()


@asynccontextmanager
async def changed_on(server: EmbeddedServer, name: str, **config: object) -> AsyncIterator[Changed]:
    async with account_on(server.url) as account, sidecar_on(server.url) as sidecar:
        await account.create(name, **config)
        await sidecar.ready(name)
        yield Changed(account, await store_of(account), name, sidecar)


@pytest.fixture
async def emulated(emulated_server: EmbeddedServer, stream_name: str) -> AsyncIterator[Changed]:
    async with changed_on(emulated_server, stream_name) as changed:
        yield changed


@pytest.fixture(params=[V2_14, V2_15])
async def native(
    request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str
) -> AsyncIterator[Changed]:
    async with changed_on(await shared_server(request.param), stream_name) as changed:
        yield changed


async def test_a_paused_schedule_does_not_fire_and_a_resumed_one_does(emulated: Changed) -> None:
    store, name, subject = emulated.store, emulated.name, emulated.subject
    await add(store, name, subject, emulated.block("@every 1s"), b"body")
    await emulated.fired(1)
    paused = await pause(store, name, subject)
    assert paused.after is not None
    await emulated.is_read(paused.after)
    before = [one.sequence for one in await emulated.fires()]
    # Another schedule that is stored later fires meanwhile, and so shows that time has passed.
    await add(store, name, f"{subject}.other", emulated.block("@every 1s").replace(b".out", b".other"), b"")
    await emulated.account.wait_for(name, f"{name}.other", 3)
    late = [one for one in await emulated.fires() if one.sequence > paused.after]
    assert late == []
    assert before
    resumed = await resume(store, name, subject)
    assert resumed.after is not None
    fires = await emulated.fired(2, after=resumed.after)
    times = [(parse_identity(identity_of(one)) or ("", 0, 0))[2] for one in fires]
    anchor = header_value(
        (await current(store, await store.served(name), subject)).message.block, b"Nats-Schedule-X-Anchor"
    )
    assert anchor is not None
    assert all(time % SECOND == 0 for time in times), "the grid is on whole seconds, as before"
    assert emulated.faults() == []


async def test_a_fire_on_request_disturbs_no_running_sidecar(emulated: Changed) -> None:
    store, name, subject = emulated.store, emulated.name, emulated.subject
    await add(store, name, subject, emulated.block("@every 1s"), b"body")
    await emulated.fired(1)
    change = await fire(store, name, subject, author=Author("jane", "now"))
    assert change.kind is Kind.FIRED
    requested = [one for one in await emulated.fires() if is_requested(one)]
    assert [parse_beside(identity_of(one)) for one in requested] == [(subject, change.after, change.fires[0])]
    fires = await emulated.fired(3, after=requested[0].sequence)
    await emulated.is_read(fires[-1].sequence)
    times = [(parse_identity(identity_of(one)) or ("", 0, 0))[2] for one in await emulated.fired(1)]
    assert len(times) == len(set(times))
    assert emulated.faults() == []
    reported = [one.fire_time for one in emulated.sidecar.of(name, FireReadBack)]
    assert change.fires[0] not in reported


async def test_a_delayed_message_fires_at_its_time_although_it_was_fired_before(emulated: Changed) -> None:
    store, name, subject = emulated.store, emulated.name, emulated.subject
    soon = store.now() + 2 * SECOND
    await add(store, name, subject, emulated.block(f"@at {format_rfc3339(soon)}"), b"body")
    await fire(store, name, subject)
    (own,) = await emulated.fired(1)
    assert (parse_identity(identity_of(own)) or ("", 0, 0))[2] == soon
    assert len(await emulated.fires()) == 2
    assert emulated.faults() == []


async def test_missing_fires_are_filled_in_beside_a_running_sidecar(emulated: Changed) -> None:
    store, name, subject = emulated.store, emulated.name, emulated.subject
    await add(store, name, subject, emulated.block("@every 1s"), b"body")
    fires = await emulated.fired(4)
    gone = fires[1]
    await emulated.account.api.delete_message(name, gone.sequence)
    known = await emulated.fired(2, after=fires[-1].sequence)
    since = (await current(store, await store.served(name), subject)).message.stored_at
    change = await backfill(store, name, subject, since, store.now())
    lost = parse_identity(identity_of(gone))
    assert lost is not None
    # The stream still knows the identity of what was deleted, so the server stores nothing: it was stored once.
    assert change.kind is Kind.UNCHANGED
    assert any("stored meanwhile" in note for note in change.notes)
    after = await emulated.fired(2, after=known[-1].sequence)
    identities = [identity_of(one) for one in [*fires, *known, *after]]
    assert len(set(identities)) == len({one.sequence for one in [*fires, *known, *after]})
    assert emulated.faults() == []


async def test_what_a_sidecar_skipped_is_filled_in_once(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        store = await store_of(account)
        async with sidecar_on(server.url) as sidecar:
            await account.create("S")
            await sidecar.ready("S")
            changed = Changed(account, store, "S", sidecar)
            await add(store, "S", "S.s", changed.block("@every 1s"), b"body")
            first = await changed.fired(1)
        # No sidecar runs: what comes due is collapsed into one make-up fire.
        missed_until = round_to_second(store.now()) + 4 * SECOND
        await eventually(
            lambda: store.now() > missed_until, within_seconds=WAIT_SECONDS, describe="some fires come due"
        )
        async with sidecar_on(server.url) as sidecar:
            await sidecar.ready("S")
            changed = Changed(account, store, "S", sidecar)
            await changed.fired(2, after=first[-1].sequence)
            since = (await current(store, await store.served("S"), "S.s")).message.stored_at
            both = await asyncio.gather(
                backfill(store, "S", "S.s", since, missed_until), backfill(store, "S", "S.s", since, missed_until)
            )
            filled = [time for change in both for time in change.fires]
            assert len(filled) >= 3
            await changed.is_read((await changed.fires())[-1].sequence)
            times = [parsed[2] for one in await changed.fires() if (parsed := parse_identity(identity_of(one)))]
            assert len(times) == len(set(times)), "no fire is stored twice"
            covered = [time for time in times if time <= missed_until]
            assert sorted(covered) == list(range(min(times), missed_until + 1, SECOND))
            assert changed.faults() == []
            late = [one for one in sidecar.of("S", FireReadBack) if one.fire_time in filled]
            assert all(one.overdue for one in late)


async def test_schedules_that_the_server_fires_are_changed_too(native: Changed) -> None:
    store, name, subject = native.store, native.name, native.subject
    await add(store, name, subject, native.block("@every 1s"), b"body")
    await add(store, name, subject, native.block("@every 1s"), b"body")
    await native.fired(1)
    paused = await pause(store, name, subject)
    assert paused.after is not None
    requested = await fire(store, name, subject)
    assert requested.kind is Kind.FIRED
    await add(store, name, f"{subject}.other", native.block("@every 1s").replace(b".out", b".other"), b"")
    await native.account.wait_for(name, f"{name}.other", 3)
    late = [one for one in await native.fires() if one.sequence > paused.after and not is_requested(one)]
    assert len(late) <= 1, "a fire that the server had begun may follow"
    resumed = await resume(store, name, subject)
    assert resumed.after is not None
    assert any("begins anew" in note for note in resumed.notes)
    await edit(store, name, subject, Edit(body=b"new"))
    fires = await native.fired(2, after=resumed.after + 1)
    assert fires[-1].body == b"new"
    await fire(store, name, subject)
    await remove(store, name, subject)
    assert await native.account.messages(name, subject) == []
    assert native.faults() == []


async def test_each_change_is_published_and_kept(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as sidecar:
        heard = HeardAdvisories(account.connection)
        await account.create("S")
        await sidecar.ready("S")
        changed = Changed(account, await store_of(account), "S", sidecar)
        author = Author("jane\x1b[2J", "why \udcff" + "x" * 1_000)
        await add(changed.store, "S", "S.s", changed.block(NEVER), b"body", author=author)
        advisory = await heard.first("schedule_changed")
        assert advisory["author"].startswith("jane")
        assert advisory["author"].isprintable()
        assert (advisory["change"], advisory["schedule"], advisory["sequence_before"]) == ("added", "S.s", 0)
        kept = await account.wait_for("nats_scheduler_failures", "nats_scheduler.advisory.schedule_changed.S.S.s")
        assert len(kept) == 1


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_no_edit_is_lost_beside_whatever_fires(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    async with changed_on(await shared_server(version), stream_name) as changed:
        store, name, subject = changed.store, changed.name, changed.subject
        await add(store, name, subject, changed.block("@every 1s", Count="0"), b"")

        async def count(seed: int) -> None:
            random, done = Random(seed), 0
            while done < 6:
                served = await store.served(name)
                found = await current(store, served, subject)
                number = int(header_value(found.message.block, b"Count") or b"")
                wanted = Edit(set=[(b"Count", b"%d" % (number + 1))])
                try:
                    if random.random() < 0.2:
                        await (resume if found.is_paused else pause)(store, name, subject, expected=found.sequence)
                    else:
                        await edit(store, name, subject, wanted, expected=found.sequence)
                        done += 1
                except ConflictError:
                    continue

        await asyncio.gather(*(count(seed) for seed in range(8)))
        found = await current(store, await store.served(name), subject)
        assert header_value(found.message.block, b"Count") == b"48"
        assert found.rejection is None
        assert changed.faults() == []


KILLED = """
import asyncio, sys
from nats_scheduler.control.edits import pause, resume
from nats_scheduler.control.edits import edit
from nats_scheduler.control.words import Edit
from tests.control.test_connection_store import store_of
from tests.harness.account import account_on

async def main(url, stream):
    async with account_on(url) as account:
        store = await store_of(account)
        number = 0
        while True:
            number += 1
            await edit(store, stream, f"{stream}.s", Edit(set=[(b"Count", b"%d" % number)], body=b"%d" % number))
            await pause(store, stream, f"{stream}.s")
            print(number, flush=True)
            await resume(store, stream, f"{stream}.s")

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_program_that_is_killed_leaves_a_valid_schedule(emulated: Changed, tmp_path: Path) -> None:
    store, name, subject = emulated.store, emulated.name, emulated.subject
    await add(store, name, subject, emulated.block("@every 1h", Count="0"), b"0")
    for attempt in range(3):
        command = [sys.executable, "-c", KILLED, emulated.account.connection.url, name]
        with ChildProcess(command, tmp_path / str(attempt)) as child:
            await eventually(child.out.read_text, within_seconds=WAIT_SECONDS, describe="it edits")
            child.kill()
        found = await current(store, await store.served(name), subject)
        assert found.rejection is None
        assert found.message.body == header_value(found.message.block, b"Count"), "an edit is whole or not there"
        if found.is_paused:
            await resume(store, name, subject)
    assert emulated.faults() == []
