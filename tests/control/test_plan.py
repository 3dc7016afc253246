"""The plan of applying files: nothing that is not needed, nothing to what is another's, and all faults first."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.control.carrying_out import carry_out
from nats_scheduler.control.declared import Declared, Readable
from nats_scheduler.control.errors import ConflictError
from nats_scheduler.control.pausing import pause
from nats_scheduler.control.plan import Action, Difference, Plan, planning
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.policies import PolicyText
from nats_scheduler.message.schedule_form import ScheduleForm
from tests.control.memory_schedules import Fault
from tests.control.world import NEVER, SUBJECT, World, block
from tests.harness.blocks import block_of
from tests.harness.hiding import HIDES, HIDING
from tests.harness.seeds import draws

HOURLY = Readable(ScheduleForm("@every 1h", target="S.out"))


def declared(
    content: Any = HOURLY, subject: str = SUBJECT, body: bytes = b"body", paused: bool | None = None
) -> Declared:
    return Declared(subject, content, body, paused)


def owned(content: Readable, owner: str) -> Readable:
    return replace(content, form=replace(content.form, policies=(PolicyText("X-Owner", owner),)))


def hourly(**changes: Any) -> Readable:
    return replace(HOURLY, form=replace(HOURLY.form, **changes))


async def planned(world: World, *some: Declared, **how: Any) -> Plan:
    served = await world.store.served("S")
    stored = {message.subject: message async for message in world.store.schedules("S", ">")}
    for one in some:
        message = await world.store.last("S", one.subject)
        if message is not None:
            stored[one.subject] = message
    return planning(some, stored, served, now=world.time, **how)


async def applied(world: World, *some: Declared, **how: Any) -> Plan:
    """Carry out a plan, and return the one that is left."""
    plan = await planned(world, *some, **how)
    assert plan.faults == ()
    served = await world.store.served("S")
    for step in plan.steps:
        await carry_out(world.store, served, step)
    return await planned(world, *some, **how)


def actions(plan: Plan) -> list[tuple[Action, str]]:
    return [(step.action, step.subject) for step in plan.steps]


NOTHING = Plan("S", unchanged=1)


async def test_what_is_missing_is_added_and_then_nothing_is_to_do(world: World) -> None:
    assert actions(await planned(world, declared())) == [(Action.ADD, SUBJECT)]
    assert await applied(world, declared()) == NOTHING
    assert world.last().body == b"body"
    sequence = world.last().sequence
    assert await applied(world, declared()) == NOTHING
    assert world.last().sequence == sequence, "nothing was stored the second time"


async def test_a_change_shows_each_header_before_and_after() -> None:
    world = World(allow_msg_ttl=True)
    world.put(block_of(("Nats-Schedule", "@every 2h"), ("Nats-Schedule-Target", "S.out"), ("A", "1"), ("A", "2")))
    wanted = declared(hourly(ttl="5m", headers=(("A", "2"), ("A", "1"))), body=b"other", paused=True)
    [step] = (await planned(world, wanted)).steps
    assert (step.action, step.expected) == (Action.REPLACE, world.last().sequence)
    assert step.differences == (
        Difference("Nats-Schedule", (b"@every 2h",), (b"@every 1h",)),
        Difference("Nats-Schedule-TTL", (), (b"5m",)),
        Difference("A", (b"1", b"2"), (b"2", b"1")),
        Difference("body", (b"body",), (b"other",)),
        Difference("paused", (b"false",), (b"true",)),
    )
    assert await applied(world, wanted) == NOTHING


# -- fire times ------------------------------------------------------------------------------------------------------


async def test_another_body_or_other_words_keep_the_grid(world: World) -> None:
    await applied(world, declared())
    before = await world.found()
    for content, body in ((HOURLY, b"other"), (HOURLY, b"third"), (hourly(pattern="@every 60m"), b"third")):
        world.after(600.2)
        assert await applied(world, declared(content, body=body)) == NOTHING
        found = await world.found()
        assert (found.pattern, found.message.body) == (content.form.pattern, body)
        assert found.timetable().first_fire() == before.timetable().first_fire()


async def test_a_time_that_has_passed_is_not_added_again(world: World) -> None:
    at, end = "2026-11-20T12:00:00Z", "2026-11-20T12:00:00Z"
    past = declared(hourly(pattern=f"@at {at}"))
    ended = declared(hourly(policies=(PolicyText("X-End", end),)), "S.ended")
    plan = await planned(world, past, ended)
    assert (plan.steps, plan.faults, plan.ended) == ((), (), ("S.ended", SUBJECT))
    stored = await planned(world, replace(past, paused=True))
    assert actions(stored) == [(Action.ADD, SUBJECT)], "a paused one does not fire"
    world.put(block(f"@at {at}"), b"other")
    assert actions(await planned(world, past)) == [(Action.REPLACE, SUBJECT)], "it is there and has not fired"


# -- paused ----------------------------------------------------------------------------------------------------------


async def test_what_an_operator_paused_stays_paused() -> None:
    for paused in (None, True):
        world = World()
        await applied(world, declared())
        await pause(world.store, "S", SUBJECT)
        assert await planned(world, declared(paused=paused)) == NOTHING
        assert await applied(world, declared(body=b"other", paused=paused)) == NOTHING
        assert (await world.found()).is_paused


async def test_what_is_added_as_paused_is_stored_so(world: World) -> None:
    assert await applied(world, declared(paused=True)) == NOTHING
    assert (await world.found()).is_paused


async def test_the_file_pauses_and_resumes_if_it_says_so(world: World) -> None:
    await applied(world, declared())
    due = (await world.found()).timetable().first_fire()
    world.after(60)
    [step] = (await planned(world, declared(paused=True))).steps
    assert (step.action, step.differences) == (Action.PAUSE, (Difference("paused", (b"false",), (b"true",)),))
    assert await applied(world, declared(paused=True)) == NOTHING
    assert (await world.found()).is_paused
    world.after(60)
    [step] = (await planned(world, declared(paused=False))).steps
    assert (step.action, step.differences) == (Action.RESUME, (Difference("paused", (b"true",), (b"false",)),))
    assert await applied(world, declared(paused=False)) == NOTHING
    found = await world.found()
    assert (found.is_paused, found.timetable().first_fire()) == (False, due)


# -- owners ----------------------------------------------------------------------------------------------------------


async def test_only_the_owners_own_schedules_are_pruned(world: World) -> None:
    for name, owner in (("a", "billing"), ("b", "ops"), ("c", "billing")):
        world.put(block(Nats_Schedule_X_Owner=owner), subject=f"S.{name}")
    world.put(block(), subject="S.d")
    await pause(world.store, "S", "S.c")
    kept = await planned(world, declared(), owner="billing")
    assert (actions(kept), kept.unlisted) == ([(Action.ADD, SUBJECT)], 2)
    pruned = await planned(world, declared(), owner="billing", prune=True, kept=frozenset({"S.a"}))
    assert actions(pruned) == [(Action.REMOVE, "S.c"), (Action.ADD, SUBJECT)]
    await applied(world, declared(), owner="billing", prune=True)
    assert {message.subject async for message in world.store.schedules("S", ">")} == {"S.b", "S.d", SUBJECT}


async def test_a_schedule_of_another_owner_is_left_as_it_is(world: World) -> None:
    world.put(block(Nats_Schedule_X_Owner="ops"))
    for owner in (None, "billing"):
        plan = await planned(world, declared(), owner=owner)
        assert (plan.steps, [fault.text for fault in plan.faults]) == (
            (),
            ["it belongs to the owner 'ops': expected this owner here, or --take-over (take_over)"],
        )
        assert actions(await planned(world, declared(), owner=owner, takes_over=True)) == [(Action.REPLACE, SUBJECT)]


# -- faults ----------------------------------------------------------------------------------------------------------


async def test_what_would_be_rejected_is_a_fault_with_the_servers_code() -> None:
    wrong: list[tuple[Any, str, int | None, str]] = [
        (hourly(pattern="@often"), "Nats-Schedule", 10189, "Nats-Schedule of '@often' is not a valid pattern"),
        (hourly(target="other"), "Nats-Schedule-Target", 10190, "is not a subject of stream 'S'"),
        (hourly(ttl="5m"), "Nats-Schedule-TTL", 10166, "which has no message TTLs"),
        (owned(HOURLY, ""), "Nats-Schedule-X-Owner", None, "is empty: expected a text"),
        (Readable(ScheduleForm("")), "", None, "it would be no schedule"),
        (b"NATS/1.0\r\n\r\n", "", None, "it would be no schedule"),
    ]
    for content, header, code, text in wrong:
        plan = await planned(World(), declared(), declared(content, "S.wrong"))
        [fault] = plan.faults
        assert (fault.subject, fault.header, fault.code) == ("S.wrong", header, code), fault
        assert text in fault.text
        assert actions(plan) == [(Action.ADD, SUBJECT)]
    for subject in ("elsewhere", "S.*", "S..s"):
        [fault] = (await planned(World(), declared(subject=subject))).faults
        assert fault.subject == subject, "the stream does not have it"


async def test_a_value_that_hides_a_header_is_a_fault() -> None:
    form = HIDING["subjects"]
    for content in (block_of(*form.items(ADR51)), Readable(form)):
        [fault] = (await planned(World(allow_msg_ttl=True), declared(content))).faults
        assert re.search(f"^{fault.header}{HIDES}", fault.text), fault


async def test_an_ordinary_message_is_not_overwritten(world: World) -> None:
    world.put(b"", b"an order")
    [fault] = (await planned(world, declared())).faults
    assert "no schedule is stored there" in fault.text


# -- other clients, and what goes wrong ------------------------------------------------------------------------------


async def test_the_edit_of_another_client_is_not_lost() -> None:
    for exists in (True, False):
        world = World()
        if exists:
            world.put(block("@every 2h"))
        [step] = (await planned(world, declared())).steps
        world.put(block("@every 3h"))
        with pytest.raises(ConflictError):
            await carry_out(world.store, await world.store.served("S"), step)
        assert (await world.found()).pattern == "@every 3h"


@settings(max_examples=draws(20))
@given(st.lists(st.sampled_from([None, *Fault]), max_size=4), st.integers(0, 3))
async def test_whatever_goes_wrong_another_apply_finishes(faults: list[Fault | None], done: int) -> None:
    world = World()
    world.put(block("@every 2h", Nats_Schedule_X_Owner="me"), subject="S.changed")
    world.put(block(NEVER, Nats_Schedule_X_Owner="me"), subject="S.gone")
    some = [declared(subject="S.added"), declared(subject="S.changed")]
    how: dict[str, Any] = {"owner": "me", "prune": True}
    served = await world.store.served("S")
    world.store.wire.faults.extend(faults)
    for step in (await planned(world, *some, **how)).steps[:done]:  # then it was killed
        try:
            await carry_out(world.store, served, step)
        except Exception:  # noqa: S112 - it is reported, and the others are done
            continue
    world.store.wire.faults.clear()
    assert await applied(world, *some, **how) == Plan("S", unchanged=2)
