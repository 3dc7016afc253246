"""Schedules are added, edited and removed, and what is not named stays as it is."""

import pytest

from nats_scheduler.control.changes import Author, Kind
from nats_scheduler.control.edits import STAYS_PAUSED, add, edit, pause, remove, resume
from nats_scheduler.control.errors import AlreadyExistsError, ConflictError, NotPossibleError, RejectedError
from nats_scheduler.control.storing import BEGINS_ANEW
from nats_scheduler.control.words import Edit
from nats_scheduler.message.headers import header_value, with_header
from tests.control.memory_schedules import Fault
from tests.control.world import NEVER, SUBJECT, World, block, instant

AUTHOR = Author("jane", "why not")


# -- add -------------------------------------------------------------------------------------------------------------


async def test_an_addition_is_recorded_with_its_author() -> None:
    world = World()
    change = await add(world.store, "S", SUBJECT, block(), b"body", author=AUTHOR)
    assert (change.kind, change.author, change.at) == (Kind.ADDED, AUTHOR, world.time)
    assert world.store.recorded == [change]


async def test_what_is_there_already_keeps_its_phase_and_is_not_recorded() -> None:
    world = World()
    first = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    world.after(60)
    again = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", replace=True)
    assert (again.kind, again.after) == (Kind.UNCHANGED, first.after)
    assert world.last().sequence == first.after
    assert world.store.recorded == [first]


async def test_another_schedule_is_replaced_only_if_that_is_wanted() -> None:
    world = World()
    before = world.put(block())
    with pytest.raises(AlreadyExistsError, match="another schedule"):
        await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    change = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", replace=True)
    assert (change.kind, change.before, change.after) == (Kind.EDITED, before, before + 1)


async def test_nobody_has_a_header_stored_that_lends_a_right() -> None:
    world = World()
    for name in ("Nats-Trace-Only", "Nats-Trace-Dest", "nats-trace-dest", "Nats-Incr"):
        for dry_run in (False, True):
            wanted = with_header(block(), name.encode(), b"true")
            with pytest.raises(NotPossibleError, match=f"{name} is no header of a schedule"):
                await add(world.store, "S", "S.new", wanted, b"", dry_run=dry_run)
            sequence = world.put(block())
            with pytest.raises(NotPossibleError, match=f"{name} is no header of a schedule"):
                await edit(world.store, "S", SUBJECT, Edit(set=[(name.encode(), b"true")]), dry_run=dry_run)
            assert world.stream.last_sequence == sequence


async def test_what_is_stored_again_carries_no_such_header_any_more() -> None:
    world = World()
    world.put(block(A="b\r\nNats-Expected-J\r\nNats-Trace-Dest: x\r\nB: c"))
    for change in (pause, resume):
        await change(world.store, "S", SUBJECT)
        assert b"Nats-Trace" not in world.last().block
        assert header_value(world.last().block, b"B") == b"c"


async def test_an_addition_replaces_only_the_version_that_is_expected() -> None:
    for replace in (False, True):
        world = World()
        change = await add(world.store, "S", SUBJECT, block(), b"body", expected=0, replace=replace)
        for wrong in (0, 7):
            with pytest.raises(ConflictError) as raised:
                await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", expected=wrong, replace=True)
            assert raised.value.sequence == change.after
        await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", expected=change.after, replace=True)


async def test_policies_that_have_no_effect_are_named() -> None:
    policies = {"Nats_Schedule_X_Owner": "team", "Nats_Schedule_X_Missed": "skip"}
    change = await add(World(is_native=True).store, "S", SUBJECT, block(**policies), b"body")
    assert change.notes == (
        "no effect, because the server fires this schedule: X-Missed; with portable headers they have one",
    )
    assert (await add(World().store, "S", SUBJECT, block(**policies), b"body")).notes == ()


async def test_a_plain_message_is_not_overwritten_by_accident() -> None:
    world = World()
    world.put(b"", b"an order")
    with pytest.raises(AlreadyExistsError, match="no schedule"):
        await add(world.store, "S", SUBJECT, block(), b"body")
    assert (await add(world.store, "S", SUBJECT, block(), b"body", replace=True)).kind is Kind.ADDED


