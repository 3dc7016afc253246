"""Schedules are paused and resumed: nothing of them is lost, and what is skipped is said."""

import pytest

from nats_scheduler.control.changes import Author, Kind
from nats_scheduler.control.edits import DROPPED, FIRES_AT_ONCE, PHASE_LOST, pause, resume
from nats_scheduler.control.errors import ConflictError, NotFoundError, NotPossibleError, RejectedError
from nats_scheduler.control.storing import BEGINS_ANEW
from nats_scheduler.message.headers import header_value
from tests.control.memory_schedules import Fault
from tests.control.world import SUBJECT, World, block, instant

AUTHOR = Author("jane", "maintenance")


async def test_a_paused_schedule_comes_back_byte_for_byte() -> None:
    for prefix in ("", "X-"):
        world = World()
        before = block("0 0 5 * * *", prefix, Note="é \t", Nats_Schedule_Note="1")
        sequence = world.put(before, b"\x00body")
        paused = await pause(world.store, "S", SUBJECT, author=AUTHOR)
        found = paused.kind, paused.before, paused.after, paused.author
        assert found == (Kind.PAUSED, sequence, sequence + 1, AUTHOR)
        assert (await world.found()).is_paused
        assert not header_value(world.last().block, f"{prefix}Nats-Schedule".encode())
        resumed = await resume(world.store, "S", SUBJECT)
        assert (resumed.kind, resumed.before, resumed.after) == (Kind.RESUMED, sequence + 1, sequence + 2)
        assert world.last().body == b"\x00body"
        assert world.last().block.startswith(before[:-2]), "only the conditions of the publish follow"
        assert world.store.recorded == [paused, resumed]


async def test_the_phase_of_an_interval_survives_a_pause() -> None:
    world = World()
    world.put(block("@every 1h"))
    world.after(90)
    paused = await pause(world.store, "S", SUBJECT)
    assert paused.notes == ("Nats-Schedule-X-Anchor: 2026-11-20T13:00:00Z keeps its fire times",)
    world.after(10 * 3600)
    resumed = await resume(world.store, "S", SUBJECT)
    assert (await world.found()).timetable().first_fire() == instant("2026-11-20T23:00:00Z")
    assert resumed.notes == ()


async def test_an_anchor_that_is_there_is_kept() -> None:
    world = World()
    world.put(block("@every 1h", Nats_Schedule_X_Anchor="2026-11-20T00:30:00Z"))
    assert (await pause(world.store, "S", SUBJECT)).notes == ()
    await resume(world.store, "S", SUBJECT)
    assert (await world.found()).timetable().first_fire() == instant("2026-11-20T12:30:00Z")


async def test_a_server_that_fires_begins_the_interval_anew() -> None:
    world = World(is_native=True)
    world.put(block("@every 1h"))
    assert (await pause(world.store, "S", SUBJECT)).notes == (BEGINS_ANEW,)
    assert header_value(world.last().block, b"Nats-Schedule-X-Anchor") is None
    assert (await resume(world.store, "S", SUBJECT)).notes == (BEGINS_ANEW,)


async def test_no_older_version_is_left_for_a_server_that_fires() -> None:
    world = World(is_native=True)
    for pattern in ("@every 1h", "0 0 5 * * *"):
        world.put(block(pattern))
    await pause(world.store, "S", SUBJECT)
    assert [header_value(one.block, b"Nats-Schedule") for one in world.stream.messages(SUBJECT)] == [None]
    await resume(world.store, "S", SUBJECT)
    assert header_value(world.last().block, b"Nats-Rollup") == b"sub", "as the server adds it itself"


async def test_a_pause_never_rolls_up_the_stream() -> None:
    """Such a schedule is rejected; a server up to 2.11 has stored it, after it has removed everything else."""
    world = World()
    sequence = world.put(block("@every 1h", Nats_Rollup="all"))
    with pytest.raises(NotPossibleError, match="a Nats-Rollup of 'all', which would remove other messages"):
        await pause(world.store, "S", SUBJECT, dry_run=True)
    with pytest.raises(NotPossibleError, match="which would remove other messages"):
        await pause(world.store, "S", SUBJECT)
    assert world.last().sequence == sequence


async def test_a_portable_schedule_on_a_native_stream_keeps_its_phase() -> None:
    world = World(is_native=True)
    world.put(block("@every 1h", "X-"))
    await pause(world.store, "S", SUBJECT)
    assert header_value(world.last().block, b"X-Nats-Schedule-X-Anchor") == b"2026-11-20T13:00:00Z"


async def test_a_schedule_that_was_paused_by_hand_has_lost_its_phase() -> None:
    world = World()
    world.put(block("@every 1h").replace(b"Schedule:", b"Schedule-X-Paused:"))
    assert (await resume(world.store, "S", SUBJECT)).notes == (PHASE_LOST,)


