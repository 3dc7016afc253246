"""A program exports, compares and applies files of schedules as the commands do.

It tests `control/exported.py` too.
"""

import json
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from nats_scheduler.client import (
    Action,
    Author,
    Diff,
    InvalidFileError,
    Kind,
    PartlyAppliedError,
    Schedule,
    at,
    every,
)
from nats_scheduler.client.files import Applied, apply_plan, export_text, planned
from nats_scheduler.control.errors import ConflictError
from nats_scheduler.control.plan import Plan
from nats_scheduler.control.words import publishable_again
from nats_scheduler.message.identity import fire_identity
from tests.client.conftest import Connect
from tests.client.worlds import FAR, entered
from tests.conftest import SharedServer
from tests.control.world import NEVER, World, block, fire_block, instant
from tests.harness.servers import V2_11, V2_15

TEXT = f"""\
stream: S
schedules:
  - subject: S.a
    at: "{NEVER.removeprefix("@at ")}"
    target: S.out
    body: body
  - subject: S.b
    every: 5m
    target: S.out
    policies:
      owner: ops
"""


PAST = "@at 2026-11-20T11:59:00Z"

ME = Author("tests", "why")


async def diff_text(
    world: World, text: str = TEXT, owner: str | None = None, *, prune: bool = False, take_over: bool = False
) -> Plan:
    return (await planned(world.store, "S", text, owner, prune=prune, takes_over=take_over))[1]


async def apply_text(
    world: World, text: str = TEXT, owner: str | None = None, *, prune: bool = False, take_over: bool = False
) -> Applied:
    served, diff = await planned(world.store, "S", text, owner, prune=prune, takes_over=take_over)
    return await apply_plan(world.store, served, diff, ME)


def stored(world: World) -> dict[str, tuple[bytes, bytes]]:
    """Return the last message on each of some subjects, without what belongs to the publishes."""
    found = {subject: world.stream.last(subject) for subject in ("S.a", "S.b", "S.c", "S.d")}
    return {subject: (publishable_again(one.block), one.body or b"") for subject, one in found.items() if one}


def said(one: Schedule) -> tuple[object, ...]:
    """Return what a program has said of a schedule; not what was added to publish it."""
    own = [header for header in one.form.headers if not header[0].startswith("Nats-")]
    return one.pattern, one.target, one.form.rollup, one.spelling, one.body, one.is_paused, own


def actions(diff: Diff) -> dict[str, Action]:
    return {step.subject: step.action for step in diff.steps}


@pytest.mark.parametrize("form", ["yaml", "json"])
async def test_an_export_has_what_was_asked_for_and_is_applied_as_it_is(form: Any) -> None:
    world, empty = World(), World()
    world.put(block(Nats_Schedule_X_Owner="ops"), b"\xff\x00", "S.a")
    world.put(block(Träce="é"), "größer\n".encode(), "S.b")
    world.put(block("never"), b"", "S.c")
    found = await export_text(world.store, "S", ">", None, form)
    assert await export_text(world.store, "S", ">", None, form) == found, "the same schedules give the same text"
    [(subject, reason)] = found.left_out
    assert (subject, "'never'" in reason) == ("S.c", True)
    applied = await apply_text(empty, found.text)
    assert {one.subject: one.kind for one in applied.changes} == dict.fromkeys(("S.a", "S.b"), Kind.ADDED)
    assert stored(empty) == {name: message for name, message in stored(world).items() if name != "S.c"}
    again = await apply_text(empty, found.text)
    assert (again.changes, again.diff.steps, again.diff.unchanged) == ((), (), 2)
    document = json.loads((await export_text(world.store, "S", ">", "ops", "json")).text)
    assert (document["owner"], [one["subject"] for one in document["schedules"]]) == ("ops", ["S.a"])
    with pytest.raises(ValueError, match="expected 'yaml' or 'json'"):
        await export_text(world.store, "S", ">", None, "toml")  # type: ignore[arg-type]


