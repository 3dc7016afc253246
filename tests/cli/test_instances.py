"""The running sidecars as commands report them: who is alive, who owns and stands by what, and their settings.

It tests `runtime/fleet.py` too.
"""

from __future__ import annotations

import json

from nats_scheduler.runtime.shared import SETTINGS, SHARED_SETTINGS, shared_settings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.cli.prompt import NEVER, Prompt
from tests.harness.account import Account, sidecar_on
from tests.harness.waiting import eventually

KEY = f"$KV.nats_scheduler.{SETTINGS}"


async def test_one_that_is_silent_or_gone_is_told_from_one_that_lives(prompt: Prompt) -> None:
    assert "no sidecar lives on this account" in await prompt.shows("instances")
    async with sidecar_on(prompt.url):
        pass
    assert "no sidecar lives on this account" in await prompt.shows("instances"), "it left"
    account = prompt.account
    alive = {"serves": ["emulated.JOBS"], "unable": {"emulated.JOBS": "may not\x1b[2J publish"}}
    await account.publish("$KV.nats_scheduler.instance.abc", body=json.dumps(alive).encode())
    record = {"owner": "xyz", "since": "2026-03-01T12:00:00Z", "before": "abc", "reason": "idle"}
    await account.publish("$KV.nats_scheduler.owner.native.JOBS", body=json.dumps(record).encode())

    async def states() -> bool:
        document = await prompt.document("instances")
        return {one["id"]: one["state"] for one in document["instances"]} == {"abc": "silent", "xyz": "gone"}

    await eventually(states, describe="who says nothing more is silent, and an owner that is not there is gone")
    assert (await prompt.shows("instances")).splitlines()[-2:] == [
        "JOBS has no owner, since xyz is not alive: nothing fires its schedules",
        "abc cannot serve JOBS: may not\\x1b[2J publish",
    ]


async def settings_published(account: Account, count: int) -> list[str]:
    """Wait until `count` sidecars have published their settings, and return their ids."""

    async def enough() -> list[str] | None:
        message = await account.api.message("KV_nats_scheduler", last_by_subj=KEY)
        found = sorted(json.loads(message.body or b"{}")) if message is not None else []
        return [*found, ""] if len(found) == count else None

    found: list[str] = await eventually(enough, describe=f"{count} sidecars publish their settings")
    return found[:-1]


async def test_lists_go_by_the_settings_of_the_sidecar_that_runs(prompt: Prompt) -> None:
    restricted = {"allowed_targets": ("ORDERS=ORDERS.out",), "portable_streams": ("NAMED",)}
    async with sidecar_on(prompt.url, max_schedules=("*=9",), **restricted) as running:
        await prompt.account.create("ORDERS")
        await prompt.account.create("NAMED", allow_msg_schedules=False)
        await running.ready("ORDERS")
        await settings_published(prompt.account, 1)
        for name in ("out", "secret"):
            await prompt.schedule(f"ORDERS.s.{name}", NEVER, f"ORDERS.{name}")
        document = await prompt.document("ls")
        assert [one["stream"] for one in document["streams"]] == ["NAMED", "ORDERS"]
        assert [one["subject"] for one in document["schedules"]] == ["ORDERS.s.out"]
        assert [one["subject"] for one in document["invalid"]] == ["ORDERS.s.secret"]
        assert document["warnings"] == []
        assert [one["stream"] for one in (await prompt.document("stream ls"))["streams"]] == ["NAMED", "ORDERS"]
        async with sidecar_on(prompt.url, max_schedules=("*=2",), **restricted):
            await settings_published(prompt.account, 2)
            (warning,) = (await prompt.document("ls"))["warnings"]
            assert warning.startswith("the sidecars disagree about max_schedules: ")
            assert ("*=9" in warning, "*=2" in warning) == (True, True)


async def test_settings_that_a_stranger_wrote_are_told_or_removed(prompt: Prompt) -> None:
    account = prompt.account
    async with sidecar_on(prompt.url):
        await account.create("ORDERS")
        (name,) = await settings_published(account, 1)
        for value in ({"max_schedules": ["*=-5"]}, {"max_schedules": 7}, {"too_large": True}, 7):
            await account.publish(KEY, body=json.dumps({name: value}).encode())
            (warning,) = (await prompt.document("ls"))["warnings"]
            assert "publishes its settings in a form that this version cannot read" in warning
    await settings_published(account, 0)
    await account.publish(KEY, body=b'{"killed": {}}')
    async with sidecar_on(prompt.url):

        async def was_replaced() -> bool:
            return await settings_published(account, 1) != ["killed"]

        await eventually(was_replaced, describe="those of a killed sidecar are gone")


def test_no_secret_and_nothing_too_large_is_told() -> None:
    assert set(shared_settings(SidecarSettings())) == set(SHARED_SETTINGS)
    many = tuple(f"STREAM{number}=subject.{number}" for number in range(5_000))
    assert shared_settings(SidecarSettings.model_validate({"allowed_targets": many})) == {"too_large": True}
