"""`nats-scheduler failures` and `changes`: what went wrong and who changed what, as it is kept, newest first.

It tests `cli/kept_advisories.py` too.
"""

from __future__ import annotations

import asyncio
import json

from tests.cli.changing_site import Site
from tests.cli.prompt import FAR, Prompt
from tests.harness.account import Account
from tests.harness.waiting import eventually

STREAM = "nats_scheduler_failures"


async def create_what_keeps(account: Account) -> None:
    """Create the stream in which a sidecar keeps advisories."""
    await account.create(STREAM, subjects=["nats_scheduler.advisory.>"], allow_msg_schedules=None)


async def test_what_is_no_advisory_is_passed_over(prompt: Prompt) -> None:
    said = await prompt.says("failures")
    assert (said.exit_code, f"stream {STREAM} does not exist: a sidecar creates it" in said.stderr) == (1, True)
    said = await prompt.says("changes", env={"NATS_SCHEDULER_FAILURES_STREAM": "none_such"})
    assert (said.exit_code, "stream none_such does not exist" in said.stderr) == (1, True)
    account = prompt.account
    await create_what_keeps(account)
    good = {"type": "io.nats_scheduler.advisory.v1.cannot_serve", "stream": "S", "reason": "x"}
    for body in (b"no JSON", b"[]", b'{"stream": 7}', json.dumps({**good, "schedule": 7}).encode()):
        await account.publish("nats_scheduler.advisory.cannot_serve.S", body=body)
    await account.publish("nats_scheduler.advisory.cannot_serve.T", body=json.dumps(good).encode())
    sequence = await account.publish("nats_scheduler.advisory.cannot_serve.S", body=json.dumps(good).encode())
    for words in ("", "S"):
        [one] = (await prompt.document(f"failures {words}"))["failures"]
        assert (one["sequence"], one["schedule"], one["kind"]) == (sequence, None, "cannot_serve")
    assert (await prompt.document("failures S S.>"))["failures"] == []


async def test_each_change_is_shown_with_its_author_and_its_reason(orders: Site) -> None:
    found = await orders.account.api.stream(STREAM)
    if found is None:
        await create_what_keeps(orders.account)
    add = ("add", ".a", "--at", FAR, "--target", orders.subject("out"))
    await orders.done(*add, "--reason", "the start")
    await orders.done("rm", ".a", "--reason", "the end")

    async def shown() -> list[str] | None:
        said = await asyncio.to_thread(orders.cli, "changes", orders.stream, "--server", orders.url)
        lines: list[str] = said.stdout.splitlines()
        return lines if lines[-1] == "2 changes, newest first" else None

    *_, removed, added, _number = await eventually(shown, describe="both changes")
    about = [orders.stream, orders.subject("a")]
    assert removed.split()[1:7] == [*about, "removed", "ops", "the", "end"]
    assert added.split()[1:7] == [*about, "added", "ops", "the", "start"]
