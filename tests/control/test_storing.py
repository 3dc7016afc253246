"""The outcome of an unanswered edit is found out: it is done once, or reported as what nobody knows."""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.control.anchor import with_phase
from nats_scheduler.control.changes import Change, Kind
from nats_scheduler.control.current import read_current
from nats_scheduler.control.edits import add, edit, remove
from nats_scheduler.control.errors import (
    ConflictError,
    ForbiddenError,
    NoAnswerError,
    NotPossibleError,
    RefusedError,
    SchedulerError,
    UnknownOutcomeError,
)
from nats_scheduler.control.fire_requests import fire
from nats_scheduler.control.pausing import pause
from nats_scheduler.control.store_port import Served
from nats_scheduler.control.storing import MAX_ATTEMPTS
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from tests.control.memory_schedules import Fault
from tests.control.world import SUBJECT, World, block
from tests.harness.seeds import draws

SET = Edit(set=[(b"Count", b"1")])


Operation = Callable[..., Awaitable[Change]]
OPERATIONS: dict[Operation, tuple[Any, ...]] = {edit: (SET,), pause: (), fire: (), remove: ()}
"""What changes a schedule, and the arguments after its subject."""
UNLIKE_REMOVAL: tuple[Operation, ...] = (edit, pause, fire)


async def test_an_edit_whose_answer_is_lost_is_stored_once() -> None:
    for lost in (Fault.UNKNOWN_DONE, Fault.UNKNOWN_NOT_DONE):
        for times in range(1, MAX_ATTEMPTS):
            world = World()
            first = world.put(block())
            world.store.wire.faults.extend([lost] * times)
            change = await edit(world.store, "S", SUBJECT, SET)
            assert (change.before, change.after) == (first, first + 1)
            assert [one.sequence for one in world.stream.messages(SUBJECT)] == [first, first + 1]
            assert world.store.recorded == [change]


async def test_what_is_never_answered_is_unknown() -> None:
    for operation, more in OPERATIONS.items():
        world = World()
        first = world.put(block())
        world.store.wire.faults.extend([Fault.UNKNOWN_NOT_DONE] * MAX_ATTEMPTS)
        with pytest.raises(UnknownOutcomeError):
            await operation(world.store, "S", SUBJECT, *more)
        assert (world.last().sequence, world.store.recorded) == (first, [])


async def test_an_edit_that_another_one_may_have_replaced_is_unknown(world: World) -> None:
    world.put(block())
    world.store.wire.faults.append(Fault.UNKNOWN_NOT_DONE)
    world.store.wire.interruptions.extend([lambda: None, lambda: world.put(block("@every 1h"))])
    with pytest.raises(UnknownOutcomeError):
        await edit(world.store, "S", SUBJECT, SET)
    assert header_value(world.last().block, b"Nats-Schedule") == b"@every 1h", "the other edit stays"


async def test_a_lost_race_is_a_conflict_and_loses_no_edit() -> None:
    for operation, more in OPERATIONS.items():
        world = World()
        world.put(block())
        world.store.wire.interruptions.append(partial(world.put, block("@every 1h")))
        with pytest.raises(ConflictError):
            await operation(world.store, "S", SUBJECT, *more)
        assert header_value(world.last().block, b"Nats-Schedule") == b"@every 1h"
        assert (world.store.recorded, len(list(world.stream.messages("S.out")))) == ([], 0)


async def test_a_leader_that_is_behind_is_not_another_client() -> None:
    for operation in UNLIKE_REMOVAL:
        for times in range(1, MAX_ATTEMPTS):
            world, more = World(), OPERATIONS[operation]
            world.put(block())
            world.store.wire.faults.extend([Fault.BEHIND] * MAX_ATTEMPTS)
            with pytest.raises(NoAnswerError, match="nobody changed it"):
                await operation(world.store, "S", SUBJECT, *more)
            assert world.store.recorded == []
            world.store.wire.faults.extend([Fault.BEHIND] * times)
            change = await operation(world.store, "S", SUBJECT, *more)
            assert (change.after, world.store.recorded) == (world.last().sequence, [change])


REFUSALS: dict[Fault, type[SchedulerError]] = {
    Fault.REFUSED: RefusedError,
    Fault.FORBIDDEN: ForbiddenError,
    Fault.NO_ANSWER: NoAnswerError,
}


