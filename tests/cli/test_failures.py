"""`nats-scheduler failures` shows what went wrong: of all streams, of one, or of some schedules, newest first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.observe.texts import what_happened
from tests.cli.conftest import Cli
from tests.cli.test_tables import on_a_terminal
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Account, account_on, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

STREAM = "nats_scheduler_failures"
LONG = "S." + "x" * 1_100


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep the log of the sidecar out of the output of the command, which runs in the same process."""
    with capture_logs():
        yield


async def shown(cli: Cli, url: str, *arguments: str) -> list[dict[str, Any]]:
    """Run `nats-scheduler failures --json` in a thread, in which it has an event loop of its own."""
    said = await asyncio.to_thread(cli, "failures", *arguments, "--json", "--server", url)
    document = json.loads(said.stdout)
    assert said.exit_code == 0, document
    assert (document["kept_in"], document["complete"]) == (STREAM, True)
    failures: list[dict[str, Any]] = document["failures"]
    return failures


def schedules(failures: list[dict[str, Any]]) -> list[str | None]:
    return [one["schedule"] for one in failures]


async def kept(account: Account, count: int) -> None:
    """Wait until `count` advisories are stored."""

    async def enough() -> bool:
        info = await account.api.stream(STREAM)
        return info is not None and info["state"]["messages"] >= count

    await eventually(enough, within_seconds=WAIT_SECONDS, describe=f"{count} advisories")


@pytest.mark.parametrize(("version", "x"), [(V2_10, ""), (V2_11, ""), (V2_15, "X-")])
async def test_what_went_wrong_is_shown_newest_first(
    cli: Cli, start_server: StartServer, version: str, x: str, tmp_path: Path
) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        for name in ("S", "T"):
            await account.create(name)
            await running.ready(name)
        wrong = {f"{x}Nats-Schedule": "@every soon"}
        for number, subject in enumerate(("S.a", "S.b", LONG, "T.a"), start=1):
            await account.publish(subject, {**wrong, f"{x}Nats-Schedule-Target": f"{subject[0]}.out"})
            await kept(account, number)
        assert schedules(await shown(cli, server.url)) == ["T.a", LONG, "S.b", "S.a"]
        assert schedules(await shown(cli, server.url, "--limit", "2")) == ["T.a", LONG]
        assert schedules(await shown(cli, server.url, "S")) == [LONG, "S.b", "S.a"]
        assert schedules(await shown(cli, server.url, "S", "S.a")) == ["S.a"]
        assert schedules(await shown(cli, server.url, "S", "S.*")) == [LONG, "S.b", "S.a"]
        assert schedules(await shown(cli, server.url, "S", LONG)) == [LONG]
        [last] = await shown(cli, server.url, "T")
        assert (last["kind"], last["advisory"]["code"]) == ("schedule_rejected", 10189)
        assert schedules(await shown(cli, server.url, "--since", last["stored"])) == ["T.a"]
        assert schedules(await shown(cli, server.url, "--since", "1h", "T")) == ["T.a"]
        text = await on_a_terminal(80, "failures", "T", "--server", server.url, home=tmp_path)
        assert max(map(len, text.splitlines())) <= 80
        assert "schedule_rejected" in text
        assert "1 failure, newest first" in text


async def test_what_is_no_advisory_is_passed_over(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create(STREAM, subjects=["nats_scheduler.advisory.>"], allow_msg_schedules=None)
        prefix = "io.nats_scheduler.advisory.v1"
        good = {"type": f"{prefix}.cannot_serve", "stream": "S", "reason": "x"}
        for body in (b"no JSON", b"[]", b'{"stream": 7}', json.dumps({**good, "schedule": 7}).encode()):
            await account.publish("nats_scheduler.advisory.cannot_serve.S", body=body)
        await account.publish("nats_scheduler.advisory.cannot_serve.T", body=json.dumps(good).encode())
        sequence = await account.publish("nats_scheduler.advisory.cannot_serve.S", body=json.dumps(good).encode())
        for arguments in ((), ("S",)):
            [one] = await shown(cli, server.url, *arguments)
            assert (one["sequence"], one["schedule"], one["kind"]) == (sequence, None, "cannot_serve")
        assert await shown(cli, server.url, "S", "S.>") == []


async def test_without_the_stream_the_command_says_how_it_comes(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    said = await asyncio.to_thread(cli, "failures", "--server", server.url)
    assert said.exit_code == 1
    assert f"stream {STREAM} does not exist: a sidecar creates it" in said.stderr


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (("S.S",), "the name of a stream"),
        (("S", "a..b"), "a subject such as"),
        (("--since", "soon"), "a duration such as 2h"),
        (("--limit", "0"), "1<=x<=1000"),
    ],
)
def test_wrong_use_is_refused_with_what_was_expected(cli: Cli, wrong: tuple[str, ...], complaint: str) -> None:
    said = cli("failures", *wrong)
    assert said.exit_code == 2
    assert complaint in said.stderr


def test_a_row_says_what_happened_in_a_few_words() -> None:
    assert what_happened({"code": 10054, "reason": "too large", "due": "2026-01-01T00:00:00Z", "seq": 7}) == (
        "code 10054; too large; due 2026-01-01T00:00:00Z"
    )
    assert what_happened({"lateness": "1m30s"}) == "late by 1m30s"
