"""The commands that change schedules need the permissions that `docs/operating/security.md` lists, and no others.

Those of the commands that ask and read are in `test_asking.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_reference import as_user, held_to, users_of
from tests.cli.prompt import FAR, Cli, Prompt, prompt_on
from tests.conftest import StartServer
from tests.harness.account import Account
from tests.harness.servers import V2_15

CHANGING = (
    (f"add ORDERS orders.new --at {FAR} --target orders.out", f"edit ORDERS orders.s --at {FAR}"),
    ("pause ORDERS orders.s", "resume ORDERS orders.* --yes"),
    ("rm ORDERS orders.* --yes",),
    ("fire ORDERS orders.s", "backfill ORDERS orders.s --from 2026-01-01T00:00:00Z --to 2026-01-01T02:00:00Z"),
    ("changes",),
)
FILES = (("export ORDERS",), ("diff {file} --prune",), ("apply {file} --prune --yes",))
"""The commands of each column, which are run one after the other; the file adds a schedule and removes another."""
ENDED_WITH = {"diff": 1}
"""The exit codes other than 0: there is a difference."""


async def store(account: Account) -> None:
    """Store the schedule that the commands are about, and nothing else."""
    await account.api.call("STREAM.PURGE.ORDERS", {})
    name = "X-Nats-Schedule"
    headers = {name: "@every 1h", f"{name}-Target": "orders.out", f"{name}-X-Anchor": "2026-01-01T00:00:00Z"}
    await account.publish("orders.s", headers | {f"{name}-X-Owner": "me"})


@pytest.mark.parametrize(
    ("section", "columns"),
    [("Users of the commands that change schedules", CHANGING), ("Users of files of schedules", FILES)],
    ids=["changing", "files"],
)
async def test_the_permissions_are_enough_and_each_is_needed(
    cli: Cli,
    start_server: StartServer,
    tmp_path: Path,
    section: str,
    columns: tuple[tuple[str, ...], ...],
) -> None:
    limited = users_of(section, len(columns))
    server = await start_server(V2_15, config=held_to(limited))
    file = tmp_path / "schedules.yaml"
    new = f"{{subject: orders.new, at: '{FAR}', target: orders.out}}"
    file.write_text(f"stream: ORDERS\nowner: me\nspelling: portable\nschedules:\n  - {new}\n")
    async with prompt_on(cli, as_user(server.url, "all")) as prompt:
        account = prompt.account
        await prompt.create(subjects=["orders.>"])
        await account.create("KV_nats_scheduler", subjects=["$KV.nats_scheduler.>"], allow_msg_schedules=None)
        kept = {"subjects": ["nats_scheduler.advisory.>"], "allow_msg_schedules": None}
        await account.create("nats_scheduler_failures", **kept)
        await store(account)
        await prompt.shows("fire ORDERS orders.s")
        await account.wait_for("nats_scheduler_failures", "nats_scheduler.advisory.>")
        for user, (column, _granted) in limited.items():
            await store(account)
            mine, is_whole = Prompt(cli, as_user(server.url, user), account), user.startswith("whole")
            patience = () if is_whole else ("--timeout", "1s")
            lines = [line.format(file=file) for line in columns[column]]
            ended = [(await mine.says(line, *patience)).exit_code for line in lines]
            expected = [ENDED_WITH.get(line.split()[0], 0) for line in lines]
            assert (ended == expected) is is_whole, (user, lines, ended)
