"""Updates of others right behind a flag, or at once, are never lost to the sidecar's own updates."""

import asyncio

import pytest

from nats_scheduler.engine.events import ScheduleRejected, StreamReady
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, sidecar_on
from tests.harness.waiting import eventually
from tests.harness.watched import SOON_SECONDS, Watched

ROUNDS = 12


async def test_an_update_right_behind_the_one_with_the_flag_is_never_undone(watched: Watched) -> None:
    """The sidecar adopts the stream with an update of its own at the very moment of the second."""
    names = [f"{watched.name}-{number}" for number in range(ROUNDS)]
    for name in names:
        await watched.account.create(name, allow_msg_schedules=False)
    for name in names:
        base = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "allow_msg_schedules": True}
        await watched.account.api.call(f"STREAM.UPDATE.{name}", {**base, "description": "first"})
        await watched.account.api.call(f"STREAM.UPDATE.{name}", {**base, "description": "second", "max_msgs": 77})

    async def settled() -> bool:
        configs = [(await watched.account.api.stream(name))["config"] for name in names]
        assert [(c.get("description"), c["max_msgs"]) for c in configs] == [("second", 77)] * ROUNDS
        return all([await watched.entry(name) for name in names])

    await eventually(settled, within_seconds=SOON_SECONDS, describe="every second update is in force")


@pytest.mark.parametrize("kind", ["CREATE", "UPDATE"])
async def test_a_flag_is_not_lost_to_an_update_without_it_right_behind(watched: Watched, kind: str) -> None:
    """To a sidecar that looks then, the first request looks like a refused one; the server would keep its flag."""
    names = [f"{watched.name}-{number}" for number in range(ROUNDS)]
    for name in names if kind == "UPDATE" else ():
        await watched.account.create(name, allow_msg_schedules=False)
    for name in names:
        base = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"}
        await watched.account.api.call(f"STREAM.{kind}.{name}", {**base, "allow_msg_schedules": True})
        await watched.account.api.call(f"STREAM.UPDATE.{name}", {**base, "description": "second"})

    async def settled() -> bool:
        configs = [(await watched.account.api.stream(name))["config"] for name in names]
        assert [config.get("description") for config in configs] == ["second"] * ROUNDS
        return all([await watched.entry(name) for name in names])

    await eventually(settled, within_seconds=SOON_SECONDS, describe="every stream is flagged and updated")
    await eventually(lambda: set(names) <= set(watched.sidecar.sidecar.served), within_seconds=SOON_SECONDS)


async def test_streams_made_again_without_the_flag_right_behind_are_not_flagged(watched: Watched) -> None:
    names = [f"{watched.name}-{number}" for number in range(ROUNDS)]
    for name in names:
        await watched.account.create(name)
        await watched.account.api.call(f"STREAM.DELETE.{name}")
        await watched.account.create(name, allow_msg_schedules=False)
    await watched.create()
    await watched.fires()
    for name in names:
        created = (await watched.account.api.stream(name))["created"]
        assert (await watched.entry(name) or {}).get("created") != created
    assert not set(names) & set(watched.sidecar.sidecar.served)


async def test_updates_of_many_tools_at_once_all_leave_the_flag_and_the_last_change(watched: Watched) -> None:
    await watched.create()
    await watched.sidecar.ready(watched.name)
    numbers = range(1, ROUNDS + 1)
    await asyncio.gather(*(watched.rewrite(description=f"tool {number}") for number in numbers))
    last = (await watched.config())["description"]
    await watched.config_with(metadata={}, description=last)
    await watched.fires()


async def test_targets_follow_the_subjects_of_the_stream(watched: Watched) -> None:
    other = f"{watched.name}-other"
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.schedule("s", f"{other}.out")
    [rejected] = await eventually(
        lambda: watched.sidecar.of(watched.name, ScheduleRejected), within_seconds=SOON_SECONDS
    )
    assert rejected.rejection.code == 10190
    await watched.update(subjects=[f"{watched.name}.>", f"{other}.>"])
    assert await watched.account.wait_for(watched.name, f"{other}.out")
    await watched.update(subjects=[f"{watched.name}.>"])
    await eventually(lambda: len(watched.sidecar.of(watched.name, StreamReady)) >= 3, within_seconds=SOON_SECONDS)
    await watched.schedule("late", f"{other}.out")
    late = await eventually(
        lambda: [
            event.rejection.code
            for event in watched.sidecar.of(watched.name, ScheduleRejected)
            if event.schedule.endswith(".late")
        ],
        within_seconds=SOON_SECONDS,
    )
    assert late == [10190]


TRACE = b'{"server":{"name":"n"},"request":{"header":{"Nats-Trace-Dest":["x"]}},"events":[]}'
"""The message of a server if somebody makes it trace to the key of a flag."""


@pytest.mark.parametrize("written", [TRACE, b"garbage", b"[]", b'{"created": 7}'])
async def test_a_flag_that_cannot_be_read_still_counts_and_is_written_again(
    emulated_server: EmbeddedServer, account: Account, swept: str, written: bytes
) -> None:
    key = f"$KV.nats_scheduler.stream.{swept}"
    async with sidecar_on(emulated_server.url) as running:
        await account.create(swept)
        await running.ready(swept)
        before = await account.api.message("KV_nats_scheduler", last_by_subj=key)
    await account.connection.request(key, written)
    async with sidecar_on(emulated_server.url) as running:
        await running.ready(swept)
        assert (await running.told_of("registry_value_ignored", key=f"stream.{swept}"))["reason"]

        async def is_whole() -> bool:
            after = await account.api.message("KV_nats_scheduler", last_by_subj=key)
            assert before is not None
            assert after is not None
            return created_in(after.body) == created_in(before.body)

        await eventually(is_whole, within_seconds=SOON_SECONDS, describe="the flag is written again")
        await account.api.call(f"STREAM.DELETE.{swept}")
        await eventually(lambda: swept not in running.sidecar.served, within_seconds=SOON_SECONDS)


def created_in(body: bytes | None) -> object:
    """Return when the stream of an entry was created, as the entry has it."""
    entry = read_object(body or b"") or {}
    return entry.get("created")
