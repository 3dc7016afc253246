"""`nats-scheduler doctor`: the table, the document and the exit codes."""

from __future__ import annotations

import json
import re

from nats_scheduler.cli.doctor import COLUMNS
from tests.cli.prompt import Prompt
from tests.doctor.scenes import emulated, unflagged


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
