"""The outcome of an unanswered edit is found out: it is done once, or reported as what nobody knows."""

import pytest

from nats_scheduler.control.changes import Kind
from nats_scheduler.control.edits import add, edit, pause, remove
from nats_scheduler.control.errors import (
    ConflictError,
    ForbiddenError,
    NoAnswerError,
    NotFoundError,
    NotPossibleError,
    RefusedError,
    RejectedError,
    ScheduleError,
    UnknownOutcomeError,
)
from nats_scheduler.control.fires import fire
from nats_scheduler.control.storing import MAX_ATTEMPTS, check_schedule, delete_message
from nats_scheduler.control.words import Edit
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from tests.control.memory_schedules import Fault
from tests.control.world import SUBJECT, World, block

SET = Edit(set=[(b"Count", b"1")])


@pytest.mark.parametrize("lost", [Fault.UNKNOWN_DONE, Fault.UNKNOWN_NOT_DONE])
@pytest.mark.parametrize("times", range(1, MAX_ATTEMPTS))
async def test_an_edit_whose_answer_is_lost_is_stored_once(lost: Fault, times: int) -> None:
    world = World()
    first = world.put(block())
    world.store.wire.faults.extend([lost] * times)
    change = await edit(world.store, "S", SUBJECT, SET)
    assert (change.before, change.after) == (first, first + 1)
    assert [one.sequence for one in world.stream.messages(SUBJECT)] == [first, first + 1]
    assert world.store.recorded == [change]


async def test_an_edit_that_is_never_answered_is_unknown() -> None:
    world = World()
    first = world.put(block())
    world.store.wire.faults.extend([Fault.UNKNOWN_NOT_DONE] * MAX_ATTEMPTS)
    with pytest.raises(UnknownOutcomeError):
        await edit(world.store, "S", SUBJECT, SET)
    assert world.last().sequence == first
    assert world.store.recorded == []


async def test_an_edit_that_another_one_may_have_replaced_is_unknown() -> None:
    world = World()
    world.put(block())
    world.store.wire.faults.append(Fault.UNKNOWN_NOT_DONE)
    world.store.wire.interruptions.extend([lambda: None, lambda: world.put(block("@every 1h"))])
    with pytest.raises(UnknownOutcomeError):
        await edit(world.store, "S", SUBJECT, SET)
    assert header_value(world.last().block, b"Nats-Schedule") == b"@every 1h", "the other edit stays"


@pytest.mark.parametrize("operation", [edit, pause, remove])
async def test_a_lost_race_is_a_conflict_and_loses_no_edit(operation: object) -> None:
    world = World()
    world.put(block())
    world.store.wire.interruptions.append(lambda: world.put(block("@every 1h")))
    more = (SET,) if operation is edit else ()
    with pytest.raises(ConflictError):
        await operation(world.store, "S", SUBJECT, *more)  # type: ignore[operator]
    assert header_value(world.last().block, b"Nats-Schedule") == b"@every 1h"
    assert world.store.recorded == []


@pytest.mark.parametrize("times", range(1, MAX_ATTEMPTS))
@pytest.mark.parametrize("operation", [edit, pause])
async def test_a_leader_that_is_behind_is_not_another_client(operation: object, times: int) -> None:
    world = World()
    world.put(block())
    more = (SET,) if operation is edit else ()
    world.store.wire.faults.extend([Fault.BEHIND] * MAX_ATTEMPTS)
    with pytest.raises(NoAnswerError, match="nobody changed it"):
        await operation(world.store, "S", SUBJECT, *more)  # type: ignore[operator]
    assert world.store.recorded == []
    world.store.wire.faults.extend([Fault.BEHIND] * times)
    assert (await operation(world.store, "S", SUBJECT, *more)).after == world.last().sequence  # type: ignore[operator]


@pytest.mark.parametrize("operation", [edit, pause, fire])
async def test_a_schedule_that_is_removed_meanwhile_is_a_conflict(operation: object) -> None:
    world = World()
    world.put(block())
    world.store.wire.interruptions.append(lambda: world.stream.purge(SUBJECT))
    more = (SET,) if operation is edit else ()
    with pytest.raises(ConflictError) as raised:
        await operation(world.store, "S", SUBJECT, *more)  # type: ignore[operator]
    assert raised.value.sequence == 0
    assert world.store.recorded == []


