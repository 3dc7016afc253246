"""The streams that are served: what puts the flag on a stream, what cannot have it, and what never takes it off."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.engine.events import ScheduleRejected, StreamReady
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.runtime.discovery import MAX_RESTORES_AWAITED
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import HOUR, MINUTE
from tests.harness.account import Account, sidecar_on
from tests.harness.flagged import FLAG
from tests.harness.waiting import eventually
from tests.harness.watched import Watched

Lines = list[dict[str, Any]]
ROUNDS = 6


@asynccontextmanager
async def watching(server: EmbeddedServer, account: Account, name: str, said: Lines) -> AsyncIterator[Watched]:
    """Run a sidecar after the stream was made."""
    said.clear()
    async with sidecar_on(server.url) as running:
        yield Watched(account, name, running, server.url, server.version, said)


# -- ways to flag a stream -------------------------------------------------------------------------------------------


async def test_a_stream_created_with_the_flag_by_anyone_is_served_and_left_as_it_is(watched: Watched) -> None:
    made = await watched.create(metadata={"team": "shop"})
    await watched.fires()
    assert (await watched.remembered())["created"] == made["created"]
    assert (await watched.account.api.stream(watched.name))["config"] == made["config"]


async def test_a_stream_updated_with_the_flag_is_served_and_every_other_change_survives(watched: Watched) -> None:
    """A schedule that was stored before fires too."""
    await watched.create(allow_msg_schedules=False, allow_direct=True, metadata={"team": "none", "old": "1"})
    await watched.schedule_at("early", watched.subject("early.out"))
    changes = {
        "description": "new",
        "max_msgs": 1000,
        "max_age": HOUR,
        "duplicate_window": MINUTE,
        "allow_direct": False,
        "republish": {"src": f"{watched.name}.>", "dest": f"{watched.name}-again.>"},
        "metadata": {"team": "shop"},
        "subjects": [f"{watched.name}.>", f"{watched.name}-2.>"],
    }
    await watched.update(allow_msg_schedules=True, **changes)
    await watched.fires(target=f"{watched.name}-2.out")
    await watched.wait_for("early.out")
    await watched.config_with(**changes)


async def test_a_metadata_key_set_by_hand_stands_for_the_flag(watched: Watched) -> None:
    await watched.create(allow_msg_schedules=False)
    await watched.update(**FLAG)
    await watched.remembered()
    await watched.config_with(**FLAG, allow_rollup_hdrs=False)
    await watched.fires()


async def test_what_was_marked_before_the_sidecar_starts_is_served_at_start_however_it_says_yes(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: Lines
) -> None:
    """And a rewrite while no sidecar ran does not switch the flag off."""
    spelled = {f"{swept}-{text}": text for text in ("true", "TRUE", "1", "yes", "on")}
    for name, text in spelled.items():
        await account.create(name, allow_msg_schedules=False, metadata={METADATA_FLAG: text})
    async with sidecar_on(emulated_server.url) as running:
        for name in spelled:
            first = Watched(account, name, running, said=said)
            await first.fires()
            await first.remembered()
    await first.rewrite(description="rewritten")
    async with watching(emulated_server, account, first.name, said) as again:
        await again.fires("again")
        await again.config_with(metadata={}, description="rewritten")


# -- streams that cannot have it -------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "mirror": ({"mirror": {"name": "ORIGIN"}, "subjects": None}, 10186),
    "sources": ({"sources": [{"name": "ORIGIN"}]}, 10187),
    "discard-new": ({"discard": "new"}, 10052),
    "deny-purge": ({"deny_purge": True}, 10052),
    "deny-purge-without-rollup": ({"deny_purge": True, "allow_rollup_hdrs": False}, 10052),
    "pedantic": ({"pedantic": True}, 10052),
    "counter": ({"allow_msg_counter": True}, 10052),
    "a-word": ({"allow_msg_schedules": "yes"}, 10025),
    "a-number": ({"allow_msg_schedules": 1}, 10025),
    "a-list": ({"allow_msg_schedules": []}, 10025),
}


@pytest.mark.clause("stream-json")
async def test_a_stream_that_cannot_have_the_flag_is_refused_with_the_servers_code_and_left_as_it_is(
    watched: Watched,
) -> None:
    origin = f"{watched.name}-origin"
    await watched.account.create(origin, allow_msg_schedules=False)
    for kind, (config, code) in REFUSED.items():
        one = Watched(watched.account, f"{watched.name}-{kind}", watched.sidecar, said=watched.said)
        await one.create(**json.loads(json.dumps(config).replace("ORIGIN", origin)))
        line = await one.line("stream_refused", code=code)
        assert line["log_level"] == "warning", kind
        if code == 10025:
            assert line["description"].startswith("invalid JSON: json: cannot unmarshal "), kind
        assert (await one.config())["metadata"] == {}, kind
        assert one.name not in watched.sidecar.sidecar.served


async def test_updates_that_the_server_refuses_do_not_flag_their_streams(watched: Watched) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"retention": "workqueue"},
        {"storage": "file"},
        {"mirror": {"name": "other"}},
        {"deny_delete": False},
        {"deny_purge": False},
        {"max_consumers": 0},
        {"subjects": ["$JS.API.>"]},
    )
    names = [f"{watched.name}-{number}" for number in range(len(changes))]
    for name, change in zip(names, changes, strict=True):
        plain = {"deny_delete": True, "deny_purge": True, "max_consumers": 3}
        made = await watched.account.create(name, allow_msg_schedules=False, **plain)
        with pytest.raises(RefusedError):
            await watched.account.api.update_stream({**made["config"], "allow_msg_schedules": True, **change})
    for name in names:
        await watched.line("flag_not_in_force", stream=name)
        assert await watched.entry(name) is None
    assert not set(names) & set(watched.sidecar.sidecar.served)


# -- what does not switch it off -------------------------------------------------------------------------------------


async def test_a_rewrite_without_the_flag_or_with_an_explicit_no_does_not_switch_it_off_and_is_said(
    watched: Watched,
) -> None:
    """TTLs of messages stay allowed too."""
    await watched.served(allow_msg_ttl=True, metadata={"team": "shop"})
    await watched.rewrite(allow_msg_ttl=True, description="rewritten")
    await watched.line("flag_removal_ignored", code=10052)
    await watched.config_with(metadata={}, description="rewritten", allow_rollup_hdrs=False)
    await watched.schedule("ttl", "@at 2020-01-01T00:00:00Z", target="ttl.out", more={"TTL": "1h"})
    [fired] = await watched.wait_for("ttl.out")
    assert b"Nats-TTL: 1h\r\n" in fired.block
    watched.said.clear()
    await watched.rewrite(allow_msg_ttl=True, allow_msg_schedules=False, description="off?")
    said = await watched.line("flag_removal_ignored", code=10052)
    assert said["reason"] == "message schedules can not be disabled"
    await watched.config_with(metadata={}, description="off?")
    await watched.fires()


LATER_FAULTS: tuple[tuple[dict[str, Any], int], ...] = (
    ({"discard": "new", "allow_msg_schedules": True}, 10052),
    ({"discard": "new"}, 10052),
    ({"deny_purge": True, "allow_rollup_hdrs": False}, 10052),
    ({"pedantic": True, "allow_msg_schedules": True}, 10052),
    ({"allow_msg_counter": True, "allow_msg_schedules": True}, 10052),
    ({"allow_msg_schedules": "yes"}, 10025),
)


@pytest.mark.clause("stream-stays-on")
async def test_a_change_that_a_newer_server_refuses_is_told_and_the_schedules_go_on(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: Lines
) -> None:
    """There nothing changes; here the older server has made the change. After a restart it is the same."""
    names = [f"{swept}-{number}" for number in range(len(LATER_FAULTS))]
    async with sidecar_on(emulated_server.url) as running:
        for name, (change, code) in zip(names, LATER_FAULTS, strict=True):
            one = Watched(account, name, running, said=said)
            await one.served()
            await one.rewrite(**change)
            await one.line("stream_refused", code=code)
            await one.fires()
        assert not [line for line in said if line["event"] == "stream_not_served" and line["stream"] in names]
    async with watching(emulated_server, account, names[1], said) as again:
        await again.fires("again")
        await again.line("stream_refused", code=10052)


@pytest.mark.clause("stream-sources")
async def test_a_stream_that_is_given_sources_is_not_served_until_they_are_gone(watched: Watched) -> None:
    """A schedule that was copied from another stream would fire here as well as there."""
    origin = f"{watched.name}-origin"
    await watched.account.create(origin, allow_msg_schedules=False)
    await watched.served()
    await watched.rewrite(sources=[{"name": origin}])
    await watched.line("stream_refused", code=10187)
    await watched.line("stream_not_served")
    await watched.schedule_at("s", watched.subject("out"))
    await watched.rewrite(description="without sources")
    assert len(await watched.wait_for("out")) == 1


@pytest.mark.clause("stream-sealed")
async def test_a_sealed_stream_is_served_no_longer_and_not_refused(watched: Watched) -> None:
    await watched.served()
    await watched.update(sealed=True)
    await watched.line("stream_not_served", reason="the stream is sealed")
    assert not any(line["event"] == "stream_refused" for line in watched.said)


async def test_a_stream_that_is_gone_takes_its_flag_along(watched: Watched) -> None:
    await watched.served()
    await watched.delete()
    await watched.line("stream_not_served", reason="the stream is gone")
    assert watched.name not in watched.sidecar.sidecar.served

    async def is_noted() -> bool:
        return (await watched.entry() or {}).get("deleted") is True

    await eventually(is_noted, describe="it is noted that the stream was deleted")
    await watched.create(allow_msg_schedules=False)
    await watched.does_not_fire()


async def test_targets_follow_the_subjects_of_the_stream(watched: Watched) -> None:
    other = f"{watched.name}-other"
    await watched.served()
    await watched.schedule_at("s", f"{other}.out")
    await watched.reported(ScheduleRejected)
    await watched.update(subjects=[f"{watched.name}.>", f"{other}.>"])
    assert await watched.account.wait_for(watched.name, f"{other}.out")
    await watched.update(subjects=[f"{watched.name}.>"])
    await watched.reported(StreamReady, 3)
    await watched.schedule_at("late", f"{other}.out")
    await eventually(
        lambda: any(event.schedule.endswith(".late") for event in watched.of(ScheduleRejected)),
        describe="the late one is rejected",
    )
    assert {event.rejection.code for event in watched.of(ScheduleRejected)} == {10190}


# -- requests right behind each other ----------------------------------------------------------------------------------


async def all_flagged(watched: Watched, names: list[str], **wanted: Any) -> None:
    """Wait until all these streams are flagged, and have this configuration."""

    async def settled() -> bool:
        configs = [(await watched.account.api.stream(name))["config"] for name in names]
        assert [{key: config.get(key) for key in wanted} for config in configs] == [wanted] * len(names)
        return all([await watched.entry(name) for name in names]) and set(names) <= set(watched.sidecar.sidecar.served)

    await eventually(settled, describe=f"every stream is flagged, with {wanted}")


@pytest.mark.parametrize(
    ("first", "second"),
    [("UPDATE", {"allow_msg_schedules": True, "max_msgs": 77}), ("UPDATE", {}), ("CREATE", {})],
    ids=["with the flag", "without it", "after a creation"],
)
async def test_an_update_right_behind_the_one_with_the_flag_neither_is_undone_nor_undoes_it(
    watched: Watched, first: str, second: dict[str, Any]
) -> None:
    """The sidecar adopts the stream at that moment; without the flag the first request looks like a refused one."""
    names = [f"{watched.name}-{number}" for number in range(ROUNDS)]
    for name in names if first == "UPDATE" else ():
        await watched.account.create(name, allow_msg_schedules=False)
    for name in names:
        base = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"}
        call = watched.account.api.call
        await call(f"STREAM.{first}.{name}", {**base, "allow_msg_schedules": True, "description": "first"})
        await call(f"STREAM.UPDATE.{name}", {**base, "description": "second", **second})
    await all_flagged(watched, names, description="second", max_msgs=second.get("max_msgs", -1))


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


async def test_restores_that_never_begin_are_awaited_up_to_a_number(watched: Watched) -> None:
    connection = watched.account.connection
    await watched.served()
    for number in range(MAX_RESTORES_AWAITED + 2):
        name = f"{watched.name}-{number}"
        config = {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True}
        connection.publish(f"$JS.API.STREAM.RESTORE.{name}", json.dumps({"config": config, "state": "none"}).encode())
    for number in range(2):
        await watched.sidecar.told_of("request_skipped", stream=f"{watched.name}-{number}")
    await watched.fires()


# -- the registry ----------------------------------------------------------------------------------------------------

TRACE = b'{"server":{"name":"n"},"request":{"header":{"Nats-Trace-Dest":["x"]}},"events":[]}'
"""The message of a server if somebody makes it trace to the key of a flag."""


async def test_a_flag_that_cannot_be_read_still_counts_and_is_written_again(
    emulated_server: EmbeddedServer, account: Account, swept: str
) -> None:
    written = {f"{swept}-{n}": body for n, body in enumerate([TRACE, b"garbage", b"[]", b'{"created": 7}'])}

    async def created_of(name: str) -> object:
        entry = await account.api.message("KV_nats_scheduler", last_by_subj=f"$KV.nats_scheduler.stream.{name}")
        return (read_object((entry.body if entry else b"") or b"") or {}).get("created")

    async with sidecar_on(emulated_server.url) as running:
        for name in written:
            await account.create(name)
            await running.ready(name)
        before = [await created_of(name) for name in written]
    for name, body in written.items():
        await account.connection.request(f"$KV.nats_scheduler.stream.{name}", body)
    async with sidecar_on(emulated_server.url) as running:
        for name in written:
            await running.ready(name)
            assert (await running.told_of("registry_value_ignored", key=f"stream.{name}"))["reason"]

        async def are_whole() -> bool:
            return [await created_of(name) for name in written] == before

        await eventually(are_whole, describe="the flags are written again")


async def test_an_entry_that_somebody_removed_is_written_again(watched: Watched) -> None:
    await watched.served(allow_msg_ttl=True)
    entry = await watched.remembered()
    key = {"filter": f"$KV.nats_scheduler.stream.{watched.name}"}
    await watched.account.api.call("STREAM.PURGE.KV_nats_scheduler", key)
    await watched.update(description="a look at it")
    assert (await watched.remembered()).items() >= entry.items()
    await watched.fires()
