"""The programs of `docs/examples/clients/` do the same with a sidecar and on a server that fires by itself.

Each is run as it is, by the tools of its language: what it prints is compared, and what it left in the stream.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.processes import ChildProcess, clean_environment
from tests.harness.servers import V2_11, V2_15
from tests.harness.toolchains import CLIENTS, PROGRAMS
from tests.harness.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.deep

PRINTED = """\
orders.schedules.pulse fired: pulse, and fires again
orders.schedules.reminder fired: remind of order 17, for the last time
orders.schedules.report fired: open orders, and fires again
orders.schedules.report is replaced
orders.schedules.pulse is ended
"""
BODIES = {"pulse": b"pulse", "reminder": b"remind of order 17", "report": b"open orders"}
RUNS = 2
"""The second run finds the stream, the consumer and the schedule that the first one left."""


async def runs(client: str, url: str, folder: Path, *, by_argument: bool) -> None:
    """Run the program of a client again and again, and check each time what it prints."""
    program = await asyncio.to_thread(CLIENTS[client], folder)
    arguments, env = ([url], {}) if by_argument else ([], {"NATS_URL": url})
    for number in range(RUNS):
        assert await printed([*program.command, *arguments], {**program.env, **env}, folder, f"run-{number}") == PRINTED


async def printed(command: list[str], env: Mapping[str, str], folder: Path, name: str) -> str:
    """Run a program to its end, and return what it prints if it ends well."""
    with ChildProcess(command, folder, name=name, env={**clean_environment(folder), **env}) as process:
        code = await process.wait_for_exit(within_seconds=PATIENCE_SECONDS)
        assert (code, process.stderr) == (0, ""), process.stdout
        return process.stdout


def text(message: StoredMessage, name: bytes) -> str | None:
    """Return a header of a message."""
    value = header_value(message.block, name)
    return None if value is None else value.decode()


async def fires_of(account: Account, schedule: str) -> list[StoredMessage]:
    """Return what one schedule has fired, and check what all fires of it have in common."""
    subject = f"orders.schedules.{schedule}"
    due = await account.messages("ORDERS", "orders.due")
    fires = [message for message in due if text(message, b"Nats-Scheduler") == subject]
    assert {message.body for message in fires} == {BODIES[schedule]}
    return fires


async def left_as_the_program_says(account: Account) -> None:
    """Check what the program left in the stream: fires, schedules and its consumer."""
    reminders = await fires_of(account, "reminder")
    assert [text(fire, b"Nats-Schedule-Next") for fire in reminders] == ["purge"] * RUNS
    for schedule in ("pulse", "report"):
        following = [text(fire, b"Nats-Schedule-Next") or "" for fire in await fires_of(account, schedule)]
        instants = [parse_rfc3339(instant) for instant in following]
        assert all(isinstance(instant, int) for instant in instants), following
        assert len(set(instants)) == len(instants), "each fire time fires once"
    consumer = await account.api.call("CONSUMER.INFO.ORDERS.due")
    assert consumer["config"]["durable_name"] == "due"
    assert consumer["config"]["filter_subject"] == "orders.due"
    assert consumer["ack_floor"]["consumer_seq"] > 0
    await eventually(lambda: only_the_replacement(account))


async def only_the_replacement(account: Account) -> bool:
    """Return whether the one schedule in the stream is the replaced one, with its new pattern and its zone."""
    assert await account.messages("ORDERS", "orders.schedules.reminder") == []
    assert await account.messages("ORDERS", "orders.schedules.pulse") == []
    stored = await account.messages("ORDERS", "orders.schedules.report")
    assert [text(message, b"Nats-Schedule") for message in stored] == ["0 30 9 * * mon-fri"]
    assert [text(message, b"Nats-Schedule-Time-Zone") for message in stored] == ["Europe/Berlin"]
    return True


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_program_runs_with_a_sidecar_and_on_a_server_that_fires(
    start_server: StartServer, client: str, tmp_path: Path
) -> None:
    for version in (V2_11, V2_15):
        server, folder = await start_server(version), tmp_path / version
        folder.mkdir()
        async with AsyncExitStack() as stack:
            if version == V2_11:
                await stack.enter_async_context(sidecar_on(server.url))
            account = await stack.enter_async_context(account_on(server.url))
            await runs(client, server.url, folder, by_argument=version == V2_11)
            await left_as_the_program_says(account)


def test_each_folder_of_examples_is_run() -> None:
    assert {path.name for path in PROGRAMS.iterdir() if path.is_dir()} == set(CLIENTS)