async def test_a_delete_marker_counts_as_nothing() -> None:
    world = World()
    world.put(b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n", b"")
    assert (await add(world.store, "S", SUBJECT, block(), b"body")).kind is Kind.ADDED


async def test_the_same_that_another_replica_has_just_added_is_unchanged() -> None:
    world = World()
    world.store.wire.interruptions.append(lambda: world.put(block()))
    assert (await add(world.store, "S", SUBJECT, block(), b"body")).kind is Kind.UNCHANGED


async def test_another_schedule_that_was_just_added_is_a_conflict() -> None:
    world = World()
    world.store.wire.interruptions.append(lambda: world.put(block("@every 1h")))
    with pytest.raises(AlreadyExistsError):
        await add(world.store, "S", SUBJECT, block(), b"body")
    world.store.wire.interruptions.append(lambda: world.put(block("@every 2h")))
    with pytest.raises(ConflictError):
        await add(world.store, "S", SUBJECT, block(), b"body", replace=True)
    assert header_value(world.last().block, b"Nats-Schedule") == b"@every 2h"


async def test_a_replacement_of_what_is_removed_at_the_same_time_is_an_addition_unless_a_version_is_expected() -> None:
    """A worker that receives a fire stores the next schedule on its subject while a sidecar purges the last one."""
    world = World()
    fired = world.put(block())
    world.store.wire.interruptions.append(lambda: world.stream.purge(SUBJECT))
    change = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", replace=True)
    assert (change.kind, change.before, change.after) == (Kind.ADDED, None, fired + 1)
    world.store.wire.interruptions.append(lambda: world.stream.purge(SUBJECT))
    with pytest.raises(ConflictError):
        await add(world.store, "S", SUBJECT, block("@every 2h"), b"body", expected=fired + 1, replace=True)
    assert len(world.stream) == 0


async def test_an_addition_may_lose_its_answer() -> None:
    world = World()
    world.store.wire.faults.append(Fault.UNKNOWN_DONE)
    assert (await add(world.store, "S", SUBJECT, block(), b"body")).kind is Kind.ADDED
    assert len(world.stream) == 1


async def test_a_schedule_that_was_paused_stays_paused_when_it_is_added_again() -> None:
    world = World()
    await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    await pause(world.store, "S", SUBJECT)
    again = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    assert (again.kind, again.notes) == (Kind.UNCHANGED, (STAYS_PAUSED,))
    await resume(world.store, "S", SUBJECT)
    assert header_value(world.last().block, b"Nats-Schedule-X-Anchor"), "it was added by the pause"
    assert (await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")).kind is Kind.UNCHANGED


async def test_a_paused_schedule_can_be_added() -> None:
    world = World()
    world.put(block())
    paused = world.last().block.replace(b"Nats-Schedule:", b"Nats-Schedule-X-Paused:")
    assert (await add(world.store, "S", "S.other", paused, b"body")).kind is Kind.ADDED
    assert (await world.found("S.other")).is_paused
    with pytest.raises(AlreadyExistsError):
        await add(world.store, "S", SUBJECT, paused, b"body")


async def test_a_message_id_that_the_server_knows_is_no_silent_success() -> None:
    world = World()
    await add(world.store, "S", SUBJECT, block(Nats_Msg_Id="once"), b"body")
    world.stream.purge(SUBJECT)
    with pytest.raises(ConflictError, match="Nats-Msg-Id"):
        await add(world.store, "S", SUBJECT, block(Nats_Msg_Id="once"), b"body")


async def test_a_dry_run_of_an_addition_stores_nothing() -> None:
    world = World()
    for replace in (False, True):
        change = await add(world.store, "S", SUBJECT, block(), b"body", replace=replace, dry_run=True)
        assert (change.kind, change.before, change.after) == (Kind.ADDED, None, None)
    for wrong in (block("nonsense"), block(Nats_Schedule_X_Paused="x")):
        with pytest.raises(RejectedError):
            await add(world.store, "S", SUBJECT, wrong, b"body", dry_run=True)
    assert (len(world.stream), world.store.recorded) == (0, [])


# -- edit ------------------------------------------------------------------------------------------------------------


async def test_an_edit_that_changes_nothing_stores_nothing() -> None:
    world = World()
    sequence = world.put(block(Count="1"))
    change = await edit(world.store, "S", SUBJECT, Edit(set=[(b"Count", b"1")], unset=[b"No"], body=b"body"))
    assert (change.kind, change.after) == (Kind.UNCHANGED, sequence)
    assert (world.last().sequence, world.store.recorded) == (sequence, [])


async def test_an_edit_keeps_the_fire_times_of_an_interval() -> None:
    world = World()
    world.put(block("@every 1h"))
    expected = (await world.found()).timetable().next_fire(world.time + 600_000_000_000)
    world.after(600)
    change = await edit(world.store, "S", SUBJECT, Edit(body=b"new"))
    found = await world.found()
    assert header_value(found.message.block, b"Nats-Schedule-X-Anchor") == b"2026-11-20T13:00:00Z"
    assert found.timetable().first_fire() == expected == instant("2026-11-20T13:00:00Z")
    assert change.notes == ("Nats-Schedule-X-Anchor: 2026-11-20T13:00:00Z keeps its fire times",)


async def test_an_edit_of_the_pattern_begins_anew() -> None:
    world = World()
    world.put(block("@every 1h"))
    world.after(600)
    change = await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule", b"@every 2h")]))
    assert (await world.found()).timetable().first_fire() == instant("2026-11-20T14:10:00Z")
    assert change.notes == ()


async def test_the_same_interval_in_other_words_keeps_the_fire_times() -> None:
    world = World()
    world.put(block("@every 1h"))
    first = (await world.found()).timetable().first_fire()
    world.after(600)
    await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule", b"@every 60m")]))
    found = await world.found()
    assert (found.pattern, found.timetable().first_fire()) == ("@every 60m", first)


async def test_an_anchor_goes_with_the_grid_that_it_was_for() -> None:
    world = World()
    world.put(block("@every 1h", Nats_Schedule_X_Anchor="2026-11-20T12:00:00Z"))
    change = await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule", b"0 0 5 * * *")]))
    assert header_value(world.last().block, b"Nats-Schedule-X-Anchor") is None
    assert change.notes == ("Nats-Schedule-X-Anchor is removed: the new pattern has no grid",)


async def test_a_server_that_fires_knows_no_anchor() -> None:
    world = World(is_native=True)
    world.put(block("@every 1h"))
    change = await edit(world.store, "S", SUBJECT, Edit(body=b"new"))
    assert header_value(world.last().block, b"Nats-Schedule-X-Anchor") is None
    assert change.notes == (BEGINS_ANEW,)


async def test_an_edit_sets_nothing_that_the_server_ignores() -> None:
    for is_paused in (False, True):
        world = World(is_native=True)
        sequence = world.put(block("@every 1h"))
        if is_paused:
            sequence = (await pause(world.store, "S", SUBJECT)).after or 0
        with pytest.raises(NotPossibleError, match="only a sidecar heeds X-Jitter"):
            await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule-X-Jitter", b"1m")]))
        assert world.last().sequence == sequence
        change = await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule", b"@every 1.4s")]))
        assert "the server rounds each fire time to the second" in change.notes


async def test_an_edit_of_a_paused_schedule_leaves_it_paused() -> None:
    world = World()
    world.put(block())
    await pause(world.store, "S", SUBJECT)
    change = await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule", b"@every 1h")]))
    found = await world.found()
    assert (found.is_paused, found.pattern, change.notes) == (True, "@every 1h", (STAYS_PAUSED,))
    assert header_value(found.message.block, b"Nats-Schedule") is None


async def test_an_edit_that_would_be_rejected_or_is_none_is_refused() -> None:
    """To end, pause or double a schedule is no edit."""
    world = World()
    sequence = world.put(block())
    for rejected in (Edit(set=[(b"Nats-Schedule-Target", b"elsewhere")]), Edit(unset=[b"Nats-Schedule-Target"])):
        with pytest.raises(RejectedError):
            await edit(world.store, "S", SUBJECT, rejected)
    for wrong in (
        Edit(unset=[b"Nats-Schedule"]),
        Edit(set=[(b"Nats-Schedule-X-Paused", NEVER.encode())]),
        Edit(set=[(b"X-Nats-Schedule", NEVER.encode())]),
    ):
        with pytest.raises(NotPossibleError):
            await edit(world.store, "S", SUBJECT, wrong)
    assert world.last().sequence == sequence


async def test_an_edit_of_another_version_than_expected_is_a_conflict() -> None:
    world = World()
    first = world.put(block())
    second = world.put(block("@every 1h"))
    with pytest.raises(ConflictError) as raised:
        await edit(world.store, "S", SUBJECT, Edit(body=b"new"), expected=first)
    assert raised.value.sequence == second


async def test_a_rejected_schedule_can_be_mended() -> None:
    world = World()
    world.put(block("@every 1x"))
    await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule", b"@every 1h")]))
    assert (await world.found()).definition is not None


async def test_what_else_begins_anew_is_said() -> None:
    world = World(allow_msg_ttl=True)
    world.put(block("0 0 5 * * *", Nats_Schedule_X_Limit="3", Nats_TTL="1h"))
    change = await edit(world.store, "S", SUBJECT, Edit(body=b"new"))
    assert change.notes == ("X-Limit counts the fires from now on", "the Nats-TTL of the schedule begins anew")


async def test_a_schedule_that_has_a_message_id_can_be_edited() -> None:
    world = World()
    world.put(block(Nats_Msg_Id="once"))
    change = await edit(world.store, "S", SUBJECT, Edit(body=b"new"))
    assert world.last().sequence == change.after
    assert header_value(world.last().block, b"Nats-Msg-Id") is None


# -- remove ----------------------------------------------------------------------------------------------------------


async def test_any_schedule_is_removed_with_its_older_versions() -> None:
    for stored in (block(), block("nonsense"), block().replace(b"Schedule:", b"Schedule-X-Paused:")):
        world = World()
        world.put(block("@every 1h"))
        sequence = world.put(stored)
        change = await remove(world.store, "S", SUBJECT, author=AUTHOR)
        assert (change.kind, change.before, change.after, change.author) == (Kind.REMOVED, sequence, None, AUTHOR)
        assert (len(world.stream), world.store.recorded) == (0, [change])


async def test_a_dry_run_of_a_removal_removes_nothing() -> None:
    world = World()
    world.put(block())
    change = await remove(world.store, "S", SUBJECT, dry_run=True)
    assert (change.kind, len(world.stream), world.store.recorded) == (Kind.REMOVED, 1, [])