async def test_a_time_that_has_passed_fires_at_once() -> None:
    world = World()
    world.put(block("@at 2026-11-20T12:30:00Z"))
    await pause(world.store, "S", SUBJECT)
    world.after(3600)
    assert (await resume(world.store, "S", SUBJECT, dry_run=True)).notes == (FIRES_AT_ONCE,)
    assert (await world.found()).is_paused
    assert (await resume(world.store, "S", SUBJECT)).notes == (FIRES_AT_ONCE,)


async def test_a_time_that_has_passed_is_dropped_on_request() -> None:
    world = World()
    world.put(block("@at 2026-11-20T12:30:00Z"))
    await pause(world.store, "S", SUBJECT)
    world.after(3600)
    change = await resume(world.store, "S", SUBJECT, drop=True, dry_run=True)
    assert (change.kind, world.last().sequence) == (Kind.REMOVED, change.before)
    change = await resume(world.store, "S", SUBJECT, drop=True)
    assert (change.kind, change.after, change.notes) == (Kind.REMOVED, None, (DROPPED,))
    assert world.stream.last(SUBJECT) is None


async def test_what_still_comes_is_not_dropped() -> None:
    for pattern in ("@at 2026-11-20T15:00:00Z", "0 0 5 * * *", "@every 1h"):
        world = World()
        world.put(block(pattern))
        await pause(world.store, "S", SUBJECT)
        world.after(7200)
        assert (await resume(world.store, "S", SUBJECT, drop=True)).kind is Kind.RESUMED, pattern


async def test_a_schedule_that_has_ended_meanwhile_is_not_resumed() -> None:
    world = World()
    world.put(block("@every 1h", Nats_Schedule_X_End="2026-11-20T20:00:00Z"))
    await pause(world.store, "S", SUBJECT)
    world.after(24 * 3600)
    with pytest.raises(RejectedError, match="X-End"):
        await resume(world.store, "S", SUBJECT)
    assert (await world.found()).is_paused


async def test_what_is_paused_is_not_paused_again_and_what_is_not_is_not_resumed() -> None:
    world = World()
    for stored in (b"", b"NATS/1.0\r\nNats-Schedule-Target: S.out\r\n\r\n"):
        if stored:
            world.put(stored)
        for change in (pause, resume):
            with pytest.raises(NotFoundError):
                await change(world.store, "S", SUBJECT)
    world.put(block())
    with pytest.raises(NotPossibleError, match="is not paused"):
        await resume(world.store, "S", SUBJECT)
    await pause(world.store, "S", SUBJECT)
    with pytest.raises(NotPossibleError, match="paused already"):
        await pause(world.store, "S", SUBJECT)


async def test_a_version_that_is_not_expected_stays() -> None:
    world = World()
    sequence = world.put(block())
    with pytest.raises(ConflictError):
        await pause(world.store, "S", SUBJECT, expected=sequence + 1)
    await pause(world.store, "S", SUBJECT, expected=sequence)
    with pytest.raises(ConflictError):
        await resume(world.store, "S", SUBJECT, expected=sequence)
    await resume(world.store, "S", SUBJECT, expected=sequence + 1)


async def test_a_dry_run_says_what_a_pause_would_do() -> None:
    world = World()
    sequence = world.put(block("@every 1h"))
    change = await pause(world.store, "S", SUBJECT, dry_run=True)
    assert (change.kind, change.after, len(change.notes)) == (Kind.PAUSED, sequence, 1)
    assert (world.last().sequence, world.store.recorded) == (sequence, [])


async def test_a_rejected_schedule_can_be_paused_but_not_resumed() -> None:
    world = World()
    world.put(block("nonsense"))
    change = await pause(world.store, "S", SUBJECT)
    assert change.notes[0].startswith("it is rejected, paused or not")
    with pytest.raises(RejectedError):
        await resume(world.store, "S", SUBJECT)


async def test_a_pause_whose_answer_is_lost_is_done_once() -> None:
    for lost in (Fault.UNKNOWN_DONE, Fault.UNKNOWN_NOT_DONE):
        world = World()
        sequence = world.put(block("@every 1h"))
        world.store.wire.faults.append(lost)
        assert (await pause(world.store, "S", SUBJECT)).after == sequence + 1
        world.store.wire.faults.append(lost)
        assert (await resume(world.store, "S", SUBJECT)).after == sequence + 2


async def test_the_limit_that_counts_anew_is_said() -> None:
    world = World()
    world.put(block("0 0 5 * * *", Nats_Schedule_X_Limit="3"))
    await pause(world.store, "S", SUBJECT)
    assert (await resume(world.store, "S", SUBJECT)).notes == ("X-Limit counts the fires from now on",)
