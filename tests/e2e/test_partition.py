"""A stream is divided by a mapping of the account, as docs/operating/scale.md shows it: publishers change nothing.

The rule: the files and commands are those of the page, typed as they stand there; only the server is another one.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.harness.account import Account, account_on, in_seconds
from tests.harness.nats_cli import nats_cli_binary
from tests.harness.processes import ChildProcess, clean_environment, sidecar
from tests.harness.servers import V2_11, reload_config
from tests.harness.waiting import PATIENCE_SECONDS, eventually
from tests.house.sources import ROOT
from tests.site.blocks import Block, blocks_of, commands_of

PAGE = ROOT / "docs" / "operating" / "scale.md"
BLOCKS = [one for one in blocks_of(PAGE) if one.section == "### Divide a stream"]
PARTS = tuple(f"CRON_{number}" for number in range(8))
BEFORE, AFTER = 40, 120
"""Schedules that were stored before the stream was divided, and those that their publishers store afterwards."""


def only(kind: str, number: int = 0) -> Block:
    """Return a block of the section: the first of its language, or a later one."""
    return [one for one in BLOCKS if one.kind == kind][number]


async def publish(account: Account, numbers: range, seconds: float) -> None:
    """Store schedules as their publishers do: on `cron.<number>`, for `jobs.<number>`, each `seconds` ahead."""
    for number in numbers:
        headers = {"X-Nats-Schedule": f"@at {in_seconds(seconds)}", "X-Nats-Schedule-X-Target": f"jobs.{number}"}
        await account.publish(f"cron.{number}", headers)


@pytest.mark.deep
async def test_a_stream_is_divided_as_the_page_shows(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "nats").symlink_to(nats_cli_binary())
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    path = ":".join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**clean_environment(tmp_path), "NATS_URL": server.url, "PATH": path, "PYTHONPATH": str(ROOT)}

    async def type_all(block: Block) -> None:
        for command in commands_of(block.text):
            words = ["/bin/bash", "-c", f"cd {tmp_path} && {command}"]
            process = ChildProcess(words, tmp_path, env=environment)
            assert await process.wait_for_exit() == 0, (command, process.stdout, process.stderr)

    for block in (only("json"), only("python")):
        assert block.file
        (tmp_path / block.file).write_text(block.text.replace("nats://127.0.0.1:4222", server.url))
    assert commands_of(only("sh", 1).text) == ["nats-scheduler run --settings sidecar.json"]
    async with account_on(server.url) as account:
        await account.create("CRON", subjects=["cron.>"], allow_msg_schedules=False)
        await account.create("JOBS", subjects=["jobs.>"], allow_msg_schedules=False)
        of_the_whole = ("run", "--portable-streams", "CRON", "--allowed-targets-elsewhere", "CRON=jobs.>")
        of_the_parts = ("run", "--settings", str(tmp_path / "sidecar.json"))
        with sidecar(*of_the_whole, folder=tmp_path / "whole", env=environment) as last:
            await last.wait_for_line("stream_ready")
            await publish(account, range(BEFORE // 2), 1.0)
            await publish(account, range(BEFORE // 2, BEFORE), 20.0)
            await type_all(only("sh"))
            with sidecar(*of_the_parts, folder=tmp_path / "parts", env=environment) as parts:
                await parts.wait_for_line("stream_ready", count=len(PARTS))
                reload_config(server, only("text").text)

                async def is_mapped() -> bool:
                    answer = await account.connection.request("cron.ordinary", b"", b"", PATIENCE_SECONDS)
                    return json.loads(answer.body)["stream"] != "CRON"  # type: ignore[no-any-return]

                await eventually(is_mapped, describe="the server has read its configuration")
                await last.terminate()
                await publish(account, range(BEFORE, BEFORE + AFTER), 2.0)
                await type_all(only("sh", 2))

                async def all_have_fired() -> bool:
                    return await account.number_on("JOBS", "jobs.>") >= BEFORE + AFTER

                await eventually(all_have_fired, describe="each schedule has fired")
                found = [one.subject for one in await account.messages("JOBS", "jobs.>")]
                assert sorted(found) == sorted(f"jobs.{number}" for number in range(BEFORE + AFTER))
        states = {name: (await account.api.call(f"STREAM.INFO.{name}"))["state"] for name in ("CRON", *PARTS)}
    assert states["CRON"]["messages"] == 0
    assert all(states[part]["last_seq"] for part in PARTS), "each has its share"
