"""Schedules are added, edited, removed, paused and resumed: what is not named stays as it is, and nothing is lost."""

from functools import partial

import pytest

from nats_scheduler.control.changes import Author, Kind
from nats_scheduler.control.edits import STAYS_PAUSED, add, edit, remove
from nats_scheduler.control.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    NotPossibleError,
    RejectedError,
)
from nats_scheduler.control.pausing import DROPPED, FIRES_AT_ONCE, pause, resume
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.findings import Code
from nats_scheduler.message.headers import header_value, with_header
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.schedule_form import Edit
from tests.control.world import NEVER, SUBJECT, World, block, instant
from tests.harness.blocks import block_of
from tests.harness.hiding import HIDES, HIDING, twice

AUTHOR = Author("jane", "why not")


# -- add -------------------------------------------------------------------------------------------------------------


async def test_a_value_that_hides_a_header_is_refused(world: World) -> None:
    hiding = block_of(*HIDING["subjects"].items(ADR51))
    for wanted in (hiding, paused_block(hiding, ADR51)):
        with pytest.raises(RejectedError, match=HIDES):
            await add(world.store, "S", SUBJECT, wanted, b"")
    world.put(block(Nats_Schedule_Source="S.in"))
    target = f"S.{twice('Nats-Schedule-Source')}".encode()
    with pytest.raises(RejectedError, match=HIDES):
        await edit(world.store, "S", SUBJECT, Edit([(b"Nats-Schedule-Target", target)]))


async def test_what_is_there_already_keeps_its_phase_and_is_not_recorded(world: World) -> None:
    first = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    world.after(60)
    again = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", replace=True)
    assert (again.kind, again.after) == (Kind.UNCHANGED, first.after)
    assert world.last().sequence == first.after
    assert world.store.recorded == [first]


async def test_a_body_that_is_lost_is_named_before_it_is_replaced(world: World) -> None:
    meant, warned = {"Nats_Schedule_X_Debounce": "true"}, list[str]()
    again = partial(add, world.store, "S", SUBJECT, replace=True, warn=warned.append)
    due = "@at 2026-11-20T13:00:00Z"
    sequence = world.put(block(due), b"order 1")
    loss = (
        f"it replaces sequence {sequence}, published 2026-11-20T12:00:00.4Z, "
        "which was to fire at 2026-11-20T13:00:00Z and never will"
    )
    with pytest.raises(AlreadyExistsError, match="has not fired yet and is due at 2026-11-20T13:00:00Z"):
        await add(world.store, "S", SUBJECT, block(due), b"order 2")
    assert (await again(block=block(due), body=b"order 2", dry_run=True)).notes == (loss,)
    assert (await edit(world.store, "S", SUBJECT, Edit(body=b"order 2"), dry_run=True)).notes == (loss,)
    assert warned == [], "a dry run loses nothing"
    assert (await again(block=block("@every 1h"), body=b"order 2")).notes == (loss,)
    assert warned == [f"{SUBJECT}: {loss}"]
    for stored, wanted, body in (
        (block(due), block("@at 2026-11-20T14:00:00Z"), b"order 1"),
        (block(due, **meant), block(due), b"order 2"),
        (block(due), block(due, **meant), b"order 2"),
        (block("@at 2026-11-20T11:00:00Z"), block(due), b"order 2"),
        (block("@every 1h"), block(due), b"order 2"),
    ):
        world.put(stored, b"order 1")
        assert (await again(block=wanted, body=body)).notes == ()
    other = World(metadata={"nats-scheduler.debounce": "true"})
    other.put(block(due), b"order 1")
    assert (await add(other.store, "S", SUBJECT, block(due), b"order 2", replace=True)).notes == ()
    assert len(warned) == 1


