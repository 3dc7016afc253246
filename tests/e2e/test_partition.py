"""A stream is divided by a mapping of the account, as docs/operating/scale.md shows it: publishers change nothing.

The rule: the files and commands are those of the page, typed as they stand there; only the server is another one.
"""

import asyncio
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nats_scheduler.control.errors import DeadlineError
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds
from tests.harness.nats_cli import nats_cli_binary
from tests.harness.processes import ChildProcess, clean_environment, sidecar
from tests.harness.servers import EMULATED_VERSIONS, reload_config
from tests.harness.waiting import PATIENCE_SECONDS, eventually, instant_reached
from tests.house.sources import ROOT
from tests.site.blocks import Block, blocks_of, commands_of

PAGE = ROOT / "docs" / "operating" / "scale.md"
BLOCKS = [one for one in blocks_of(PAGE) if one.section == "### Divide a stream"]
BUCKET = "KV_nats_scheduler"
PARTS = tuple(f"CRON_{number}" for number in range(8))
BEFORE, AFTER = 60, 300
"""Schedules that were stored before the stream was divided, and those that their publishers store meanwhile."""
BEFORE_SECONDS = 6.0
"""They are due so long after they were stored: some while the last sidecar fires for the old stream, some later."""
AHEAD_SECONDS = 2.0
PER_SECOND = 50
SETTLED_SECONDS = 10.0
"""The time in which a second sidecar takes over what is its own."""
TRIES = 5
DENIED_SECONDS = 0.5
"""The server does not answer what it denies."""


def only(kind: str, number: int = 0) -> Block:
    """Return a block of the section: the first of its language, or a later one."""
    return [one for one in BLOCKS if one.kind == kind][number]


@dataclass
class Operator:
    """Types what the page shows."""

    folder: Path
    environment: Mapping[str, str]
    processes: list[ChildProcess] = field(default_factory=list)

    def save(self, block: Block, url: str) -> None:
        """Save a block under its name."""
        assert block.file
        (self.folder / block.file).write_text(block.text.replace("nats://127.0.0.1:4222", url))

    async def type(self, block: Block) -> None:
        """Type the commands of a block."""
        for command in commands_of(block.text):
            process = ChildProcess(
                ["/bin/bash", "-c", f"cd {self.folder} && {command}"], self.folder, env=self.environment
            )
            assert await process.wait_for_exit() == 0, (command, process.stdout, process.stderr)

    def start(self, block: Block, stack: ExitStack) -> ChildProcess:
        """Start a sidecar as a block does."""
        (command,) = commands_of(block.text)
        program, *words = shlex.split(command.replace("sidecar.json", str(self.folder / "sidecar.json")))
        assert program == "nats-scheduler"
        folder = self.folder / f"sidecar-{len(self.processes)}"
        self.processes.append(stack.enter_context(sidecar(*words, folder=folder, env=self.environment)))
        return self.processes[-1]


async def owners(account: Account) -> dict[str, str]:
    """Return the owner of each part that has one."""
    if await account.api.stream(BUCKET) is None:
        return {}
    found = {}
    for part in PARTS:
        record = await account.api.message(BUCKET, last_by_subj=f"$KV.nats_scheduler.owner.portable.{part}")
        if record is not None and (owner := json.loads(record.body or b"{}").get("owner")):
            found[part] = owner
    return found


async def each_owns_some(account: Account, operator: Operator, stack: ExitStack) -> None:
    """Start a second sidecar, and replace it until each of the two owns some of the parts.

    Their names are drawn, and so is which of them owns what: one of 128 pairs leaves all parts to one of the two.
    """

    async def both_own_some() -> bool:
        found = await owners(account)
        return len(found) == len(PARTS) and len(set(found.values())) == 2

    for _ in range(TRIES):
        second = operator.start(only("sh", 1), stack)
        await second.wait_for_line("stream_ready", count=len(PARTS))
        try:
            await eventually(both_own_some, within_seconds=SETTLED_SECONDS, describe="both own some")
            return
        except AssertionError:
            await second.terminate()
    raise AssertionError(f"one of two sidecars owns all: {await owners(account)}")


