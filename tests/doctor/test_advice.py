"""What a finding says to type is typed, as it stands, and the finding is gone.

A scene of `scenes.py` is built, its advice is taken from the finding, the words in capitals are filled in, and a shell
runs it. What is no command is done as it says.
Of `doctor/stream_checks.py` and the other checks.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import SharedServer, StartServer
from tests.doctor.examined import findings_on, of
from tests.doctor.scenes import NEVER, SCENES, Build, emulated, schedule
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.nats_cli import NatsCli, nats_cli_binary
from tests.harness.processes import clean_environment
from tests.harness.servers import V2_11, V2_14, V2_15
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually

COMMAND_SECONDS = 30.0
STEPS = 2
"""What is done may leave another thing to do, which is a finding of the same code again."""

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

    async def types(self, stream: str, advice: str, exit_code: int = 0) -> str:
        """Type the command that an advice begins with, which ends with this code; return what it prints."""
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
        assert done.returncode == exit_code, f"{line!r} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout


Follow = Callable[[Operator, str, Finding], Awaitable[None]]


async def typed(operator: Operator, stream: str, found: Finding) -> None:
    """Type the command."""
    await operator.types(stream, found.command)


def published(says: str, headers: Mapping[str, str] | None = None) -> Follow:
    """Return what publishes the schedule again: with these headers, else with X- before those of a plain one."""

    async def follow(operator: Operator, stream: str, found: Finding) -> None:
        if found.command.startswith("nats-scheduler info"):
            await operator.types(stream, found.command)
        elif found.command.startswith("nats stream rmm"):
            await operator.types(stream, found.command)
            return
        assert re.search(says, found.command), found.command
        given = headers or {f"X-{name}": value for name, value in schedule(stream, "@every 1500ms").items()}
        given = {name: value.format(stream) for name, value in given.items()}
        await operator.account.publish(found.subject or "", given)

    return follow


async def filtered(operator: Operator, stream: str, found: Finding) -> None:
    """Give the source in a copy a filter."""
    copy = f"{stream}-copy"
    assert found.command == f"give the source in {copy} a filter that leaves out the subjects of schedules"
    config = (await operator.account.api.stream(copy))["config"]
    sources = [{"name": stream, "filter_subject": f"{stream}.out"}]
    await operator.account.api.call(f"STREAM.UPDATE.{copy}", {**config, "sources": sources})


WITH_X = published("publish .*X-")
RIGHT = {"Nats-Schedule": "@hourly", "Nats-Schedule-Target": "{}.out"}


async def kept(operator: Operator, stream: str, found: Finding) -> None:
    """Publish a schedule with a TTL that never ends."""
    assert found.command == "published with Nats-TTL: never, on a stream with allow_msg_ttl, it stays"
    config = (await operator.account.api.stream(stream))["config"]
    await operator.account.api.call(f"STREAM.UPDATE.{stream}", {**config, "allow_msg_ttl": True})
    assert found.subject is not None
    await operator.account.publish(found.subject, {**schedule(stream, "@every 1m"), "Nats-TTL": "never"})


ADVICE: Mapping[Code, Follow] = {
    Code.SCHEDULE_ENDS_BY_AGE: kept,
    Code.DORMANT: typed,
    Code.CONSUMER_TAKES_SCHEDULES: typed,
    Code.COPIES_REMOVE_SCHEDULES: filtered,
    Code.NO_INTEREST: typed,
    Code.EVICTS_SOON: typed,
    Code.SCHEDULE_ENDS_EARLY: typed,
    Code.SCHEDULE_REJECTED: published("publish it again, corrected", RIGHT),
    Code.CALENDAR_MISSING: typed,
    Code.DEFECT_FAR_TIME: WITH_X,
    Code.SCHEDULES_UNSERVED: typed,
    Code.SHORT_DUPLICATE_WINDOW: typed,
    Code.HEADER_MISNAMED: published("publish .* again with the right names", RIGHT),
    Code.SCHEDULES_EQUAL: typed,
    Code.TARGET_UNREAD: typed,
    Code.GRADUATION_BLOCKED: WITH_X,
    Code.POLICIES_IGNORED: WITH_X,
    Code.DEFECT_ZONE_GAP: WITH_X,
    Code.DEFECT_INTERVAL_ROUNDED: WITH_X,
    Code.DEFECT_SOURCE_TRANSFORMED: WITH_X,
}

ELSEWHERE = {
    Code.DEFECT_STREAM_LOST: "a copy of the data is all that can be had: below",
    Code.DEFECT_COPIES_STALL: "an upgrade: the right side of its scene",
    Code.NO_GUARD: "an upgrade: the right side of its scene",
    Code.AT_ONLY: "an upgrade: the right side of its scene",
    Code.COPIED: "nothing has to be done",
    Code.POLICY_WITHOUT_EFFECT: "the policy that is to be added: the right side of its scene",
    Code.STEP_UNEVEN: "a list in place of a step: the right side of its scene",
    Code.WEEKDAYS_NUMBERED: "names in place of numbers: the right side of its scene",
}
"""The scenes whose advice is no change that this test can make, and why."""


def test_the_advice_of_each_scene_is_followed() -> None:
    assert ADVICE.keys() | ELSEWHERE.keys() == SCENES.keys()
    assert not ADVICE.keys() & ELSEWHERE.keys()


@pytest.fixture
def home(tmp_path: Path, nats_cli: NatsCli) -> Path:
    """The folder in which the commands are typed; they need the nats CLI."""
    return nats_cli.home


async def gone(server: EmbeddedServer, stream: str, code: Code) -> None:
    """Wait until a finding is gone."""

    async def is_gone() -> bool:
        return not of(await findings_on(server, stream), code)

    await eventually(is_gone, describe=f"{code} is gone")


@pytest.mark.deep
@pytest.mark.parametrize("code", ADVICE)
async def test_what_a_finding_says_to_type_removes_it(
    shared_server: SharedServer, stream_name: str, home: Path, code: Code
) -> None:
    server = await shared_server(SCENES[code].version)
    await followed(server, stream_name, home, code, SCENES[code].wrong)


async def followed(server: EmbeddedServer, stream: str, home: Path, code: Code, build: Build) -> None:
    """Build what is wrong, follow the advice about it, and wait until the finding is gone."""
    async with account_on(server.url) as account:
        await build(account, stream)
        found = of(await findings_on(server, stream), code)
        assert found, f"{code} is reported"
        for _ in range(STEPS):
            for one in found:
                await ADVICE[code](Operator(account, server, home), stream, one)
            found = [one for one in of(await findings_on(server, stream), code) if one not in found]
        await gone(server, stream, code)


LIMITED = {"max_msgs": 100, "discard": "new"}


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


@pytest.mark.deep
async def test_a_target_without_a_stream_gets_one(start_server: StartServer, home: Path) -> None:
    server = await start_server(V2_11)
    headers = {"X-Nats-Schedule": NEVER, "X-Nats-Schedule-X-Target": "jobs.run"}
    async with (
        account_on(server.url) as account,
        sidecar_on(server.url, allowed_targets_elsewhere=("CRON=jobs.>",)) as running,
    ):
        await emulated(account, "CRON")
        await account.publish("CRON.s", headers)
        await running.ready("CRON")

        async def is_reported() -> list[Finding]:
            return of(await findings_on(server), Code.TARGET_WITHOUT_STREAM)

        (found,) = await eventually(is_reported, describe="the target without a stream is reported")
        await Operator(account, server, home).types("CRON", found.command)
        assert await is_reported() == []


@pytest.mark.deep
@pytest.mark.parametrize("version", [V2_11, V2_15])
@pytest.mark.parametrize("config", [{}, LIMITED, {"retention": "workqueue"}], ids=["usual", "discard new", "queue"])
async def test_the_log_says_how_schedules_left_unserved_are_fired(
    start_server: StartServer, home: Path, version: str, config: Mapping[str, object]
) -> None:
    server = await start_server(version)
    dialects = ("", "X-") if version == V2_11 else ("X-",)
    async with account_on(server.url) as account:
        operator = Operator(account, server, home)
        await account.create("ORDERS", allow_msg_schedules=False, **config)

        async def publish(prefix: str) -> None:
            headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"ORDERS.out{prefix}"}
            given = {f"{prefix}{name}": value for name, value in headers.items()}
            await account.publish(f"ORDERS.s{prefix}", given)

        for prefix in dialects:
            await publish(prefix)
        async with sidecar_on(server.url) as running:
            said = str((await running.told_of("schedules_unserved", stream="ORDERS"))["command"])
            (found,) = {one.command for one in of(await findings_on(server), Code.SCHEDULES_UNSERVED)}
            assert said == found
            assert f"does not carry schedules: {said}\n" in await operator.types(
                "ORDERS", "nats-scheduler ls ORDERS", 1
            )
            if said.startswith("nats-scheduler stream add FILE"):
                await operator.types("ORDERS", said)
                for prefix in dialects:
                    await account.wait_for("ORDERS", f"ORDERS.out{prefix}")
                return
        portable = re.fullmatch(r"nats-scheduler run --portable-streams (\S+), with .* as X-Nats-Schedule: .*", said)
        assert portable, said
        async with sidecar_on(server.url, portable_streams=(portable[1],)):
            await publish("X-")
            await account.wait_for("ORDERS", "ORDERS.outX-")


@pytest.mark.deep
async def test_what_a_blocked_graduation_says_lets_it_through(tmp_path: Path, home: Path) -> None:
    async with machine_in(tmp_path / "store") as machine:
        async with account_on(await machine.install(V2_11)) as account:
            await emulated(account, "ORDERS", storage="file")
            await account.publish("ORDERS.s", schedule("ORDERS", "@every 1500ms"))
        url = await machine.install(V2_14)
        assert machine.server is not None
        async with account_on(url) as account:
            operator = Operator(account, machine.server, home)
            (dormant,) = of(await findings_on(url), Code.DORMANT)
            said = await operator.types("ORDERS", dormant.command, 1)
            accept = re.search(r"accept it with (--force \w+)\n", said)
            assert accept, said
            await operator.types("ORDERS", f"{dormant.command.partition(', ')[0]} {accept[1]}")
            await gone(machine.server, "ORDERS", Code.DORMANT)


# -- schedules that nothing fires --------------------------------------------------------------------------------------
