"""Schedules are changed beside sidecars and native schedulers: nothing is lost, doubled or reported as a fault."""

import asyncio

import pytest

from nats_scheduler.control.changes import Author, Kind
from nats_scheduler.control.edits import add, edit
from nats_scheduler.control.errors import ConflictError
from nats_scheduler.control.fire_requests import backfill, fire
from nats_scheduler.control.pausing import pause, resume
from nats_scheduler.control.standing import current
from nats_scheduler.engine.events import FireConfirmed, FireForged, ScheduleRejected
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.identity import parse_beside
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND, round_to_second
from tests.conftest import SharedServer, StartServer
from tests.control.test_connection_store import store_of
from tests.harness.blocks import block_to_send
from tests.harness.flagged import FlaggedStream, Served, at, fire_time_of, served_on
from tests.harness.seeds import generator
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually


def block(stream: FlaggedStream, pattern: str, target: str = "out", **more: str) -> bytes:
    """Return the headers of a schedule."""
    return block_to_send(stream.headers(pattern, target) | more)


def is_requested(message: StoredMessage) -> bool:
    return header_value(message.block, b"X-Nats-Schedule-X-By") is not None


async def own_fires(stream: FlaggedStream, count: int, after: int = 0, target: str = "out") -> list[StoredMessage]:
    """Wait for fires above a sequence that nobody requested."""

    async def enough() -> list[StoredMessage] | None:
        found = [one for one in await stream.messages(target) if one.sequence > after and not is_requested(one)]
        return found if len(found) >= count else None

    return await eventually(enough, describe=f"{count} fires on {target}")


def faults(served: Served) -> list[object]:
    """Return what the sidecar reported as wrong."""
    return [*served.of(FireForged), *served.of(ScheduleRejected)]


async def is_read(served: Served, sequence: int) -> None:
    """Wait until the sidecar has read a sequence."""
    engine = served.sidecar.sidecar.served[served.name].engine
    await eventually(lambda: engine.last_read >= sequence, describe="it is read")


async def test_fires_on_request_disturb_no_running_sidecar(served: Served) -> None:
    """A delayed message fires at its time although it was fired before."""
    store, name, subject = await store_of(served.account), served.name, served.subject("s")
    await add(store, name, subject, block(served, "@every 1s"), b"body")
    due = store.now() + 3 * SECOND
    await add(store, name, served.subject("once"), block(served, at(due), "once.out"), b"body")
    await fire(store, name, served.subject("once"))
    await own_fires(served, 1)
    change = await fire(store, name, subject, author=Author("jane", "now"))
    assert change.kind is Kind.FIRED
    requested = [one for one in await served.messages("out") if is_requested(one)]
    identities = [parse_beside((header_value(one.block, MSG_ID) or b"").decode()) for one in requested]
    assert identities == [(subject, change.after, change.fires[0])]
    times = [fire_time_of(one) for one in await own_fires(served, 3)]
    assert len(times) == len(set(times))
    assert [fire_time_of(one) for one in await own_fires(served, 1, target="once.out")] == [due]
    assert len(await served.messages("once.out")) == 2
    assert faults(served) == []


async def test_what_a_sidecar_skipped_is_filled_in_once(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url) as served:
        store = await store_of(served.account)
        await add(store, "S", "S.s", block(served, "@every 1s"), b"body")
        first = await own_fires(served, 1)
    # No sidecar runs: what comes due is collapsed into one make-up fire.
    missed_until = round_to_second(store.now()) + 4 * SECOND
    await eventually(lambda: store.now() > missed_until, describe="some fires come due")
    async with served_on(server.url) as served:
        store = await store_of(served.account)
        await own_fires(served, 2, after=first[-1].sequence)
        since = (await current(store, await store.served("S"), "S.s")).message.stored_at
        both = await asyncio.gather(*(backfill(store, "S", "S.s", since, missed_until) for _ in range(2)))
        filled = [time for change in both for time in change.fires]
        assert len(filled) >= 3
        fires = await served.messages("out")
        await is_read(served, fires[-1].sequence)
        times = [fire_time_of(one) for one in fires]
        assert len(times) == len(set(times)), "no fire is stored twice"
        covered = [time for time in times if time <= missed_until]
        assert sorted(covered) == list(range(min(times), missed_until + 1, SECOND))
        assert faults(served) == []
        assert all(one.overdue for one in served.of(FireConfirmed) if one.fire_time in filled)


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_no_edit_is_lost_beside_whatever_fires(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    async with served_on((await shared_server(version)).url, stream_name, config={}) as served:
        store, name, subject = await store_of(served.account), stream_name, served.subject("s")
        await add(store, name, subject, block(served, "@every 1s", Count="0"), b"")

        async def count(number: int) -> None:
            random, done = generator(f"{__name__} {number}"), 0
            while done < 4:
                found = await current(store, await store.served(name), subject)
                wanted = int(header_value(found.message.block, b"Count") or b"") + 1
                try:
                    if random.random() < 0.2:
                        await (resume if found.is_paused else pause)(store, name, subject, expected=found.sequence)
                    else:
                        change = Edit(set=[(b"Count", b"%d" % wanted)])
                        await edit(store, name, subject, change, expected=found.sequence)
                        done += 1
                except ConflictError:
                    continue

        await asyncio.gather(*(count(number) for number in range(6)))
        found = await current(store, await store.served(name), subject)
        assert header_value(found.message.block, b"Count") == b"24"
        assert found.rejection is None
        assert faults(served) == []
        await served.call("STREAM.DELETE")