async def publish(account: Account, numbers: range, seconds: float, per_second: int = 0) -> None:
    """Store schedules as their publishers do: on `cron.<number>`, for `jobs.<number>`, each `seconds` ahead."""
    for number in numbers:
        headers = {"X-Nats-Schedule": f"@at {in_seconds(seconds)}", "X-Nats-Schedule-X-Target": f"jobs.{number}"}
        await account.publish(f"cron.{number}", headers)
        if per_second:
            await instant_reached(CLOCK.now() + SECOND // per_second, CLOCK.now)


async def stored_in(account: Account, subject: str) -> str:
    """Store an ordinary message, and return the stream that took it."""
    answer = json.loads((await account.connection.request(subject, b"", b"", PATIENCE_SECONDS)).body)
    return str(answer["stream"])


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_stream_is_divided_as_the_page_shows_and_each_schedule_fires_once(
    start_server: StartServer, tmp_path: Path, version: str
) -> None:
    server = await start_server(version)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "nats").symlink_to(nats_cli_binary())
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    path = ":".join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    known = {"NATS_URL": server.url, "PATH": path, "PYTHONPATH": str(ROOT)}
    operator = Operator(tmp_path, {**clean_environment(tmp_path), **known})
    async with account_on(server.url) as account:
        await account.create("CRON", subjects=["cron.>"], allow_msg_schedules=False)
        await account.create("JOBS", subjects=["jobs.>"], allow_msg_schedules=False)
        for block in (only("json"), only("python")):
            operator.save(block, server.url)
        with ExitStack() as stack:
            words = ("run", "--portable-streams", "CRON", "--allowed-targets-elsewhere", "CRON=jobs.>")
            last = stack.enter_context(sidecar(*words, folder=tmp_path / "old", env=operator.environment))
            await last.wait_for_line("stream_ready")
            for number in range(BEFORE):
                await publish(account, range(number, number + 1), BEFORE_SECONDS * (1 + 2 * number / BEFORE))
            await operator.type(only("sh"))
            await operator.start(only("sh", 1), stack).wait_for_line("stream_ready", count=len(PARTS))
            reload_config(server, only("text").text)

            async def is_mapped() -> bool:
                return await stored_in(account, "cron.ordinary") != "CRON"

            await eventually(is_mapped, describe="the server has read its configuration")
            publishing = asyncio.create_task(publish(account, range(BEFORE, BEFORE + AFTER), AHEAD_SECONDS, PER_SECOND))
            await last.terminate()
            await each_owns_some(account, operator, stack)
            await operator.type(only("sh", 2))
            await publishing

            async def fires() -> list[StoredMessage] | None:
                found = await account.messages("JOBS", "jobs.>")
                return found if len({one.subject for one in found}) == BEFORE + AFTER else None

            found = await eventually(fires, describe="each schedule has fired")
            times = Counter(one.subject for one in found)
            assert [subject for subject, count in times.items() if count > 1] == []
            assert len({header_value(one.block, MSG_ID) for one in found}) == BEFORE + AFTER
            states = {name: (await account.api.call(f"STREAM.INFO.{name}"))["state"] for name in ("CRON", *PARTS)}
            owned = Counter((await owners(account)).values())
        assert (states["CRON"]["messages"], len(owned)) == (0, 2)
        shares = [states[part]["last_seq"] for part in PARTS]
        assert min(shares) > (BEFORE + AFTER) / len(PARTS) / 3, shares


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_the_permission_to_publish_is_that_of_the_subject_behind_the_mapping(
    start_server: StartServer, version: str
) -> None:
    allowed = {"before": "cron.*", "behind": "part.*.cron.*"}
    users = [f'{{ user: {name}, password: p, permissions: {{ publish: "{one}" }} }}' for name, one in allowed.items()]
    users.append("{ user: owner, password: p }")
    account = f"A {{ jetstream: enabled\n{only('text').text}users: [{', '.join(users)}] }}"
    url = (await start_server(version, config=f"accounts {{ {account} }}")).url
    async with (
        account_on(url.replace("nats://", "nats://owner:p@")) as owner,
        account_on(url.replace("nats://", "nats://before:p@")) as before,
        account_on(url.replace("nats://", "nats://behind:p@")) as behind,
    ):
        for number, part in enumerate(PARTS):
            await owner.create(part, subjects=[f"part.{number}.>"], allow_msg_schedules=False)
        assert await stored_in(behind, "cron.report") in PARTS
        with pytest.raises(DeadlineError):
            await before.connection.request("cron.report", b"", b"", DENIED_SECONDS)