async def test_nobody_has_a_header_stored_that_lends_a_right(world: World) -> None:
    for name in ("nats-trace-dest", "Nats-Incr"):
        for dry_run in (False, True):
            wanted = with_header(block(), name.encode(), b"true")
            with pytest.raises(NotPossibleError, match=f"{name} is no header of a schedule"):
                await add(world.store, "S", "S.new", wanted, b"", dry_run=dry_run)
            sequence = world.put(block())
            with pytest.raises(NotPossibleError, match=f"{name} is no header of a schedule"):
                await edit(world.store, "S", SUBJECT, Edit(set=[(name.encode(), b"true")]), dry_run=dry_run)
            assert world.stream.last_sequence == sequence


async def test_what_would_be_a_part_of_a_batch_or_a_condition_is_not_stored(world: World) -> None:
    """A requester could else begin batches with the permissions of the sidecar, and a stream takes 50 at a time."""
    asked = {b"Nats-Batch-Id": b"b", b"Nats-Batch-Sequence": b"1", b"Nats-Stream-Source": b"S 1"}
    await add(world.store, "S", SUBJECT, block(**{name.decode(): value.decode() for name, value in asked.items()}), b"")
    added = world.last().block
    await edit(world.store, "S", SUBJECT, Edit(set=[*asked.items(), (b"Kind", b"order")]))
    edited = world.last().block
    assert [header_value(one, name) for one in (added, edited) for name in asked] == [None] * 6
    assert header_value(edited, b"Kind") == b"order"


async def test_an_addition_replaces_only_the_version_that_is_expected() -> None:
    for replace in (False, True):
        world = World()
        change = await add(world.store, "S", SUBJECT, block(), b"body", expected=0, replace=replace)
        for wrong in (0, 7):
            with pytest.raises(ConflictError) as raised:
                await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", expected=wrong, replace=True)
            assert raised.value.sequence == change.after
        await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", expected=change.after, replace=True)


async def test_a_plain_message_is_not_overwritten_by_accident(world: World) -> None:
    world.put(b"", b"an order")
    with pytest.raises(AlreadyExistsError, match="no schedule"):
        await add(world.store, "S", SUBJECT, block(), b"body")
    assert (await add(world.store, "S", SUBJECT, block(), b"body", replace=True)).kind is Kind.ADDED


async def test_another_schedule_that_was_just_added_is_a_conflict(world: World) -> None:
    world.store.wire.interruptions.append(lambda: world.put(block("@every 1h")))
    with pytest.raises(AlreadyExistsError):
        await add(world.store, "S", SUBJECT, block(), b"body")
    world.store.wire.interruptions.append(lambda: world.put(block("@every 2h")))
    with pytest.raises(ConflictError):
        await add(world.store, "S", SUBJECT, block(), b"body", replace=True)
    assert header_value(world.last().block, b"Nats-Schedule") == b"@every 2h"


async def test_replacing_what_is_removed_meanwhile_is_an_addition(world: World) -> None:
    """A worker that receives a fire stores the next schedule on its subject while a sidecar purges the last one."""
    fired = world.put(block())
    world.store.wire.interruptions.append(lambda: world.stream.purge(SUBJECT))
    change = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", replace=True)
    assert (change.kind, change.before, change.after) == (Kind.ADDED, None, fired + 1)
    world.store.wire.interruptions.append(lambda: world.stream.purge(SUBJECT))
    with pytest.raises(ConflictError):
        await add(world.store, "S", SUBJECT, block("@every 2h"), b"body", expected=fired + 1, replace=True)
    assert len(world.stream) == 0


