"""Schedules are added, edited, removed, paused and resumed: what is not named stays as it is, and nothing is lost."""

from functools import partial

import pytest

from nats_scheduler.control.anchor import BEGINS_ANEW
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
from nats_scheduler.control.pausing import DROPPED, FIRES_AT_ONCE, PHASE_LOST, pause, resume
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.findings import Code
from nats_scheduler.message.headers import header_value, with_header
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.schedule_form import Edit
from tests.control.memory_schedules import Fault
from tests.control.world import NEVER, SUBJECT, World, block, instant
from tests.harness.blocks import block_of
from tests.harness.hiding import HIDES, HIDING, twice

AUTHOR = Author("jane", "why not")


# -- add -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HIDING)
async def test_a_value_that_hides_a_header_is_refused(world: World, name: str) -> None:
    hiding = block_of(*HIDING[name].items(ADR51))
    for wanted in (hiding, paused_block(hiding, ADR51)):
        with pytest.raises(RejectedError, match=HIDES):
            await add(world.store, "S", SUBJECT, wanted, b"")
    assert world.stream.last(SUBJECT) is None


async def test_what_another_client_has_hidden_can_still_be_changed(world: World) -> None:
    """It can be paused, resumed and edited; but an edit hides no other header, and sets none that is not found."""
    source = f"S.{twice('Nats-Schedule-Rollup')}"
    world.put(block(Nats_Schedule_Source=source, Nats_Schedule_Rollup="sub", Kind="1"))
    await pause(world.store, "S", SUBJECT)
    await resume(world.store, "S", SUBJECT)
    await edit(world.store, "S", SUBJECT, Edit([(b"Kind", b"2")]))
    assert header_value(world.last().block, b"Kind") == b"2"
    target = f"S.{twice('Nats-Schedule-Source')}".encode()
    for hiding in (Edit([(b"Nats-Schedule-Target", target)]), Edit([(b"Nats-Schedule-Rollup", b"sub")])):
        with pytest.raises(RejectedError, match=HIDES):
            await edit(world.store, "S", SUBJECT, hiding)


async def test_a_pause_that_would_hide_the_schedule_is_refused(world: World) -> None:
    target = ("Nats-Schedule-Target", f"S.{twice('Nats-Schedule-X-Paused')}")
    world.put(block_of(target, ("Nats-Schedule", NEVER)))
    with pytest.raises(RejectedError, match=HIDES):
        await pause(world.store, "S", SUBJECT)


async def test_what_is_there_already_keeps_its_phase_and_is_not_recorded(world: World) -> None:
    first = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    world.after(60)
    again = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", replace=True)
    assert (again.kind, again.after) == (Kind.UNCHANGED, first.after)
    assert world.last().sequence == first.after
    assert world.store.recorded == [first]


async def test_another_schedule_is_replaced_only_if_that_is_wanted(world: World) -> None:
    before = world.put(block())
    with pytest.raises(AlreadyExistsError, match="another schedule"):
        await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    change = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body", replace=True)
    assert (change.kind, change.before, change.after) == (Kind.EDITED, before, before + 1)


@pytest.mark.parametrize(
    ("edited", "fate"),
    [
        ({"Nats-Schedule-X-Note": "mine"}, "is still stored, as it was before this change"),
        ({"Nats-Schedule-X-Start": "2027-01-01T00:00:00Z"}, "is not stored any more"),
        ({"Nats-Schedule": "@at 2026-11-20T12:00:00Z"}, None),
    ],
)
async def test_an_edit_says_what_becomes_of_a_fire_that_a_jitter_delays(
    world: World, edited: dict[str, str], fate: str | None
) -> None:
    world.put(block("@every 1h", Nats_Schedule_X_Jitter="30m"), b"body")
    world.after(3_601)
    content = Edit(set=tuple((name.encode(), value.encode()) for name, value in edited.items()))
    notes = (await edit(world.store, "S", SUBJECT, content, dry_run=True)).notes
    assert [note.split(", and ")[1] for note in notes if "its fire of 2026-11-20T13:00:00Z waits until" in note] == (
        [] if fate is None else [fate]
    )


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
    for name in ("Nats-Trace-Only", "Nats-Trace-Dest", "nats-trace-dest", "Nats-Incr"):
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


