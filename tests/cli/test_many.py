"""`pause`, `resume`, `rm`, `fire` and `backfill`: on one schedule, on what a wildcard matches, and on many.

What a sidecar does meanwhile is in `e2e/test_control.py`.

It tests `cli/changing.py` too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
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
from tests.conftest import StartServer
from tests.control.memory_schedules import Fault, MemorySchedules
from tests.harness.account import account_on
from tests.harness.flagged import FLAG
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually, time_reached

PAST = "2020-01-01T00:00:00Z"


async def test_a_schedule_is_paused_and_resumed_byte_for_byte(site: Site) -> None:
    before = await site.publish("s", NEVER, X_Note="a note")
    original = await site.headers("s")
    paused = await site.run("pause", ".s", "--reason", "maintenance")
    done = f"{site.subject('s')} paused: sequence {before + 1} in place of {before}\n"
    assert (paused.exit_code, paused.stdout) == (0, done)
    assert f"{site.x}-X-Paused" in await site.headers("s")
    await site.refuses(1, "is paused already", "pause", ".s")
    await site.done("fire", ".s")
    assert len(await site.fires()) == 1, "a paused schedule can be fired"
    resumed = await site.done("resume", ".s")
    assert [one["change"] for one in resumed["changes"]] == ["resumed"]
    assert await site.headers("s") == original
    await site.refuses(1, "is not paused", "resume", ".s")


async def test_what_a_wildcard_matches_is_paused_resumed_and_removed(site: Site) -> None:
    for rest in ("a.1", "a.2", "b.1"):
        await site.publish(rest, NEVER)
    await site.account.publish(site.subject("a.3"), body=b"no schedule")
    for command in ("pause", "resume", "rm"):
        await site.refuses(2, "--yes is needed", command, ".>")
    await site.done("pause", ".a.1")
    would = await site.done("pause", ".a.*", "--dry-run")
    assert [each["subject"] for each in would["changes"]] == [site.subject("a.2")]
    paused = await site.run("pause", ".a.*", "--yes")
    assert paused.stdout.splitlines() == [f"{site.subject('a.2')} paused: sequence 6 in place of 2"]
    await site.refuses(1, "2 match, and each is paused already", "pause", ".a.*", "--yes")
    resumed = await site.run("resume", ".>", "--yes")
    assert resumed.stdout.splitlines()[-1] == f"stream {site.stream}: 2 resumed"
    removed = await site.done("rm", ".>", "--yes")
    assert [each["subject"] for each in removed["changes"]] == [site.subject(rest) for rest in ("a.1", "a.2", "b.1")]
    assert await site.last("a.1") is None
    assert await site.last("a.3") is not None
    await site.refuses(1, "none matches", "rm", ".>", "--yes")


async def test_a_failure_of_one_does_not_stop_the_others(orders: Site, tmp_path: Path) -> None:
    for rest in ("a", "b", "c"):
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
    again = await orders.refuses(1, "", "pause", ".a", ".c")
    assert [line for line in again.splitlines() if "warning" not in line] == [
        f"nats-scheduler: error: {orders.subject(rest)} is paused already" for rest in ("a", "c")
    ]
    said = await orders.run("rm", "--from-file", str(file))
    assert said.exit_code == 1
    assert said.stdout.splitlines()[-1] == f"stream {orders.stream}: 2 removed, 2 failed"
    named = [line.split()[2] for line in said.stderr.splitlines()]
    assert named == [f"{orders.subject('b')}:", f"{orders.subject('gone')}:"]


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
    assert f"{orders.x}{name}" in await orders.headers("s.0")
    assert orders.x in await orders.headers("other")


# -- fire and backfill -----------------------------------------------------------------------------------------


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


async def test_answers_that_are_missing_now_and_then_do_not_end_the_attempts() -> None:
    """A change in five is not known to be done: more than ever in a row, but never only those."""
    numbers = iter(range(1_000))

    async def operation(subject: str) -> Change:
        if next(numbers) % 5 == 0:
            raise UnknownOutcomeError("nothing shows it")
        return Change(Kind.PAUSED, "S", subject, 1, 2)

    done = await change_each(SUBJECTS, operation, silence_limit=0.0)
    assert {type(error) for error in done.failures.values()} == {UnknownOutcomeError}
    assert len(done.changes) == len(SUBJECTS) * 4 // 5


async def test_after_an_outage_the_other_changes_are_made(start_server: StartServer, tmp_path: Path) -> None:
    """A connection ends when its server has been silent for two seconds."""
    server, count = await start_server(V2_11), 1_000
    async with account_on(server.url) as account:
        await account.create("S", **FLAG)
        headers = {"Nats-Schedule": f"@at {FAR}", "Nats-Schedule-Target": "S.out"}
        for first in range(0, count, 100):
            await asyncio.gather(*(account.publish(f"S.{n:03}", headers) for n in range(first, first + 100)))
    with sidecar("pause", "S", "S.>", "--yes", "--server", server.url, folder=tmp_path) as command:
        async with account_on(server.url) as account:

            async def has_begun() -> bool:
                return int((await account.api.stream("S"))["state"]["last_seq"]) > count + 20

            await eventually(has_begun, describe="some are paused")
            assert server.pid is not None
            os.kill(server.pid, signal.SIGSTOP)
            try:
                await eventually(lambda: account.connection.is_lost, describe="a connection has ended")
                await time_reached(asyncio.get_running_loop().time() + 1)
            finally:
                os.kill(server.pid, signal.SIGCONT)
        await command.wait_for_exit()
    paused = command.stdout.count(" paused: sequence ")
    unknown = command.stderr.count("error: ")
    assert "it was not tried" not in command.stderr
    assert (paused + unknown, unknown <= MAX_AT_ONCE) == (count, True), command.stderr[-1_000:]
