"""One change to many schedules: some at a time, each once, and none stopped by another's failure."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from nats_scheduler.cli.changing import error_about
from nats_scheduler.control.changes import Change, Kind
from nats_scheduler.control.each import MAX_AT_ONCE, MAX_UNANSWERED, change_each
from nats_scheduler.control.edits import pause
from nats_scheduler.control.errors import ConflictError, NotFoundError, NotPossibleError, ScheduleError
from nats_scheduler.control.store import ScheduleStore
from tests.cli.changing_site import FAR, Cli, Site, site_on
from tests.conftest import SharedServer
from tests.control.memory_schedules import Fault, MemorySchedules
from tests.harness.servers import V2_11
from tests.harness.terminal import on_terminal

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
        return await pause(store, "S", subject)

    done = await change_each(SUBJECTS[::-1], operation, seen.append)
    assert list(done.changes) == SUBJECTS[::-1]
    assert {change.kind for change in done.changes.values()} == {Kind.PAUSED}
    assert (done.failures, most, seen) == ({}, MAX_AT_ONCE, [*range(1, 101)])


async def test_what_fails_does_not_stop_the_others(store: MemorySchedules) -> None:
    wanted = [*SUBJECTS[:3], "S.gone", *SUBJECTS[3:]]
    done = await change_each(wanted, partial(paused, store))
    assert list(done.changes) == SUBJECTS
    assert [(subject, type(error)) for subject, error in done.failures.items()] == [("S.gone", NotFoundError)]


@pytest.mark.parametrize("fault", [Fault.NO_ANSWER, Fault.UNKNOWN_NOT_DONE])
async def test_what_is_left_is_not_tried_if_the_server_does_not_answer(store: MemorySchedules, fault: Fault) -> None:
    store.wire.faults.extend([fault] * 1_000)
    done = await change_each(SUBJECTS, partial(paused, store))
    assert (done.changes, list(done.failures)) == ({}, SUBJECTS)
    untried = [subject for subject, error in done.failures.items() if "it was not tried" in str(error)]
    assert len(SUBJECTS) - len(untried) < MAX_UNANSWERED + MAX_AT_ONCE


async def test_nothing_to_change_is_nothing(store: MemorySchedules) -> None:
    assert (await change_each([], partial(paused, store))).changes == {}


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConflictError("S.a: another client changed it"), "S.a: another client changed it (server code 10071)"),
        (NotPossibleError("S.a is paused already"), "S.a is paused already"),
        (NotPossibleError("S.a.b is paused already"), "S.a: S.a.b is paused already"),
        (NotFoundError("no schedule is stored on S.a"), "S.a: no schedule is stored on S.a (server code 10037)"),
    ],
)
def test_an_error_names_its_subject_once_at_the_beginning(error: ScheduleError, line: str) -> None:
    assert error_about("S.a", error) == line


@pytest.mark.parametrize(("answer", "code", "names"), [("y", 0, "X-Paused"), ("n", 1, "Nats-Schedule")])
async def test_a_wildcard_is_counted_and_confirmed_on_a_terminal(
    cli: Cli, shared_server: SharedServer, stream_name: str, tmp_path: Path, answer: str, code: int, names: str
) -> None:
    server = await shared_server(V2_11)
    async with site_on(cli, server.url, V2_11, stream_name) as site:
        for number in range(3):
            await site.publish(f"s.{number}", f"@at {FAR}")
        await site.publish("other", f"@at {FAR}")
        command = ("pause", site.stream, site.subject("s.*"), "--server", server.url)
        terminal = await on_terminal(*command, folder=tmp_path)
        try:
            await terminal.wait_for(f"pause 3 schedules of stream {site.stream}? [y/N]")
            terminal.press(f"{answer}\n")
            assert await terminal.end() == code
        finally:
            await terminal.close()
        await expect_header(site, "s.0", names)
        await expect_header(site, "other", "Nats-Schedule")


async def expect_header(site: Site, rest: str, name: str) -> None:
    assert any(one.endswith(name) for one in await site.headers(rest)), rest