async def test_what_is_refused_changes_nothing() -> None:
    for fault, error in REFUSALS.items():
        for operation, more in {**OPERATIONS, add: (block(), b"body")}.items():
            world = World()
            before = None if operation is add else world.put(block())
            world.store.wire.faults.append(fault)
            with pytest.raises(error):
                await operation(world.store, "S", SUBJECT, *more)
            last = world.stream.last(SUBJECT)
            assert (None if last is None else last.sequence) == before
            assert world.store.recorded == []


async def test_a_removal_whose_answer_is_lost_is_done() -> None:
    for lost in (Fault.UNKNOWN_DONE, Fault.UNKNOWN_NOT_DONE):
        world = World()
        world.put(block("@every 1h"))
        world.put(block())
        world.store.wire.faults.append(lost)
        assert (await remove(world.store, "S", SUBJECT)).kind is Kind.REMOVED
        assert world.stream.last(SUBJECT) is None


async def test_after_a_lost_answer_no_error_says_nothing_was_done() -> None:
    for (operation, more), fault, is_read in product(OPERATIONS.items(), REFUSALS, (True, False)):
        world = World()
        world.put(block())
        world.store.wire.faults.append(Fault.UNKNOWN_NOT_DONE)
        if is_read and operation is not fire:
            world.store.wire.read_faults.extend([None, fault])
        else:
            world.store.wire.faults.append(fault)
        with pytest.raises(UnknownOutcomeError):
            await operation(world.store, "S", SUBJECT, *more)


async def test_an_interest_stream_stores_nothing_without_a_consumer() -> None:
    world = World(retention="interest")
    with pytest.raises(NotPossibleError, match="needs a consumer"):
        await add(world.store, "S", SUBJECT, block(), b"")
    assert world.store.recorded == []
    world.stream.add_consumer("c", SUBJECT)
    assert (await add(world.store, "S", SUBJECT, block(), b"")).kind is Kind.ADDED


async def test_what_is_due_already_may_have_fired_before_it_is_looked_for() -> None:
    past = block("@at 2026-11-20T11:00:00Z")
    for words, is_due in ((past, True), (paused_block(past, ADR51), False), (block(), False)):
        world = World(retention="workqueue")
        world.store.wire.unseen.extend([False, True])
        if is_due:
            assert (await add(world.store, "S", SUBJECT, words, b"")).kind is Kind.ADDED
        else:
            with pytest.raises(NotPossibleError, match="needs a consumer"):
                await add(world.store, "S", SUBJECT, words, b"")


async def test_a_removal_that_is_not_answered_leaves_a_later_edit(world: World) -> None:
    world.put(block())
    world.store.wire.faults.append(Fault.UNKNOWN_NOT_DONE)
    world.store.wire.interruptions.append(lambda: world.put(block("@every 1h")))
    with pytest.raises(ConflictError):
        await remove(world.store, "S", SUBJECT)
    assert header_value(world.last().block, b"Nats-Schedule") == b"@every 1h"


async def test_a_subject_that_is_none_or_of_another_stream_is_refused(world: World) -> None:
    for subject in ("S.*", "S.>", "S..s", ""):
        with pytest.raises(NotPossibleError, match="literal"):
            await add(world.store, "S", subject, block(), b"")
    with pytest.raises(NotPossibleError, match="not a subject of stream S"):
        await add(world.store, "S", "other.s", block(), b"")


# -- a schedule that is stored again keeps its fire times ----------------------------------------------------------

SERVED = Served(StreamRules("S", ("S.>",)), (ADR51,), is_native=False)
STORED_AT = 1_790_000_000 * SECOND


@settings(max_examples=draws(40))
@given(
    st.integers(1_000, 10_000_000),
    st.integers(0, 2 * SECOND),
    st.integers(0, 10**7 * SECOND),
    st.lists(st.integers(SECOND, 10**7 * SECOND), max_size=3),
)
def test_the_grid_survives_any_number_of_edits(
    interval_ms: int, fraction: int, asked_after: int, edits_after: list[int]
) -> None:
    stored_at = STORED_AT + fraction
    message = StoredMessage(SUBJECT, 1, stored_at, block(f"@every {interval_ms}ms"), b"")
    first = read_current(message, SERVED)
    assert first is not None
    for after in sorted(edits_after):
        found = read_current(message, SERVED)
        assert found is not None
        again, _notes = with_phase(found, message.block)
        message = message._replace(block=again, sequence=message.sequence + 1, stored_at=stored_at + after + 1)
    last = read_current(message, SERVED)
    assert last is not None
    at = max(stored_at + asked_after, message.stored_at)
    expected = first.timetable().next_fire(at)
    assert last.timetable().next_fire(at) == expected
    assert expected is not None
    assert expected - at <= interval_ms * MILLISECOND + SECOND
