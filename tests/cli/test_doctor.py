"""`nats-scheduler doctor`: the table, the document, the exit codes and the progress."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nats_scheduler.cli.doctor import COLUMNS
from nats_scheduler.cli.process import ERASE_LINE, progress_text
from nats_scheduler.doctor.report import MAX_LISTED
from nats_scheduler.message.findings import Code
from tests.cli.prompt import Cli, Prompt, at_a_terminal
from tests.conftest import StartServer
from tests.doctor.scenes import emulated, schedule, unflagged
from tests.harness.account import CLOCK, account_on
from tests.harness.burst import store_herd
from tests.harness.flagged import FLAGGED
from tests.harness.proxy import proxy_to
from tests.harness.servers import V2_11
from tests.harness.terminal import TERMINAL_SECONDS, Terminal
from tests.harness.waiting import eventually

INTERRUPTED = 130


async def test_the_worst_is_printed_first_and_decides_the_exit_code(prompt: Prompt) -> None:
    none = await prompt.says("doctor ORDERS")
    assert (none.exit_code, none.stderr) == (1, "nats-scheduler: error: stream ORDERS does not exist\n")
    assert await prompt.shows("doctor") == "nothing is wrong; 0 of 0 streams carry schedules\n"
    await unflagged(prompt.account, "PLAIN")
    assert (await prompt.says("doctor")).exit_code == 3
    await emulated(prompt.account, "ORDERS")
    failed = await prompt.says("doctor")
    only = await prompt.says("doctor PLAIN --json")
    lines = failed.stdout.splitlines()
    assert failed.exit_code == 1
    assert re.split(r"  +", lines[0]) == list(COLUMNS)
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["error", "no_sidecar", "ORDERS"],
        ["warning", "schedules_unserved", "PLAIN"],
    ]
    assert lines[1].endswith("  nats-scheduler run")
    assert lines[-1] == "1 error, 1 warning; 1 of 2 streams carry schedules"
    assert only.exit_code == 3
    assert {finding["stream"] for finding in json.loads(only.stdout)["findings"]} == {"PLAIN"}


async def test_many_findings_of_one_kind_are_ten_rows_and_a_number(prompt: Prompt) -> None:
    count = MAX_LISTED + 7
    await emulated(prompt.account, "ORDERS")
    for number in range(count):
        await prompt.account.publish(f"ORDERS.{number}", schedule("ORDERS", "@often"))
    shown, document = await prompt.says("doctor"), json.loads((await prompt.says("doctor --json")).stdout)
    rows = [line for line in shown.stdout.splitlines() if Code.SCHEDULE_REJECTED in line]
    assert len(rows) == MAX_LISTED + 1
    assert rows[-1].split("  ")[-1] == "and 7 more"
    assert document["unlisted"] == [{"code": "schedule_rejected", "stream": "ORDERS", "number": 7}]
    assert document["counts"]["error"] == count + 1


def test_a_server_that_is_not_reached_is_a_finding(cli: Cli) -> None:
    said = cli("doctor", "--json", "--server", "nats://127.0.0.1:1")
    document = json.loads(said.stdout)
    assert (said.exit_code, document["worst"], document["server"]) == (1, "error", None)
    assert [finding["code"] for finding in document["findings"]] == ["no_server"]


SCHEDULES = 1_000
THIN_BYTES_PER_SECOND = 100_000
"""So that reading takes some seconds."""
FAR_NS = 10**18


@asynccontextmanager
async def reading_slowly(start_server: StartServer, folder: Path) -> AsyncIterator[Terminal]:
    """Examine a stream over a line that is thin while its schedules are read."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("ORDERS", metadata=FLAGGED, allow_msg_schedules=False)
        await store_herd(account, "ORDERS", CLOCK.now() + FAR_NS, SCHEDULES)
    async with proxy_to(server.url) as proxy:

        def is_thin(subject: bytes) -> bool:
            proxy.to_client.bytes_per_second = THIN_BYTES_PER_SECOND if subject.startswith(b"ORDERS.") else None
            return False

        proxy.to_client.loses = is_thin
        async with at_a_terminal(
            "doctor", "ORDERS", "--server", proxy.url, "--timeout", "60s", folder=folder
        ) as terminal:
            yield terminal


async def test_the_progress_is_shown_until_ctrl_c_ends_it_without_a_traceback(
    start_server: StartServer, tmp_path: Path
) -> None:
    async with reading_slowly(start_server, tmp_path) as terminal:
        await terminal.wait_for(progress_text("connecting", 0, 1))
        for what in ("schedules", "graduation"):
            shown = re.compile(rf"{what} of ORDERS  \[[#.]{{20}}\]  \d+ %  [\d,]+ of 1,000\r")
            await eventually(
                lambda shown=shown: shown.search(terminal.text),  # type: ignore[misc]
                within_seconds=TERMINAL_SECONDS,
                describe=lambda: terminal.text,
            )
        terminal.press_ctrl_c()
        assert await terminal.end() == INTERRUPTED
        await terminal.wait_for("^C")
        assert "Traceback" not in terminal.text
        assert terminal.text.rpartition(ERASE_LINE)[2].strip() == ""


async def test_progress_is_removed_at_the_end(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with at_a_terminal("doctor", "--server", server.url, folder=tmp_path) as terminal:
        assert await terminal.end() == 0
        await terminal.wait_for("nothing is wrong")
        before, _, after = terminal.text.rpartition(ERASE_LINE)
        assert progress_text("connecting", 0, 1) in before
        assert after.startswith("nothing is wrong")