@pytest.mark.parametrize("operation", [edit, pause, fire])
async def test_a_leader_that_does_not_have_the_schedule_yet_is_not_another_client(
    operation: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.put(block())
    more = (SET,) if operation is edit else ()
    last, reads = world.store.last, 0

    async def behind(stream: str, subject: str) -> StoredMessage | None:
        nonlocal reads
        reads += 1
        return None if reads == 2 else await last(stream, subject)

    monkeypatch.setattr(world.store, "last", behind)
    world.store.wire.faults.append(Fault.BEHIND)
    assert (await operation(world.store, "S", SUBJECT, *more)).kind is not Kind.UNCHANGED  # type: ignore[operator]
    assert reads == 2


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault.REFUSED, RefusedError), (Fault.FORBIDDEN, ForbiddenError), (Fault.NO_ANSWER, NoAnswerError)],
)
@pytest.mark.parametrize("operation", [edit, pause, remove, add])
async def test_what_is_refused_changes_nothing(operation: object, fault: Fault, error: type[ScheduleError]) -> None:
    world = World()
    before = None if operation is add else world.put(block())
    world.store.wire.faults.append(fault)
    more = {edit: (SET,), add: (block(), b"body")}.get(operation, ())  # type: ignore[call-overload]
    with pytest.raises(error):
        await operation(world.store, "S", SUBJECT, *more)  # type: ignore[operator]
    last = world.stream.last(SUBJECT)
    assert (None if last is None else last.sequence) == before
    assert world.store.recorded == []


@pytest.mark.parametrize("lost", [Fault.UNKNOWN_DONE, Fault.UNKNOWN_NOT_DONE])
async def test_a_removal_whose_answer_is_lost_is_done(lost: Fault) -> None:
    world = World()
    world.put(block("@every 1h"))
    world.put(block())
    world.store.wire.faults.append(lost)
    change = await remove(world.store, "S", SUBJECT)
    assert change.kind is Kind.REMOVED
    assert world.stream.last(SUBJECT) is None


@pytest.mark.parametrize("error", [Fault.REFUSED, Fault.FORBIDDEN, Fault.NO_ANSWER])
@pytest.mark.parametrize("operation", [edit, pause, remove, fire])
async def test_after_an_answer_that_was_lost_no_error_says_that_nothing_was_done(
    operation: object, error: Fault
) -> None:
    for is_read in (True, False):
        world = World()
        world.put(block())
        world.store.wire.faults.append(Fault.UNKNOWN_NOT_DONE)
        if is_read and operation is not fire:
            world.store.wire.read_faults.extend([None, error])
        else:
            world.store.wire.faults.append(error)
        more = (SET,) if operation is edit else ()
        with pytest.raises(UnknownOutcomeError):
            await operation(world.store, "S", SUBJECT, *more)  # type: ignore[operator]


async def test_what_an_interest_stream_does_not_store_is_not_reported_as_stored() -> None:
    world = World(retention="interest")
    with pytest.raises(NotPossibleError, match="needs a consumer"):
        await add(world.store, "S", SUBJECT, block(), b"")
    assert world.store.recorded == []
    world.stream.add_consumer("c", SUBJECT)
    assert (await add(world.store, "S", SUBJECT, block(), b"")).kind is Kind.ADDED


async def test_a_removal_after_another_one_finds_nothing() -> None:
    world = World()
    world.put(block())
    found = world.last()
    world.stream.purge(SUBJECT)
    with pytest.raises(NotFoundError):
        await delete_message(world.store, "S", found)


async def test_a_removal_that_is_never_answered_is_unknown() -> None:
    world = World()
    world.put(block())
    world.store.wire.faults.extend([Fault.UNKNOWN_NOT_DONE] * MAX_ATTEMPTS)
    with pytest.raises(UnknownOutcomeError):
        await remove(world.store, "S", SUBJECT)


async def test_a_removal_that_is_not_answered_leaves_a_later_edit() -> None:
    world = World()
    world.put(block())
    world.store.wire.faults.append(Fault.UNKNOWN_NOT_DONE)
    world.store.wire.interruptions.append(lambda: world.put(block("@every 1h")))
    with pytest.raises(ConflictError):
        await remove(world.store, "S", SUBJECT)
    assert header_value(world.last().block, b"Nats-Schedule") == b"@every 1h"


@pytest.mark.parametrize("subject", ["S.*", "S.>", "S..s", ""])
async def test_a_subject_that_is_none_is_refused(subject: str) -> None:
    world = World()
    with pytest.raises(NotPossibleError, match="literal"):
        await add(world.store, "S", subject, block(), b"")


async def test_a_subject_of_another_stream_is_refused() -> None:
    world = World()
    with pytest.raises(NotPossibleError, match="not a subject of stream S"):
        await add(world.store, "S", "other.s", block(), b"")


async def test_a_stream_that_moves_messages_is_refused() -> None:
    world = World(subject_transform={"src": "S.>", "dest": "T.>"})
    with pytest.raises(NotPossibleError, match="subject_transform"):
        await add(world.store, "S", SUBJECT, block(), b"")


async def test_a_message_that_is_no_schedule_is_refused() -> None:
    served = await World().store.served("S")
    with pytest.raises(NotPossibleError, match="no Nats-Schedule"):
        check_schedule(served, SUBJECT, b"NATS/1.0\r\nA: 1\r\n\r\n", b"", 0)


async def test_a_message_that_would_be_rejected_is_refused_with_the_servers_code() -> None:
    served = await World().store.served("S")
    with pytest.raises(RejectedError) as raised:
        check_schedule(served, SUBJECT, block(Nats_Schedule_TTL="5m"), b"", 0)
    assert raised.value.code == 10166
