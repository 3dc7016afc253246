"""Which streams are served: by request, by file, by metadata, and what never switches the flag on or off."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_scheduler.engine.events import ScheduleRejected, StreamReady
from nats_scheduler.jetstream.errors import ApiError
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import HOUR, MINUTE
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

SOON_SECONDS = 30.0
MARKED = {METADATA_FLAG: "true"}
ROUNDS = 12


@dataclass
class Watched:
    """An account that a sidecar watches, one stream name, and the lines that the sidecar logged."""

    account: Account
    sidecar: Running
    name: str
    url: str
    said: list[dict[str, Any]]

    async def create(self, **config: Any) -> Any:
        """Create the stream, flagged unless the test says otherwise."""
        return await self.account.create(self.name, **config)

    async def update(self, **changes: Any) -> None:
        """Update the stream as a tool does that rewrites what STREAM.INFO tells it."""
        await self.account.api.call(f"STREAM.UPDATE.{self.name}", {**await self.config(), **changes})

    async def rewrite(self, **config: Any) -> None:
        """Update the stream as a tool does that knows only its own file."""
        wanted = {"name": self.name, "subjects": [f"{self.name}.>"], "storage": "memory", **config}
        await self.account.api.call(f"STREAM.UPDATE.{self.name}", wanted)

    async def delete(self) -> None:
        """Delete the stream."""
        await self.account.api.call(f"STREAM.DELETE.{self.name}")

    async def config(self) -> dict[str, Any]:
        """Return the stream's configuration without the server's own metadata."""
        config = (await self.account.api.stream(self.name))["config"]
        metadata = {k: v for k, v in (config.get("metadata") or {}).items() if not k.startswith("_nats.")}
        return {**config, "metadata": metadata}

    async def config_with(self, **wanted: Any) -> dict[str, Any]:
        """Wait until the configuration has these values and return it."""

        async def shown() -> dict[str, Any] | None:
            config = await self.config()
            return config if {key: config.get(key) for key in wanted} == wanted else None

        found: dict[str, Any] = await eventually(shown, within_seconds=SOON_SECONDS, describe=f"a stream with {wanted}")
        return found

    async def fires(self, rest: str = "s", target: str | None = None) -> None:
        """Show that the stream is served: a schedule on it fires."""
        await self.schedule(rest, target or f"{self.name}.out")
        await self.account.wait_for(self.name, target or f"{self.name}.out")

    async def schedule(self, rest: str, target: str) -> None:
        """Store a schedule that is due now."""
        headers = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": target}
        await self.account.publish(f"{self.name}.{rest}", headers)

    async def does_not_fire(self) -> None:
        """Show that the stream is not served: a schedule on it has not fired when a later one elsewhere has."""
        await self.schedule("s", f"{self.name}.out")
        canary = f"{self.name}-canary"
        await self.account.create(canary)
        headers = {"Nats-Schedule": f"@at {in_seconds(0.2)}", "Nats-Schedule-Target": f"{canary}.out"}
        await self.account.publish(f"{canary}.s", headers)
        await self.account.wait_for(canary, f"{canary}.out")
        assert await self.account.messages(self.name, f"{self.name}.out") == []
        assert self.name not in self.sidecar.sidecar.services

    async def line(self, event: str, **fields: Any) -> dict[str, Any]:
        """Wait until the sidecar has logged an event about the stream."""
        wanted = {"event": event, "stream": self.name, **fields}

        def logged() -> dict[str, Any] | None:
            return next((line for line in self.said if wanted.items() <= line.items()), None)

        found: dict[str, Any] = await eventually(logged, within_seconds=SOON_SECONDS, describe=f"a line like {wanted}")
        return found


@pytest.fixture
def said() -> Iterator[list[dict[str, Any]]]:
    """Collect what is logged."""
    with capture_logs() as lines:
        yield lines  # type: ignore[misc]


@pytest.fixture
async def swept(account: Account, stream_name: str) -> AsyncIterator[str]:
    """Name a stream, and delete all streams whose names begin so when the test is over."""
    yield stream_name
    names = [info["config"]["name"] async for info in account.api.streams()]
    for name in names:
        if name.startswith(stream_name):
            await account.api.call(f"STREAM.DELETE.{name}")


@pytest.fixture
async def watched(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]]
) -> AsyncIterator[Watched]:
    """Run a sidecar on a server of each version that we fire for; the stream is for the test to make."""
    async with sidecar_on(emulated_server.url) as running:
        yield Watched(account, running, swept, emulated_server.url, said)


# -- ways to flag a stream -------------------------------------------------------------------------------------------


async def test_a_stream_created_with_the_flag_by_anyone_is_served_and_marked(watched: Watched) -> None:
    await watched.create(metadata={"team": "shop"})
    await watched.config_with(metadata={"team": "shop", **MARKED}, allow_rollup_hdrs=True, deny_purge=False)
    await watched.fires()


async def test_a_stream_updated_with_the_flag_is_served_and_every_other_change_survives(watched: Watched) -> None:
    await watched.create(allow_msg_schedules=False, allow_direct=True, metadata={"team": "none", "old": "1"})
    changes = {
        "description": "new",
        "max_msgs": 1000,
        "max_age": HOUR,
        "duplicate_window": MINUTE,
        "allow_direct": False,
        "republish": {"src": f"{watched.name}.>", "dest": f"{watched.name}-again.>"},
        "metadata": {"team": "shop"},
    }
    await watched.update(allow_msg_schedules=True, subjects=[f"{watched.name}.>", f"{watched.name}-2.>"], **changes)
    await watched.fires(target=f"{watched.name}-2.out")
    subjects = [f"{watched.name}.>", f"{watched.name}-2.>"]
    await watched.config_with(**{**changes, "metadata": {"team": "shop", **MARKED}, "subjects": subjects})


async def test_a_schedule_stored_before_the_flag_was_put_fires(watched: Watched) -> None:
    await watched.create(allow_msg_schedules=False)
    await watched.schedule("s", f"{watched.name}.out")
    await watched.update(allow_msg_schedules=True)
    assert await watched.account.wait_for(watched.name, f"{watched.name}.out")


async def test_a_metadata_key_set_by_hand_stands_for_the_flag(watched: Watched) -> None:
    await watched.create(allow_msg_schedules=False)
    await watched.update(metadata=MARKED)
    await watched.config_with(metadata=MARKED, allow_rollup_hdrs=True)
    await watched.fires()


@pytest.mark.parametrize("spelled", ["TRUE", "1", "yes", "on"])
async def test_a_mark_is_understood_however_it_says_yes(watched: Watched, spelled: str) -> None:
    await watched.create(allow_msg_schedules=False, metadata={METADATA_FLAG: spelled})
    await watched.fires()


async def test_a_stream_marked_before_the_sidecar_starts_is_served_at_start(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]]
) -> None:
    await account.create(swept, allow_msg_schedules=False, metadata=MARKED)
    async with sidecar_on(emulated_server.url) as running:
        await Watched(account, running, swept, emulated_server.url, said).fires()


async def test_the_streams_of_a_folder_are_created_and_served(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]], tmp_path: Path
) -> None:
    put(tmp_path, {"name": swept, "subjects": [f"{swept}.>"], "storage": "memory", "deny_purge": True})
    async with sidecar_on(emulated_server.url, streams_folder=tmp_path) as running:
        watched = Watched(account, running, swept, emulated_server.url, said)
        await watched.line("stream_configured", created=True)
        await watched.config_with(metadata=MARKED, allow_rollup_hdrs=True, deny_purge=False)
        await watched.fires()


async def test_a_folder_updates_a_stream_that_exists_and_leaves_it_flagged(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]], tmp_path: Path
) -> None:
    await account.create(swept, allow_msg_schedules=False, metadata={"team": "shop"})
    config = {"name": swept, "subjects": [f"{swept}.>"], "storage": "memory", "description": "from a file"}
    put(tmp_path, config)
    async with sidecar_on(emulated_server.url, streams_folder=tmp_path) as running:
        watched = Watched(account, running, swept, emulated_server.url, said)
        await watched.line("stream_configured", created=False)
        await watched.config_with(metadata={"team": "shop", **MARKED}, description="from a file")
        await watched.fires()


# -- what does not switch it off -------------------------------------------------------------------------------------


async def test_a_rewrite_without_the_flag_does_not_switch_it_off_and_is_said(watched: Watched) -> None:
    await watched.create(metadata={"team": "shop"})
    await watched.config_with(metadata={"team": "shop", **MARKED})
    await watched.rewrite(description="rewritten")
    await watched.config_with(metadata=MARKED, description="rewritten", allow_rollup_hdrs=True)
    await watched.line("flag_restored")
    await watched.fires()


async def test_a_rewrite_while_no_sidecar_ran_does_not_switch_it_off(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]]
) -> None:
    async with sidecar_on(emulated_server.url) as running:
        first = Watched(account, running, swept, emulated_server.url, said)
        await first.create()
        await first.config_with(metadata=MARKED)
    await first.rewrite(description="rewritten")
    async with sidecar_on(emulated_server.url) as running:
        watched = Watched(account, running, swept, emulated_server.url, said)
        await watched.fires()
        await watched.config_with(metadata=MARKED, description="rewritten")
        await watched.line("flag_restored")


async def test_an_explicit_no_does_not_switch_it_off_and_is_said(watched: Watched) -> None:
    await watched.create()
    await watched.config_with(metadata=MARKED)
    await watched.rewrite(allow_msg_schedules=False, description="off?")
    said = await watched.line("flag_stays_on", code=10052)
    assert said["reason"] == "message schedules can not be disabled"
    await watched.config_with(metadata=MARKED, description="off?")
    await watched.fires()


async def test_message_ttls_stay_allowed_through_a_rewrite(watched: Watched) -> None:
    await watched.create(allow_msg_ttl=True)
    await watched.sidecar.ready(watched.name)
    await watched.rewrite(allow_msg_ttl=True, description="rewritten")
    await watched.config_with(description="rewritten", allow_rollup_hdrs=True)
    at = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": f"{watched.name}.out"}
    await watched.account.publish(f"{watched.name}.s", {**at, "Nats-Schedule-TTL": "1h"})
    [fired] = await watched.account.wait_for(watched.name, f"{watched.name}.out")
    assert b"Nats-TTL: 1h\r\n" in fired.block


# -- deleted and made again ------------------------------------------------------------------------------------------


async def test_a_stream_made_again_without_the_flag_is_not_served(watched: Watched) -> None:
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.delete()
    await watched.create(allow_msg_schedules=False)
    await watched.line("stream_not_served")
    await watched.does_not_fire()


async def test_a_stream_made_again_with_the_flag_is_served_and_knows_nothing_of_the_first(watched: Watched) -> None:
    await watched.create()
    await watched.account.publish(
        f"{watched.name}.s",
        {"Nats-Schedule": f"@at {in_seconds(0.7)}", "Nats-Schedule-Target": f"{watched.name}.old"},
    )
    await watched.sidecar.ready(watched.name)
    await watched.delete()
    await watched.create()
    headers = {"Nats-Schedule": f"@at {in_seconds(0.9)}", "Nats-Schedule-Target": f"{watched.name}.new"}
    sequence = await watched.account.publish(f"{watched.name}.s", headers)
    [fired] = await watched.account.wait_for(watched.name, f"{watched.name}.new")
    assert (sequence, b"Nats-Msg-Id: nats-scheduler:1:" in fired.block) == (1, True)
    assert await watched.account.messages(watched.name, f"{watched.name}.old") == []


async def test_a_stream_that_is_gone_is_served_no_longer(watched: Watched) -> None:
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.delete()
    await watched.line("stream_not_served", reason="the stream is gone")
    assert watched.name not in watched.sidecar.sidecar.services


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "code"),
    [
        pytest.param({"mirror": {"name": "{origin}"}, "subjects": None}, 10186, id="mirror"),
        pytest.param({"sources": [{"name": "{origin}"}]}, 10187, id="sources"),
        pytest.param({"discard": "new"}, 10052, id="discard-new"),
        pytest.param({"deny_purge": True}, 10052, id="deny-purge"),
        pytest.param({"deny_purge": True, "allow_rollup_hdrs": False}, 10052, id="deny-purge-without-rollup"),
        pytest.param({"pedantic": True}, 10052, id="pedantic"),
        pytest.param({"allow_msg_counter": True}, 10052, id="counter"),
    ],
)
async def test_a_stream_that_cannot_have_the_flag_is_refused_with_the_servers_code_and_left_as_it_is(
    watched: Watched, config: Mapping[str, Any], code: int
) -> None:
    origin = f"{watched.name}-origin"
    await watched.account.create(origin, allow_msg_schedules=False)
    await watched.create(**json.loads(json.dumps(config).replace("{origin}", origin)))
    line = await watched.line("stream_refused", code=code)
    assert line["log_level"] == "warning"
    assert (await watched.config())["metadata"] == {}
    assert watched.name not in watched.sidecar.sidecar.services


REFUSED_CHANGES: tuple[dict[str, Any], ...] = (
    {"retention": "workqueue"},
    {"storage": "file"},
    {"mirror": {"name": "other"}},
    {"deny_delete": False},
    {"deny_purge": False},
    {"max_consumers": 0},
    {"subjects": ["$JS.API.>"]},
)


async def test_updates_that_the_server_refuses_do_not_flag_their_streams(watched: Watched) -> None:
    names = [f"{watched.name}-{number}" for number in range(len(REFUSED_CHANGES))]
    for name, change in zip(names, REFUSED_CHANGES, strict=True):
        plain = {"deny_delete": True, "deny_purge": True, "max_consumers": 3}
        made = await watched.account.create(name, allow_msg_schedules=False, **plain)
        with pytest.raises(ApiError):
            await watched.account.api.update_stream({**made["config"], "allow_msg_schedules": True, **change})
    for name in names:
        await watched.line("flag_not_seen", stream=name)
        config = (await watched.account.api.stream(name))["config"]
        assert METADATA_FLAG not in (config.get("metadata") or {})
    assert not set(names) & set(watched.sidecar.sidecar.services)


LATER_FAULTS = [
    pytest.param({"discard": "new", "allow_msg_schedules": True}, 10052, id="discard-new"),
    pytest.param({"discard": "new"}, 10052, id="discard-new-without-the-flag"),
    pytest.param({"deny_purge": True, "allow_rollup_hdrs": False}, 10052, id="deny-purge"),
    pytest.param({"pedantic": True, "allow_msg_schedules": True}, 10052, id="pedantic"),
    pytest.param({"allow_msg_counter": True, "allow_msg_schedules": True}, 10052, id="counter"),
    pytest.param({"allow_msg_schedules": "yes"}, 10025, id="json"),
]


@pytest.mark.clause("stream-stays-on")
@pytest.mark.parametrize(("change", "code"), LATER_FAULTS)
async def test_a_change_that_a_newer_server_refuses_is_told_and_the_schedules_go_on(
    watched: Watched, change: dict[str, Any], code: int
) -> None:
    """There nothing changes; here the older server has made the change, but the schedules go on as they do there."""
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.rewrite(**change)
    await watched.line("stream_refused", code=code)
    await watched.fires()
    assert not any(line["event"] == "stream_not_served" for line in watched.said)


@pytest.mark.clause("stream-stays-on")
async def test_schedules_go_on_after_a_restart_too(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]]
) -> None:
    async with sidecar_on(emulated_server.url) as running:
        first = Watched(account, running, swept, emulated_server.url, said)
        await first.create()
        await first.sidecar.ready(swept)
        await first.update(discard="new")
        await first.line("stream_refused", code=10052)
    said.clear()
    async with sidecar_on(emulated_server.url) as running:
        watched = Watched(account, running, swept, emulated_server.url, said)
        await watched.fires()
        await watched.line("stream_refused", code=10052)


@pytest.mark.clause("stream-sources")
async def test_a_stream_that_is_given_sources_is_not_served_until_they_are_gone(watched: Watched) -> None:
    """A schedule that was copied from another stream would fire here as well as there."""
    origin = f"{watched.name}-origin"
    await watched.account.create(origin, allow_msg_schedules=False)
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.rewrite(sources=[{"name": origin}])
    await watched.line("stream_refused", code=10187)
    await watched.line("stream_not_served")
    await watched.schedule("s", f"{watched.name}.out")
    await watched.rewrite(description="without sources")
    assert len(await watched.account.wait_for(watched.name, f"{watched.name}.out")) == 1


@pytest.mark.clause("stream-sealed")
async def test_a_sealed_stream_is_served_no_longer_and_not_refused(watched: Watched) -> None:
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.update(sealed=True)
    await watched.line("stream_not_served", reason="the stream is sealed")
    assert not any(line["event"] == "stream_refused" for line in watched.said)


@pytest.mark.clause("stream-json")
@pytest.mark.parametrize("value", ["yes", 1, []])
async def test_a_flag_that_is_neither_true_nor_false_is_refused_and_flags_nothing(watched: Watched, value: Any) -> None:
    await watched.create(allow_msg_schedules=value)
    line = await watched.line("stream_refused", code=10025)
    assert line["description"].startswith("invalid JSON: json: cannot unmarshal ")
    assert (await watched.config())["metadata"] == {}
    assert watched.name not in watched.sidecar.sidecar.services


# -- the sidecar's own updates ---------------------------------------------------------------------------------------


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
        told = [(c.get("description"), c["max_msgs"], (c.get("metadata") or {}).get(METADATA_FLAG)) for c in configs]
        assert told == [("second", 77, "true")] * ROUNDS
        return True

    await eventually(settled, within_seconds=SOON_SECONDS, describe="every second update is in force")


@pytest.mark.parametrize("kind", ["CREATE", "UPDATE"])
async def test_a_flag_is_not_lost_to_an_update_without_it_right_behind(watched: Watched, kind: str) -> None:
    """When the sidecar looks, the first request cannot be told from a refused one; the server would keep its flag."""
    names = [f"{watched.name}-{number}" for number in range(ROUNDS)]
    for name in names if kind == "UPDATE" else ():
        await watched.account.create(name, allow_msg_schedules=False)
    for name in names:
        base = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"}
        await watched.account.api.call(f"STREAM.{kind}.{name}", {**base, "allow_msg_schedules": True})
        await watched.account.api.call(f"STREAM.UPDATE.{name}", {**base, "description": "second"})

    async def settled() -> bool:
        configs = [(await watched.account.api.stream(name))["config"] for name in names]
        told = [(config.get("description"), (config.get("metadata") or {}).get(METADATA_FLAG)) for config in configs]
        assert told == [("second", "true")] * ROUNDS
        return True

    await eventually(settled, within_seconds=SOON_SECONDS, describe="every stream is flagged and updated")
    await eventually(lambda: set(names) <= set(watched.sidecar.sidecar.services), within_seconds=SOON_SECONDS)


async def test_streams_made_again_without_the_flag_right_behind_are_not_flagged(watched: Watched) -> None:
    names = [f"{watched.name}-{number}" for number in range(ROUNDS)]
    for name in names:
        await watched.account.create(name)
        await watched.account.api.call(f"STREAM.DELETE.{name}")
        await watched.account.create(name, allow_msg_schedules=False)
    await watched.create()
    await watched.fires()
    configs = [(await watched.account.api.stream(name))["config"] for name in names]
    assert [METADATA_FLAG in (config.get("metadata") or {}) for config in configs] == [False] * ROUNDS
    assert not set(names) & set(watched.sidecar.sidecar.services)


async def test_updates_of_many_tools_at_once_all_leave_the_flag_and_the_last_change(watched: Watched) -> None:
    await watched.create()
    await watched.sidecar.ready(watched.name)
    numbers = range(1, ROUNDS + 1)
    await asyncio.gather(*(watched.rewrite(description=f"tool {number}") for number in numbers))
    last = (await watched.config())["description"]
    await watched.config_with(metadata=MARKED, description=last, allow_rollup_hdrs=True)
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


def put(folder: Path, config: Mapping[str, Any]) -> None:
    """Write a flagged stream file."""
    (folder / "orders.json").write_text(json.dumps({**config, "allow_msg_schedules": True}), "utf-8")


async def test_a_flag_is_seen_from_the_moment_that_the_sidecar_says_connected(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        with sidecar("run", "-s", server.url, folder=tmp_path) as process:
            await process.wait_for_line("connected")
            await account.create("S")
            await process.wait_for_line("stream_ready")