async def test_what_is_stored_again_carries_no_such_header_any_more(world: World) -> None:
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


async def test_a_plain_message_is_not_overwritten_by_accident(world: World) -> None:
    world.put(b"", b"an order")
    with pytest.raises(AlreadyExistsError, match="no schedule"):
        await add(world.store, "S", SUBJECT, block(), b"body")
    assert (await add(world.store, "S", SUBJECT, block(), b"body", replace=True)).kind is Kind.ADDED


async def test_a_delete_marker_counts_as_nothing(world: World) -> None:
    world.put(b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n", b"")
    assert (await add(world.store, "S", SUBJECT, block(), b"body")).kind is Kind.ADDED


async def test_the_same_that_another_replica_has_just_added_is_unchanged(world: World) -> None:
    world.store.wire.interruptions.append(lambda: world.put(block()))
    assert (await add(world.store, "S", SUBJECT, block(), b"body")).kind is Kind.UNCHANGED


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


async def test_an_addition_may_lose_its_answer(world: World) -> None:
    world.store.wire.faults.append(Fault.UNKNOWN_DONE)
    assert (await add(world.store, "S", SUBJECT, block(), b"body")).kind is Kind.ADDED
    assert len(world.stream) == 1


async def test_a_schedule_that_was_paused_stays_paused_when_it_is_added_again(world: World) -> None:
    await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    await pause(world.store, "S", SUBJECT)
    again = await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")
    assert (again.kind, again.notes) == (Kind.UNCHANGED, (STAYS_PAUSED,))
    await resume(world.store, "S", SUBJECT)
    assert header_value(world.last().block, b"Nats-Schedule-X-Anchor"), "it was added by the pause"
    assert (await add(world.store, "S", SUBJECT, block("@every 1h"), b"body")).kind is Kind.UNCHANGED


async def test_a_paused_schedule_can_be_added(world: World) -> None:
    world.put(block())
    paused = world.last().block.replace(b"Nats-Schedule:", b"Nats-Schedule-X-Paused:")
    assert (await add(world.store, "S", "S.other", paused, b"body")).kind is Kind.ADDED
    assert (await world.found("S.other")).is_paused
    with pytest.raises(AlreadyExistsError):
        await add(world.store, "S", SUBJECT, paused, b"body")


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


async def test_an_edit_of_the_pattern_begins_anew(world: World) -> None:
    world.put(block("@every 1h"))
    world.after(600)
    change = await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule", b"@every 2h")]))
    assert (await world.found()).timetable().first_fire() == instant("2026-11-20T14:10:00Z")
    assert change.notes == ()


async def test_an_anchor_goes_with_the_grid_that_it_was_for(world: World) -> None:
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
        assert [found.code for found in change.findings] == [Code.DEFECT_INTERVAL_ROUNDED]


async def test_an_edit_of_a_paused_schedule_leaves_it_paused(world: World) -> None:
    world.put(block())
    await pause(world.store, "S", SUBJECT)
    change = await edit(world.store, "S", SUBJECT, Edit(set=[(b"Nats-Schedule", b"@every 1h")]))
    found = await world.found()
    assert (found.is_paused, found.pattern, change.notes) == (True, "@every 1h", (STAYS_PAUSED,))
    assert header_value(found.message.block, b"Nats-Schedule") is None


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


async def test_an_edit_of_another_version_than_expected_is_a_conflict(world: World) -> None:
    first = world.put(block())
    second = world.put(block("@every 1h"))
    with pytest.raises(ConflictError) as raised:
        await edit(world.store, "S", SUBJECT, Edit(body=b"new"), expected=first)
    assert raised.value.sequence == second


async def test_what_else_begins_anew_is_said() -> None:
    world = World(allow_msg_ttl=True)
    world.put(block("0 0 5 * * *", Nats_Schedule_X_Limit="3", Nats_TTL="1h"))
    change = await edit(world.store, "S", SUBJECT, Edit(body=b"new"))
    assert change.notes == ("X-Limit counts the fires from now on", "the Nats-TTL of the schedule begins anew")


async def test_a_schedule_that_has_a_message_id_can_be_edited(world: World) -> None:
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


async def test_a_dry_run_of_a_removal_asks_for_what_the_stream_lets_it_use() -> None:
    world = World(deny_purge=True)
    world.put(block())
    world.store.wire.forbidden.add("STREAM.PURGE.S")
    assert (await remove(world.store, "S", SUBJECT, dry_run=True)).kind is Kind.REMOVED
    world.store.wire.forbidden.add("STREAM.MSG.DELETE.S")
    with pytest.raises(ForbiddenError):
        await remove(world.store, "S", SUBJECT, dry_run=True)


# -- pause and resume ------------------------------------------------------------------------------------------------


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


async def test_the_phase_of_an_interval_survives_a_pause(world: World) -> None:
    world.put(block("@every 1h"))
    world.after(90)
    paused = await pause(world.store, "S", SUBJECT)
    assert paused.notes == ("Nats-Schedule-X-Anchor: 2026-11-20T13:00:00Z keeps its fire times",)
    world.after(10 * 3600)
    resumed = await resume(world.store, "S", SUBJECT)
    assert (await world.found()).timetable().first_fire() == instant("2026-11-20T23:00:00Z")
    assert resumed.notes == ()


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


async def test_a_pause_never_rolls_up_the_stream(world: World) -> None:
    """Such a schedule is rejected; a server up to 2.11 has stored it, after it has removed everything else."""
    sequence = world.put(block("@every 1h", Nats_Rollup="all"))
    with pytest.raises(NotPossibleError, match="a Nats-Rollup of 'all', which would remove other messages"):
        await pause(world.store, "S", SUBJECT, dry_run=True)
    with pytest.raises(NotPossibleError, match="which would remove other messages"):
        await pause(world.store, "S", SUBJECT)
    assert world.last().sequence == sequence


async def test_a_schedule_that_was_paused_by_hand_has_lost_its_phase(world: World) -> None:
    world.put(block("@every 1h").replace(b"Schedule:", b"Schedule-X-Paused:"))
    assert (await resume(world.store, "S", SUBJECT)).notes == (PHASE_LOST,)


async def test_a_time_that_has_passed_fires_at_once(world: World) -> None:
    world.put(block("@at 2026-11-20T12:30:00Z"))
    await pause(world.store, "S", SUBJECT)
    world.after(3600)
    assert (await resume(world.store, "S", SUBJECT, dry_run=True)).notes == (FIRES_AT_ONCE,)
    assert (await world.found()).is_paused
    assert (await resume(world.store, "S", SUBJECT)).notes == (FIRES_AT_ONCE,)


async def test_a_time_that_has_passed_is_dropped_on_request(world: World) -> None:
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


async def test_a_schedule_that_has_ended_meanwhile_is_not_resumed(world: World) -> None:
    world.put(block("@every 1h", Nats_Schedule_X_End="2026-11-20T20:00:00Z"))
    await pause(world.store, "S", SUBJECT)
    world.after(24 * 3600)
    with pytest.raises(RejectedError, match="X-End"):
        await resume(world.store, "S", SUBJECT)
    assert (await world.found()).is_paused


async def test_nothing_is_paused_or_resumed_twice(world: World) -> None:
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


async def test_a_version_that_is_not_expected_stays(world: World) -> None:
    sequence = world.put(block())
    with pytest.raises(ConflictError):
        await pause(world.store, "S", SUBJECT, expected=sequence + 1)
    await pause(world.store, "S", SUBJECT, expected=sequence)
    with pytest.raises(ConflictError):
        await resume(world.store, "S", SUBJECT, expected=sequence)
    await resume(world.store, "S", SUBJECT, expected=sequence + 1)


async def test_a_dry_run_says_what_a_pause_would_do(world: World) -> None:
    sequence = world.put(block("@every 1h"))
    change = await pause(world.store, "S", SUBJECT, dry_run=True)
    assert (change.kind, change.after, len(change.notes)) == (Kind.PAUSED, sequence, 1)
    assert (world.last().sequence, world.store.recorded) == (sequence, [])


async def test_a_rejected_schedule_can_be_paused_but_not_resumed(world: World) -> None:
    world.put(block("nonsense"))
    change = await pause(world.store, "S", SUBJECT)
    assert change.notes[0].startswith("it is rejected, paused or not")
    with pytest.raises(RejectedError):
        await resume(world.store, "S", SUBJECT)
