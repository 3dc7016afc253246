"""`nats-scheduler watch`: fires and faults as they happen, for people and for programs, until Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.cli import watch
from nats_scheduler.cli.watch import MAX_VALUE_CHARS, SPAN_NS, Repetitions, advisory_line
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.prompt import WRONG, Cli, Prompt, prompt_on
from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import V2_14
from tests.harness.waiting import eventually


def events(text: str, kind: str) -> list[dict[str, Any]]:
    """Return the lines of JSON of one kind; a line that is being written is left out."""
    whole = text[: text.rfind("\n") + 1]
    return [line for line in map(json.loads, whole.splitlines()) if line["event"] == kind]


async def first_of(process: ChildProcess, kind: str) -> dict[str, Any]:
    """Wait for a line of JSON of one kind, and return the first one."""
    await eventually(lambda: events(process.stdout, kind), describe=f"{kind} is shown")
    return events(process.stdout, kind)[0]


@contextmanager
def watching(url: str, folder: Path, line: str = "", name: str = "watch") -> Iterator[ChildProcess]:
    with sidecar("watch", *line.split(), "--server", url, folder=folder, name=name) as process:
        yield process


async def test_fires_and_faults_are_lines_for_people(prompt: Prompt, tmp_path: Path) -> None:
    with watching(prompt.url, tmp_path, "NONE", "none") as none:
        assert await none.wait_for_exit() == 1
    assert none.stderr == "nats-scheduler: error: stream NONE does not exist\n"
    async with sidecar_on(prompt.url) as running:
        await prompt.account.create("ORDERS")
        await running.ready("ORDERS")
        with watching(prompt.url, tmp_path, "ORDERS") as process:
            await process.wait_for_line("stream ORDERS is emulated: the sidecar fires")
            await prompt.schedule("ORDERS.s", "@every 1s")
            await process.wait_for_line(r"^\d{4}-\S+Z +-?[\d.]+ ms  interval  ORDERS\.s -> ORDERS\.out$")
            await prompt.account.publish("ORDERS.wrong", WRONG)
            assert "code 10189" in await process.wait_for_line("schedule_rejected: ORDERS ORDERS.wrong; ")
            assert await process.interrupt() == 0
        assert process.stderr == ""


async def test_fires_of_a_native_server_are_followed(cli: Cli, start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_14)
    async with prompt_on(cli, server.url) as prompt:
        account = prompt.account
        await account.create("JOBS", retention="workqueue")
        await account.create("ORDERS", storage="file")
        await prompt.schedule("ORDERS.s", "@every 1s")
        before = (await account.wait_for("ORDERS", "ORDERS.out"))[-1]
        with watching(server.url, tmp_path, "--json") as process:
            assert (await first_of(process, "stream"))["mode"] == "native"
            stored = parse_rfc3339((await first_of(process, "fire"))["stored"])
            assert isinstance(stored, int)
            assert stored > before.stored_at
            await account.create("LATER", retention="interest")
            await process.wait_for_line('"stream": "LATER"')  # the streams were read again
            await server.kill()
            await process.wait_for_line("warning: the connection is lost")
            seen = len(events(process.stdout, "fire"))
            await server.restart()
            await eventually(lambda: len(events(process.stdout, "fire")) > seen)
            assert await process.interrupt() == 0
    lost = [line for line in process.stderr.splitlines() if "the connection is lost" in line]
    assert len(lost) == 1
    assert [line for line in process.stderr.splitlines() if line not in lost] == [
        f"nats-scheduler: warning: what the server fires on {name} cannot be followed: "
        f"with {retention} retention, no consumer may be attached to read it"
        for name, retention in (("JOBS", "workqueue"), ("LATER", "interest"))
    ]


def test_what_a_terminal_would_obey_is_shown_escaped() -> None:
    advisory = {"type": "x.v1.fire_refused", "stream": "S", "schedule": "s\x1b[2J", "code": 503, "reason": "full"}
    assert advisory_line(advisory, 0) == "1970-01-01T00:00:00Z  fire_refused: S s\\x1b[2J; full; code 503"


# -- repetitions -----------------------------------------------------------------------------------------------

REFUSED: Object = {"type": "x.fire_refused", "stream": "S", "schedule": "S.s", "seq": 7, "code": 503}


def test_what_is_repeated_is_counted_until_the_span_is_over() -> None:
    seen = Repetitions()
    assert [seen.is_new({**REFUSED, "due": due}, at) for at, due in enumerate(("a", "b", "c"))] == [True, False, False]
    assert seen.take_over(SPAN_NS - 1) == []
    (over,) = seen.take_over(SPAN_NS)
    assert (over.about, over.times) == (REFUSED, 2)
    assert seen.take_over() == []
    assert seen.is_new(REFUSED, SPAN_NS), "the next span begins"
    for seq in (1, 2, 2, 3, 3, 3):
        seen.is_new({**REFUSED, "seq": seq}, SPAN_NS)
    assert [(one.about["seq"], one.times) for one in seen.take_over()] == [(2, 1), (3, 2)], (
        "at the end all are returned"
    )


def test_what_a_stranger_publishes_takes_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Repetitions()
    assert [seen.is_new({"stream": [{}], "type": None}, 0) for _ in range(2)] == [True, False]
    long = {"schedule": "s" * 5_000, "seq": [7] * 5_000}
    assert [seen.is_new({**long, **more}, 0) for more in ({}, {}, {"schedule": "s" * 5_001})] == [True, False, True]
    assert [len(value) for value in seen.take_over()[1].about.values()] == [MAX_VALUE_CHARS, MAX_VALUE_CHARS]
    monkeypatch.setattr(watch, "MAX_ENTRIES", 2)
    seen = Repetitions()
    for seq in (1, 1, 2, 2, 3):
        seen.is_new({**REFUSED, "seq": seq}, 0)
    assert [one.about["seq"] for one in seen.take_over(0)] == [1]
    assert not seen.is_new({**REFUSED, "seq": 2}, 0)
    assert seen.is_new({**REFUSED, "seq": 1}, 0)
