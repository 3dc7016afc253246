"""`pause`, `resume`, `rm`, `fire` and `backfill`: on one schedule, on what a wildcard matches, and on many.

What a sidecar does meanwhile is in `e2e/test_control.py`.

It tests `cli/changing.py` too.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from nats_scheduler.control.changes import Change, Kind
from nats_scheduler.control.each import FIRST_PAUSE_SECONDS, MAX_AT_ONCE, MAX_UNANSWERED, change_each
from nats_scheduler.control.errors import NotFoundError, UnknownOutcomeError
from nats_scheduler.control.pausing import pause
from nats_scheduler.control.store import ScheduleStore
from tests.cli.changing_site import Site
from tests.cli.prompt import FAR, NEVER, at_a_terminal
from tests.control.memory_schedules import Fault, MemorySchedules


async def test_a_schedule_is_paused_fired_and_resumed(orders: Site) -> None:
    before = await orders.publish("s", NEVER, X_Note="a note")
    original = await orders.headers("s")
    paused = await orders.run("pause", ".s", "--reason", "maintenance")
    done = f"{orders.subject('s')} paused: sequence {before + 1} in place of {before}\n"
    assert (paused.exit_code, paused.stdout) == (0, done)
    assert "Nats-Schedule-X-Paused" in await orders.headers("s")
    await orders.refuses(1, "is paused already", "pause", ".s")
    await orders.done("fire", ".s")
    assert len(await orders.fires()) == 1, "a paused schedule can be fired"
    resumed = await orders.done("resume", ".s")
    assert [one["change"] for one in resumed["changes"]] == ["resumed"]
    assert await orders.headers("s") == original


async def test_what_a_wildcard_matches_is_paused_resumed_and_removed(orders: Site) -> None:
    for rest in ("a.1", "a.2", "b.1"):
        await orders.publish(rest, NEVER)
    await orders.account.publish(orders.subject("a.3"), body=b"no schedule")
    await orders.done("pause", ".a.1")
    would = await orders.done("pause", ".a.*", "--dry-run")
    assert [each["subject"] for each in would["changes"]] == [orders.subject("a.2")]
    paused = await orders.run("pause", ".a.*", "--yes")
    assert paused.stdout.splitlines() == [f"{orders.subject('a.2')} paused: sequence 6 in place of 2"]
    await orders.refuses(1, "2 match, and each is paused already", "pause", ".a.*", "--yes")
    resumed = await orders.run("resume", ".>", "--yes")
    assert resumed.stdout.splitlines()[-1] == f"stream {orders.stream}: 2 resumed"
    removed = await orders.done("rm", ".>", "--yes")
    assert [each["subject"] for each in removed["changes"]] == [orders.subject(rest) for rest in ("a.1", "a.2", "b.1")]
    assert await orders.last("a.3") is not None
    await orders.refuses(1, "none matches", "rm", ".>", "--yes")


async def test_a_failure_of_one_does_not_stop_the_others(orders: Site, tmp_path: Path) -> None:
    for rest in ("a", "c"):
        await orders.publish(rest, NEVER)
    await orders.account.publish(orders.subject("b"), body=b"no schedule")
    file = tmp_path / "subjects"
    file.write_text("".join(f"{orders.subject(rest)}\n" for rest in ("a", "b", "gone", "c", "a")) + "\n")
    paused = await orders.run("pause", "--from-file", str(file), "--json")
    document = json.loads(paused.stdout)
    assert paused.exit_code == 1
    assert [one["subject"] for one in document["changes"]] == [orders.subject("a"), orders.subject("c")]
    errors = {one["subject"]: one["err_code"] for one in document["errors"]}
    assert errors == {orders.subject("b"): 10037, orders.subject("gone"): 10037}
    said = await orders.run("rm", "--from-file", str(file))
    assert said.exit_code == 1
    assert said.stdout.splitlines()[-1] == f"stream {orders.stream}: 2 removed, 2 failed"


@pytest.mark.parametrize(("answer", "code", "name"), [("y", 0, "-X-Paused"), ("n", 1, "")])
async def test_a_wildcard_is_counted_and_confirmed_on_a_terminal(
    orders: Site, tmp_path: Path, answer: str, code: int, name: str
) -> None:
    for rest in ("s.0", "s.1", "s.2", "other"):
        await orders.publish(rest, NEVER)
    command = ("pause", orders.stream, orders.subject("s.*"), "--server", orders.url)
    async with at_a_terminal(*command, folder=tmp_path) as terminal:
        await terminal.wait_for(f"pause 3 schedules of stream {orders.stream}? [y/N]")
        terminal.press(f"{answer}\n")
        assert await terminal.end() == code
    assert f"Nats-Schedule{name}" in await orders.headers("s.0")
    assert "Nats-Schedule" in await orders.headers("other")


# -- some at a time --------------------------------------------------------------------------------------------

NOW = 1_800_000_000_000_000_000
SUBJECTS = [f"S.{number:03}" for number in range(100)]


@pytest.fixture
def store() -> MemorySchedules:
    """A stream with a hundred schedules."""
    made = MemorySchedules(lambda: NOW)
    made.wire.add_stream({"name": "S", "subjects": ["S.>"], "allow_msg_schedules": True})
    block = f"NATS/1.0\r\nNats-Schedule: @at {FAR}\r\nNats-Schedule-Target: S.out\r\n\r\n".encode()
    for subject in SUBJECTS:
        made.wire.streams["S"].publish(subject, block, b"")
    return made


async def paused(store: ScheduleStore, subject: str) -> Change:
    return await pause(store, "S", subject)


async def test_each_is_changed_once_in_the_order_that_was_given(store: MemorySchedules) -> None:
    at_once = most = 0
    seen: list[int] = []
    all_begun = asyncio.Event()

    async def operation(subject: str) -> Change:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == MAX_AT_ONCE:
            all_begun.set()
        await all_begun.wait()
        at_once -= 1
        return await paused(store, subject)

    wanted = [*SUBJECTS[:3], "S.gone", *SUBJECTS[3:]][::-1]
    done = await change_each(wanted, operation, seen.append)
    assert list(done.changes) == SUBJECTS[::-1]
    assert {change.kind for change in done.changes.values()} == {Kind.PAUSED}
    assert [(subject, type(error)) for subject, error in done.failures.items()] == [("S.gone", NotFoundError)]
    assert (most, seen) == (MAX_AT_ONCE, [*range(1, 102)])
    assert (await change_each([], operation)).changes == {}


@pytest.mark.parametrize("fault", [Fault.NO_ANSWER, Fault.UNKNOWN_NOT_DONE])
async def test_what_is_left_is_not_tried_if_the_server_does_not_answer(store: MemorySchedules, fault: Fault) -> None:
    store.wire.faults.extend([fault] * 1_000)
    done = await change_each(SUBJECTS, partial(paused, store), silence_limit=FIRST_PAUSE_SECONDS)
    assert (done.changes, list(done.failures)) == ({}, SUBJECTS)
    not_tried = f"it was not tried, because the server has answered nothing for {FIRST_PAUSE_SECONDS} s"
    untried = [subject for subject, error in done.failures.items() if str(error) == not_tried]
    assert 0 < len(SUBJECTS) - len(untried) < MAX_UNANSWERED + MAX_AT_ONCE


async def test_what_was_not_answered_is_tried_again_or_reported(store: MemorySchedules) -> None:
    """More is unanswered in a row than ends the attempts, and then all is answered again."""
    silent = [Fault.NO_ANSWER, Fault.UNKNOWN_DONE, Fault.UNKNOWN_NOT_DONE]
    store.wire.faults.extend(silent * MAX_AT_ONCE)
    seen: list[int] = []
    tried: list[str] = []

    async def operation(subject: str) -> Change:
        tried.append(subject)
        return await paused(store, subject)

    done = await change_each(SUBJECTS, operation, seen.append)
    assert all(isinstance(error, UnknownOutcomeError) for error in done.failures.values()), done.failures
    assert len(done.changes) + len(done.failures) == len(SUBJECTS) == len(seen)
    assert len(done.failures) <= len(silent) * MAX_AT_ONCE
    repeated = {subject for subject in tried if tried.count(subject) > 1}
    assert repeated <= set(done.changes), "only what was not done for certain is tried again"