async def test_a_schedule_that_has_fired_is_absent_from_the_plan() -> None:
    world = World()
    fired = {subject: world.put(block(PAST, Nats_Schedule_X_Owner="ops"), b"", subject) for subject in ("S.a", "S.c")}
    waiting = world.put(block(PAST, Nats_Schedule_X_Owner="ops"), b"", "S.d")
    for subject, sequence in fired.items():
        world.put(fire_block(fire_identity(subject, sequence, instant(PAST[4:])), schedule=subject), subject="S.out")
    served, diff = await planned(world.store, "S", TEXT, "ops", prune=True, takes_over=False)
    assert actions(diff) == {"S.a": Action.ADD, "S.b": Action.ADD, "S.d": Action.REMOVE}
    assert [step.expected for step in diff.steps] == [fired["S.a"], 0, waiting]
    applied = await apply_plan(world.store, served, diff, ME)
    assert [one.kind for one in applied.changes] == [Kind.ADDED, Kind.ADDED, Kind.REMOVED]
    assert world.last("S.a").body == b"body"


async def test_all_that_is_wrong_is_named_and_nothing_is_done() -> None:
    world, soon = World(), TEXT.replace("every: 5m", "every: soon")
    for text, problems in (
        ("a: [", ["line 2: is no YAML: "]),
        ("stream: T\nschedules: []\n", ["line 1: stream of 'T': expected 'S', the stream of these schedules"]),
        (
            soon.replace("target: S.out\n    body", "target: out\n    body"),
            ["line 5: S.a: Nats-Schedule-Target of 'out'", "line 8: S.b: Nats-Schedule of '@every soon'"],
        ),
    ):
        for is_applied in (False, True):
            with pytest.raises(InvalidFileError) as raised:
                await (apply_text(world, text) if is_applied else diff_text(world, text))
            found = list(map(str, raised.value.problems))
            assert [one.startswith(two) for one, two in zip(found, problems, strict=True)] == [True] * len(found), found
            assert str(raised.value) == "\n".join(found)
    assert stored(world) == {}
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"prune": True}, ValueError),
        ({"owner": " "}, ValueError),
        ({"text": b"stream: S"}, TypeError),
    ]
    for given, error in wrong:
        with pytest.raises(error):
            await diff_text(world, **given)


async def test_what_another_client_changes_meanwhile_is_named() -> None:
    world = World()
    world.store.wire.interruptions.append(lambda: world.put(block("@daily"), b"theirs", "S.a"))
    with pytest.raises(PartlyAppliedError) as raised:
        await apply_text(world)
    error = raised.value
    assert (list(error.errors), type(error.errors["S.a"])) == (["S.a"], ConflictError)
    assert str(error) == "S.a: another client changed it at the same time"
    assert [one.subject for one in error.applied.changes] == ["S.b"]
    assert world.last("S.a").body == b"theirs"
    again = await apply_text(world)
    assert [(one.subject, one.kind) for one in again.changes] == [("S.a", Kind.EDITED)]


@pytest.mark.parametrize(("version", "sidecar"), [(V2_11, True), (V2_15, False)])
async def test_a_program_moves_schedules_by_a_file(
    shared_server: SharedServer, stream_name: str, connect: Connect, version: str, sidecar: bool
) -> None:
    async with AsyncExitStack() as stack:
        url = (await shared_server(version)).url
        world = await entered(stack, url, stream_name, connect, sidecar=sidecar)
        schedules, out = world.schedules, world.subject("out")
        await schedules.create(world.subject("a"), at(FAR), bytes(range(256)), target=out, headers={"Trace": "a"})
        await schedules.create(world.subject("b"), every(timedelta(hours=9000)), b"b", target=out, rollup=True)
        await schedules.pause(world.subject("b"))
        found = await schedules.export(form="json")
        before = {one.subject: said(one) async for one in schedules.list()}
        assert (len(before), found.left_out) == (2, ())
        assert (await schedules.diff(found.text)).unchanged == 2
        await world.account.api.call(f"STREAM.PURGE.{world.stream}")
        dry = await schedules.apply(found.text, owner="ops", dry_run=True)
        assert (len(dry.diff.steps), dry.changes) == (2, ())
        assert [one.subject async for one in schedules.list()] == []
        applied = await schedules.apply(found.text, reason="moved")
        assert [(one.kind, one.author.name, one.author.reason) for one in applied.changes] == [
            (Kind.ADDED, "tests", "moved")
        ] * 2
        after = {one.subject: said(one) async for one in schedules.list()}
        assert after == before
        assert (await schedules.apply(found.text)).changes == ()
        await schedules.apply(found.text, owner="ops")
        rest = json.dumps({"stream": world.stream, "owner": "ops", "schedules": []})
        pruned = await schedules.apply(rest, prune=True)
        assert [one.kind for one in pruned.changes] == [Kind.REMOVED] * 2
        assert [one.subject async for one in schedules.list()] == []
