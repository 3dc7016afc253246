"""The fires of sidecars or servers for a schedule are read from its stream, newest first, whatever lies between."""

from typing import Any

import pytest

from nats_scheduler.control import past
from nats_scheduler.control.past import FirePast, FireQuery, FoundFires
from nats_scheduler.control.port import Served
from nats_scheduler.jetstream import stretches
from nats_scheduler.jetstream.schedule_wire import ScheduleWire
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.fires import PastFire
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.schedule.instants import SECOND, round_to_second
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, sidecar_on
from tests.harness.servers import ALL_VERSIONS, EMULATED_VERSIONS, V2_10, V2_11, V2_14, V2_15

RETENTIONS: list[dict[str, Any]] = [{}, {"retention": "workqueue"}, {"max_consumers": 1}]


async def found_in(account: Account, stream: str, schedule: str, **wanted: Any) -> FoundFires:
    """Look for the fires of a schedule."""
    state = StreamState.from_info(await account.api.stream(stream))
    served = Served(state.rules, tuple(DIALECTS), state.is_native)
    query = FireQuery(**{"schedule": schedule, "limit": 20, **wanted})
    return await FirePast(ScheduleWire(account.connection, account.api), served).find(query)


async def fill(account: Account, fires: int, others: int, *, schedule: str = "S.s") -> list[int]:
    """Store a portable schedule and fires of it with other messages between them; return the sequences of the fires."""
    headers = {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-Target": "S.out"}
    stored = await account.publish(schedule, headers)
    message = await account.api.message("S", seq=stored)
    assert message is not None
    first = message.stored_at // SECOND * SECOND - fires * SECOND
    sequences = []
    for number in range(fires):
        for _ in range(others):
            await account.publish("S.other")
        due = first + number * SECOND
        # Of an earlier version of the schedule: they came due before this one was stored.
        stamps = {"X-Nats-Scheduler": schedule, "X-Nats-Schedule-Next": format_rfc3339(due + SECOND)}
        sequences.append(
            await account.publish("S.out", {**stamps, "Nats-Msg-Id": fire_identity(schedule, stored - 1, due)})
        )
    return sequences


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("config", RETENTIONS, ids=["consumers", "work-queue", "no-consumer-left"])
async def test_the_newest_fires_come_first_and_no_more_than_the_limit(
    start_server: StartServer, version: str, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "FIRST_RANGE", 8)
    monkeypatch.setattr(stretches, "FEW_MESSAGES", 2)
    server = await start_server(version)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_schedules=None, **config)
        await account.publish("S.before")
        sequences = await fill(account, 12, 7)
        for target in (None, "S.out", ">"):
            some = await found_in(account, "S", "S.s", limit=5, target=target)
            assert [fire.sequence for fire in some.fires] == sequences[:-6:-1]
            every = await found_in(account, "S", "S.s", limit=100, target=target)
            assert [fire.sequence for fire in every.fires] == sequences[::-1]
            assert some.is_complete
            assert every.is_complete
        since = every.fires[3].stored_at
        late = await found_in(account, "S", "S.s", since=since)
        assert [fire.sequence for fire in late.fires] == [s for s in sequences[::-1] if s >= sequences[-4]]