async def test_a_schedule_that_was_paused_stays_paused_when_it_is_added_again(world: World) -> None:
    await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    await pause(world.store, "S", SUBJECT)
    again = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    assert (again.kind, again.notes) == (Kind.UNCHANGED, (STAYS_PAUSED,))
    await resume(world.store, "S", SUBJECT)
    assert header_value(world.last().block, b"Nats-Schedule-X-Anchor"), "it was added by the pause"
    assert (await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")).kind is Kind.UNCHANGED


async def test_a_message_id_that_the_server_knows_is_no_silent_success(world: World) -> None:
    await add(world.store, "S", SUBJECT, block(Nats_Msg_Id="once"), b"body")
    world.stream.purge(SUBJECT)
    with pytest.raises(ConflictError, match="Nats-Msg-Id"):
        await add(world.store, "S", SUBJECT, block(Nats_Msg_Id="once"), b"body")


async def test_a_dry_run_of_an_addition_stores_nothing(world: World) -> None:
    for replace in (False, True):
        change = await add(world.store, "S", SUBJECT, block(), b"body", replace=replace, dry_run=True)
        assert (change.kind, change.before, change.after) == (Kind.ADDED, None, None)
    for wrong in (block("nonsense"), block(Nats_Schedule_X_Paused="x")):
        with pytest.raises(RejectedError):
            await add(world.store, "S", SUBJECT, wrong, b"body", dry_run=True)
    assert (len(world.stream), world.store.recorded) == (0, [])


# -- edit ------------------------------------------------------------------------------------------------------------


async def test_an_edit_that_changes_nothing_stores_nothing(world: World) -> None:
    sequence = world.put(block(Count="1"))
    change = await edit(world.store, "S", SUBJECT, Edit(set=[(b"Count", b"1")], unset=[b"No"], body=b"body"))
    assert (change.kind, change.after) == (Kind.UNCHANGED, sequence)
    assert (world.last().sequence, world.store.recorded) == (sequence, [])


async def test_an_edit_keeps_the_fire_times_of_an_interval(world: World) -> None:
    world.put(block("@every 1h"))
    expected = (await world.found()).timetable().next_fire(world.time + 600_000_000_000)
    world.after(600)
    change = await edit(world.store, "S", SUBJECT, Edit(body=b"new"))
    found = await world.found()
    assert header_value(found.message.block, b"Nats-Schedule-X-Anchor") == b"2026-11-20T13:00:00Z"
    assert found.timetable().first_fire() == expected == instant("2026-11-20T13:00:00Z")
    assert change.notes == ("Nats-Schedule-X-Anchor: 2026-11-20T13:00:00Z keeps its fire times",)


async def test_an_anchor_goes_with_the_grid_that_it_was_for(world: World) -> None:
    world.put(block("@every 1h", Nats_Schedule_X_Anchor="2026-11-20T12:00:00Z"))
    change = await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule", b"0 0 5 * * *")]))
    assert header_value(world.last().block, b"Nats-Schedule-X-Anchor") is None
    assert change.notes == ("Nats-Schedule-X-Anchor is removed: the new pattern has no grid",)


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
        assert [found.code for found in change.findings] == [Code.DEFECT_INTERVAL_ROUNDED]


async def test_an_edit_that_would_be_rejected_or_is_none_is_refused(world: World) -> None:
    """To end, pause or double a schedule is no edit."""
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


async def test_another_version_than_expected_is_a_conflict(world: World) -> None:
    first, second = world.put(block()), world.put(block("@every 1h"))
    for change in (
        partial(edit, world.store, "S", SUBJECT, Edit(body=b"new")),
        partial(pause, world.store, "S", SUBJECT),
    ):
        with pytest.raises(ConflictError) as raised:
            await change(expected=first)
        assert raised.value.sequence == second


async def test_what_else_begins_anew_is_said() -> None:
    world = World(allow_msg_ttl=True)
    world.put(block("0 0 5 * * *", Nats_Schedule_X_Limit="3", Nats_TTL="1h"))
    change = await edit(world.store, "S", SUBJECT, Edit(body=b"new"))
    assert change.notes == ("X-Limit counts the fires from now on", "the Nats-TTL of the schedule begins anew")


# -- remove ----------------------------------------------------------------------------------------------------------


async def test_a_dry_run_is_refused_for_a_missing_permission(world: World) -> None:
    store = world.store
    store.wire.forbidden |= {SUBJECT, "STREAM.PURGE.S"}
    with pytest.raises(ForbiddenError, match=f"may not publish to {SUBJECT}"):
        await add(store, "S", SUBJECT, block(), b"", dry_run=True)
    world.put(block())
    for dry in (
        partial(edit, store, "S", SUBJECT, Edit(body=b"another")),
        partial(pause, store, "S", SUBJECT),
        partial(remove, store, "S", SUBJECT),
    ):
        with pytest.raises(ForbiddenError):
            await dry(dry_run=True)
    world.put(paused_block(block("@at 2020-01-01T00:00:00Z"), ADR51))
    for drop in (False, True):
        with pytest.raises(ForbiddenError):
            await resume(store, "S", SUBJECT, drop=drop, dry_run=True)


# -- pause and resume ------------------------------------------------------------------------------------------------


async def test_the_phase_of_an_interval_survives_a_pause(world: World) -> None:
    world.put(block("@every 1h"))
    world.after(90)
    paused = await pause(world.store, "S", SUBJECT)
    assert paused.notes == ("Nats-Schedule-X-Anchor: 2026-11-20T13:00:00Z keeps its fire times",)
    world.after(10 * 3600)
    resumed = await resume(world.store, "S", SUBJECT)
    assert (await world.found()).timetable().first_fire() == instant("2026-11-20T23:00:00Z")
    assert resumed.notes == ()


async def test_no_older_version_is_left_for_a_server_that_fires() -> None:
    world = World(is_native=True)
    for pattern in ("@every 1h", "0 0 5 * * *"):
        world.put(block(pattern))
    await pause(world.store, "S", SUBJECT)
    assert [header_value(one.block, b"Nats-Schedule") for one in world.stream.messages(SUBJECT)] == [None]
    await resume(world.store, "S", SUBJECT)
    assert header_value(world.last().block, b"Nats-Rollup") == b"sub", "as the server adds it itself"


async def test_a_pause_never_rolls_up_the_stream(world: World) -> None:
    """Such a schedule is rejected; a server up to 2.11 has stored it, after it has removed everything else."""
    sequence = world.put(block("@every 1h", Nats_Rollup="all"))
    with pytest.raises(NotPossibleError, match="a Nats-Rollup of 'all', which would remove other messages"):
        await pause(world.store, "S", SUBJECT, dry_run=True)
    with pytest.raises(NotPossibleError, match="which would remove other messages"):
        await pause(world.store, "S", SUBJECT)
    assert world.last().sequence == sequence


async def test_a_time_that_has_passed_fires_at_once_or_is_dropped(world: World) -> None:
    world.put(block("@at 2026-11-20T12:30:00Z"))
    await pause(world.store, "S", SUBJECT)
    world.after(3600)
    assert (await resume(world.store, "S", SUBJECT, dry_run=True)).notes == (FIRES_AT_ONCE,)
    change = await resume(world.store, "S", SUBJECT, drop=True, dry_run=True)
    assert (change.kind, world.last().sequence) == (Kind.REMOVED, change.before)
    change = await resume(world.store, "S", SUBJECT, drop=True)
    assert (change.kind, change.after, change.notes) == (Kind.REMOVED, None, (DROPPED,))
    assert world.stream.last(SUBJECT) is None


async def test_a_schedule_that_has_ended_meanwhile_is_not_resumed(world: World) -> None:
    world.put(block("@every 1h", Nats_Schedule_X_End="2026-11-20T20:00:00Z"))
    await pause(world.store, "S", SUBJECT)
    world.after(24 * 3600)
    with pytest.raises(RejectedError, match="X-End"):
        await resume(world.store, "S", SUBJECT)
    assert (await world.found()).is_paused


async def test_nothing_is_paused_or_resumed_twice(world: World) -> None:
    for change in (pause, resume):
        with pytest.raises(NotFoundError):
            await change(world.store, "S", SUBJECT)
    world.put(block())
    with pytest.raises(NotPossibleError, match="is not paused"):
        await resume(world.store, "S", SUBJECT)
    await pause(world.store, "S", SUBJECT)
    with pytest.raises(NotPossibleError, match="paused already"):
        await pause(world.store, "S", SUBJECT)


async def test_a_rejected_schedule_can_be_paused_but_not_resumed(world: World) -> None:
    world.put(block("nonsense"))
    change = await pause(world.store, "S", SUBJECT)
    assert change.notes[0].startswith("it is rejected, paused or not")
    with pytest.raises(RejectedError):
        await resume(world.store, "S", SUBJECT)
