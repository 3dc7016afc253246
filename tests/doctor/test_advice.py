"""What a finding says to type is typed, as it stands, and the finding is gone.

A scene of `scenes.py` is built, its advice is taken from the finding, the words in capitals are filled in, and a shell
runs it.
Of `doctor/stream_checks.py` and the other checks.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from nats_scheduler.message.findings import Code
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import SharedServer
from tests.doctor.examined import findings_on, of
from tests.doctor.scenes import SCENES
from tests.harness.account import Account, account_on
from tests.harness.nats_cli import NatsCli, nats_cli_binary
from tests.harness.processes import clean_environment
from tests.harness.waiting import eventually

COMMAND_SECONDS = 30.0

ASKS_BEFORE = re.compile(r"nats (stream|consumer) (edit|purge|rm|rmm) ")
"""Commands that ask the person at the terminal, who says yes."""

CHOSEN = {"NAME": "worker", "DAY…": "2026-12-25", "FOLDER": "backup", "FILE": "stream.json"}
"""What a person writes in place of the words in capitals."""


@dataclass(frozen=True)
class Operator:
    """A person at a shell, who has read a finding about a stream."""

    account: Account
    server: EmbeddedServer
    home: Path

    async def types(self, stream: str, advice: str) -> None:
        """Type the command that an advice begins with."""
        line = advice.partition(", ")[0]
        for word, chosen in CHOSEN.items():
            line = line.replace(word, chosen)
        if "stream.json" in line:
            config = {**(await self.account.api.stream(stream))["config"], "allow_msg_schedules": True}
            (self.home / "stream.json").write_text(json.dumps(config), "utf-8")
        line += " --force" if ASKS_BEFORE.match(line) else ""
        folders = [str(Path(sys.executable).parent), str(nats_cli_binary().parent), os.environ["PATH"]]
        env = {**clean_environment(self.home), "PATH": ":".join(folders)}
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", line],
            env={**env, "NATS_URL": self.server.url},
            cwd=self.home,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{line!r} ended with {done.returncode}:\n{done.stdout}"


@pytest.fixture
def home(tmp_path: Path, nats_cli: NatsCli) -> Path:
    """The folder in which the commands are typed; they need the nats CLI."""
    return nats_cli.home


async def gone(server: EmbeddedServer, stream: str, code: Code) -> None:
    """Wait until a finding is gone."""

    async def is_gone() -> bool:
        return not of(await findings_on(server, stream), code)

    await eventually(is_gone, describe=f"{code} is gone")


TYPED = (
    Code.DORMANT,
    Code.CONSUMER_TAKES_SCHEDULES,
    Code.NO_INTEREST,
    Code.EVICTS_SOON,
    Code.SCHEDULE_ENDS_EARLY,
    Code.CALENDAR_MISSING,
    Code.SCHEDULES_UNSERVED,
    Code.SHORT_DUPLICATE_WINDOW,
    Code.SCHEDULES_EQUAL,
    Code.TARGET_UNREAD,
)
"""The scenes whose advice is a command."""


@pytest.mark.deep
@pytest.mark.parametrize("code", TYPED)
async def test_what_a_finding_says_to_type_removes_it(
    shared_server: SharedServer, stream_name: str, home: Path, code: Code
) -> None:
    server = await shared_server(SCENES[code].version)
    async with account_on(server.url) as account:
        await SCENES[code].wrong(account, stream_name)
        found = of(await findings_on(server, stream_name), code)
        assert found, f"{code} is reported"
        while found:  # what is done may leave another thing to do
            for one in found:
                await Operator(account, server, home).types(stream_name, one.command)
            found = [one for one in of(await findings_on(server, stream_name), code) if one not in found]
        await gone(server, stream_name, code)


@pytest.mark.deep
async def test_a_stream_that_will_not_load_can_be_backed_up(
    shared_server: SharedServer, stream_name: str, home: Path
) -> None:
    server = await shared_server(SCENES[Code.DEFECT_STREAM_LOST].version)
    async with account_on(server.url) as account:
        info = await account.create(stream_name, storage="file")
        await account.api.call(f"STREAM.UPDATE.{stream_name}", {**info["config"], "sealed": True})
        (found,) = of(await findings_on(server, stream_name), Code.DEFECT_STREAM_LOST)
        await Operator(account, server, home).types(stream_name, found.command)
    assert (home / "backup" / "backup.json").exists()