@pytest.mark.parametrize("config", [{}, {"max_consumers": 1}], ids=["consumers", "no-consumer-left"])
async def test_a_target_on_which_many_others_fire_is_read_in_short_ranges(
    start_server: StartServer, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranges grow over what does not match, and shrink where too much does."""
    monkeypatch.setattr(stretches, "FIRST_RANGE", 8)
    monkeypatch.setattr(stretches, "FEW_MESSAGES", 1)
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_schedules=None, **config)
        old = await fill(account, 40, 0)
        for _ in range(300):
            await account.publish("S.other")
        assert [fire.sequence for fire in (await found_in(account, "S", "S.s", limit=1_000)).fires] == old[::-1]
        [last] = (await found_in(account, "S", "S.s", limit=1)).fires
        assert last.sequence == old[-1]
        state = StreamState.from_info(await account.api.stream("S"))
        reader = stretches.StretchReader(account.connection, account.api, state.config, "S.out")
        chunks = [len(chunk) async for chunk in reader.backwards(1, state.last_sequence)]
        assert sum(chunks) == 40
        assert max(chunks) <= 8


async def test_what_cannot_be_read_in_full_is_said(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "FIRST_RANGE", 8)
    monkeypatch.setattr(past, "MAX_MESSAGES_READ", 16)
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_schedules=None)
        await fill(account, 40, 0)
        found = await found_in(account, "S", "S.s", limit=1_000)
        assert not found.is_complete
        assert [found.oldest_read] == [fire.stored_at for fire in found.fires[-1:]]
        assert (await found_in(account, "S", "S.s", limit=4)).is_complete


async def test_a_subject_that_the_stream_cannot_hold_has_no_fires(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_schedules=None)
        await account.publish("S.other")
        for target in ("elsewhere", "S.none"):
            found = await found_in(account, "S", "S.s", target=target)
            assert (found.fires, found.is_complete) == ([], True)
        gone = await found_in(account, "S", "S.gone")
        assert (gone.searched, gone.fires, gone.is_complete) == (">", [], True)


async def test_the_fires_of_a_paused_schedule_are_searched_on_its_target(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_schedules=None)
        sequences = await fill(account, 3, 0)
        await account.publish("S.s", {"Nats-Schedule-X-Paused": "@every 1s", "Nats-Schedule-Target": "S.out"})
        found = await found_in(account, "S", "S.s")
        assert (found.searched, [fire.sequence for fire in found.fires]) == ("S.out", sequences[::-1])


async def test_a_fire_in_another_stream_may_have_a_lower_sequence_than_its_schedule(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_schedules=None)
        await account.create("JOBS", allow_msg_schedules=None)
        for _ in range(3):
            await account.publish("S.other")
        sequence = await account.publish(
            "S.s", {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-X-Target": "JOBS.run"}
        )
        message = await account.api.message("S", seq=sequence)
        assert message is not None
        due = round_to_second(message.stored_at) + SECOND
        stamps = {"X-Nats-Scheduler": "S.s", "X-Nats-Schedule-Next": format_rfc3339(due + SECOND)}
        fired = await account.publish("JOBS.run", {**stamps, "Nats-Msg-Id": fire_identity("S.s", sequence, due)})
        found = await found_in(account, "S", "S.s")
        assert fired < sequence
        assert [(fire.sequence, fire.fire_time) for fire in found.fires] == [(fired, due)]


def fired_by(fires: list[PastFire]) -> set[bool]:
    return {fire.by_server for fire in fires}


async def has_fired(account: Account, count: int) -> None:
    await account.wait_for("S", "S.out", count)


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_fires_of_a_sidecar_outlive_its_restart(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        for life in (1, 2):
            async with sidecar_on(server.url) as running:
                if life == 1:
                    await account.create("S")
                await running.ready("S")
                if life == 1:
                    headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.out"}
                    stored = await account.publish("S.s", headers)
                await has_fired(account, 2 * life)
        found = await found_in(account, "S", "S.s")
        messages = await account.messages("S", "S.out")
        assert [fire.sequence for fire in found.fires] == [message.sequence for message in reversed(messages)]
        assert {fire.schedule_sequence for fire in found.fires} == {stored}
        assert all(fire.lateness is not None and fire.lateness >= 0 for fire in found.fires)
        assert fired_by(found.fires) == {False}


@pytest.mark.parametrize("version", [V2_14, V2_15])
async def test_fires_of_a_native_server_have_the_fire_times_of_the_schedule(
    start_server: StartServer, version: str
) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        await account.create("S")
        headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.out"}
        stored = await account.publish("S.s", headers)
        await has_fired(account, 3)
        message = await account.api.message("S", seq=stored)
        assert message is not None
        found = await found_in(account, "S", "S.s", limit=2)
        assert len(found.fires) == 2
        every = await found_in(account, "S", "S.s")
        assert fired_by(every.fires) == {True}
        for fire in every.fires:
            assert fire.lateness is not None, fire
            assert 0 <= fire.lateness < 60 * SECOND
        assert every.fires[-1].fire_time is not None
        assert message.stored_at < every.fires[-1].fire_time < message.stored_at + 3 * SECOND


@pytest.mark.parametrize("version", [V2_15])
async def test_a_native_fire_that_ended_its_schedule_is_found_on_its_target(
    start_server: StartServer, version: str
) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        await account.create("S")
        due = format_rfc3339(CLOCK.now() + SECOND)
        await account.publish("S.s", {"Nats-Schedule": f"@at {due}", "Nats-Schedule-Target": "S.out"})
        await has_fired(account, 1)
        for target in (None, "S.out"):
            [fire] = (await found_in(account, "S", "S.s", target=target)).fires
            assert (fire.fire_time, fire.next_fire, fire.by_server) == (None, None, True)


async def test_on_2_10_a_schedule_under_a_deleted_message_is_found(start_server: StartServer) -> None:
    """There `last_by_subj` finds nothing after the last message of the subject was deleted by its sequence."""
    server = await start_server(V2_10)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_schedules=None)
        await fill(account, 2, 0)
        later = await account.publish("S.s")
        assert await account.api.delete_message("S", later)
        assert (await found_in(account, "S", "S.s")).searched == "S.out"
