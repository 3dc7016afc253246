"""The firing party of each header: the server on its flagged streams, the sidecar everywhere else, and never both."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.engine.events import FireRefused, FireStored
from nats_scheduler.jetstream.errors import ApiError
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import SharedServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.log_lines import capture_logs
from tests.harness.processes import sidecar
from tests.harness.servers import ALL_VERSIONS, V2_11, V2_12, V2_14, V2_15
from tests.harness.waiting import eventually

SOON_SECONDS = 30.0
OURS = b"Nats-Msg-Id: nats-scheduler:"
REFUSED_ON_PLAIN_STREAMS = 10188


@dataclass
class Beside:
    """A sidecar beside a server, the name of a stream to make, and the lines that the sidecar logged."""

    account: Account
    sidecar: Running
    name: str
    version: str
    said: list[dict[str, Any]]

    def subject(self, rest: str) -> str:
        """Return a subject of the stream."""
        return f"{self.name}.{rest}"

    async def create(self, *, flagged: bool, **config: Any) -> None:
        """Create the stream and wait until it is served."""
        flag = {"allow_msg_schedules": True} if flagged else {}
        wanted = {"name": self.name, "subjects": [f"{self.name}.>"], "storage": "memory", **flag, **config}
        await self.account.api.create_stream(wanted)
        await self.sidecar.ready(self.name)

    async def schedule(
        self, rest: str, pattern: str, target: str, *, prefix: str = "", more: Mapping[str, str] | None = None
    ) -> None:
        """Store a schedule; `prefix` is "X-" for portable headers."""
        named = {"": pattern, "-Target": self.subject(target), **(more or {})}
        headers = {f"{prefix}Nats-Schedule{name}": value for name, value in named.items()}
        await self.account.publish(self.subject(rest), headers, rest.encode())

    async def portable(self, rest: str, pattern: str, target: str, more: Mapping[str, str] | None = None) -> None:
        """Store a schedule with portable headers."""
        await self.schedule(rest, pattern, target, prefix="X-", more=more)

    async def wait_for(self, rest: str, count: int = 1) -> list[StoredMessage]:
        """Wait for messages on a subject of the stream."""
        return await self.account.wait_for(self.name, self.subject(rest), count)

    async def messages(self, rest: str) -> list[StoredMessage]:
        """Return what is stored on a subject of the stream."""
        return await self.account.messages(self.name, self.subject(rest))

    async def mode_becomes(self, mode: Mode) -> dict[str, Any]:
        """Wait until the stream is served in a mode and return the line that says so."""

        def told() -> dict[str, Any] | None:
            lines = [line for line in self.said if (line["event"], line.get("stream")) == ("stream_served", self.name)]
            return lines[-1] if lines and lines[-1]["mode"] is mode else None

        line: dict[str, Any] = await eventually(told, within_seconds=SOON_SECONDS, describe=f"mode {mode}")
        assert self.sidecar.sidecar.served[self.name].mode is mode
        return line

    async def refusal(self, headers: Mapping[str, str]) -> int:
        """Publish what the server refuses, and return its code."""
        reply = await self.account.connection.request_json(self.subject("refused"), None)
        assert "error" not in reply
        answer = await self.account.connection.request(self.subject("refused"), b"", block_to_send(headers))
        return int(answer.body.split(b'"err_code":')[1].split(b",")[0])


@pytest.fixture
def said() -> Iterator[list[dict[str, Any]]]:
    """Collect what is logged."""
    with capture_logs() as lines:
        yield lines


async def beside(server: EmbeddedServer, name: str, said: list[dict[str, Any]], **settings: Any) -> Any:
    async with account_on(server.url) as account, sidecar_on(server.url, **settings) as running:
        yield Beside(account, running, name, server.version, said)
        await account.api.call(f"STREAM.DELETE.{name}")


@pytest.fixture
async def native(native_server: EmbeddedServer, stream_name: str, said: list[dict[str, Any]]) -> AsyncIterator[Beside]:
    """Run a sidecar beside a server of each version that schedules by itself."""
    async for one in beside(native_server, stream_name, said):
        yield one


@pytest.fixture(params=ALL_VERSIONS)
async def plain(
    request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str, said: list[dict[str, Any]]
) -> AsyncIterator[Beside]:
    """Serve a stream without the flag, which the settings name for portable headers, on a server of each version."""
    server = await shared_server(request.param)
    async for one in beside(server, stream_name, said, portable_streams=(stream_name,)):
        await one.create(flagged=False)
        yield one


def seconds_of(messages: list[StoredMessage]) -> list[int]:
    return [message.stored_at // SECOND for message in messages]


# -- native ----------------------------------------------------------------------------------------------------------


async def test_the_server_fires_a_flagged_stream_and_the_sidecar_only_its_portable_headers(native: Beside) -> None:
    await native.create(flagged=True)
    at = in_seconds(0.5)
    await native.schedule("s", f"@at {at}", "out")
    await native.portable("p", f"@at {at}", "portable.out")
    await native.schedule("canary", f"@at {in_seconds(1.2)}", "canary.out")
    await native.wait_for("canary.out")
    [fired], [portable] = await native.messages("out"), await native.messages("portable.out")
    assert (fired.body, OURS in fired.block) == (b"s", False)
    assert (portable.body, OURS in portable.block) == (b"p", True)
    assert f"X-Nats-Scheduler: {native.subject('p')}\r\nX-Nats-Schedule-Next: purge\r\n".encode() in portable.block
    assert b"\r\nNats-Schedule" not in portable.block
    fires = native.sidecar.of(native.name, FireStored)
    assert [event.fire.schedule for event in fires] == [native.subject("p")]


@pytest.mark.parametrize("native_server", [V2_14, V2_15], indirect=True)
async def test_repeating_schedules_of_server_and_sidecar_run_beside_each_other_without_doubles(native: Beside) -> None:
    await native.create(flagged=True)
    await native.schedule("every", "@every 1s", "out.every")
    await native.schedule("cron", "* * * * * *", "out.cron")
    await native.portable("portable", "* * * * * *", "out.portable")
    for rest in ("every", "cron", "portable"):
        fired = seconds_of(await native.wait_for(f"out.{rest}", 2))
        assert sorted(set(fired)) == fired
    by_sidecar = {event.fire.schedule for event in native.sidecar.of(native.name, FireStored)}
    assert by_sidecar == {native.subject("portable")}


async def test_a_sample_of_what_the_server_generated_is_stored(native: Beside) -> None:
    """The server takes `Nats-Scheduler` and `Nats-Schedule-Next` of a publish for orders, so they must not go out."""
    await native.create(flagged=True)
    await native.schedule("s", f"@at {in_seconds(0)}", "sensor")
    [source] = await native.wait_for("sensor")
    assert b"Nats-Scheduler: " in source.block
    await native.portable("p", f"@at {in_seconds(0.2)}", "out", {"-Source": native.subject("sensor")})
    [sample] = await native.wait_for("out")
    assert sample.body == b"s"
    assert b"\r\nNats-Sched" not in sample.block
    assert f"X-Nats-Scheduler: {native.subject('p')}".encode() in sample.block


# -- dormant -----------------------------------------------------------------------------------------------------------


async def test_a_stream_that_only_its_metadata_flag_is_dormant_and_this_is_said_loudly(native: Beside) -> None:
    await native.create(flagged=False, metadata={METADATA_FLAG: "true"})
    line = await native.mode_becomes(Mode.DORMANT)
    assert line["log_level"] == "warning"
    assert "not switched on" in line["meaning"]
    await native.portable("p", f"@at {in_seconds(0)}", "out")
    assert await native.wait_for("out")
    at = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": native.subject("out.server")}
    assert await native.refusal(at) == REFUSED_ON_PLAIN_STREAMS


async def test_a_dormant_stream_becomes_native_when_the_flag_is_switched_on(native: Beside) -> None:
    await native.create(flagged=False, metadata={METADATA_FLAG: "true"})
    await native.mode_becomes(Mode.DORMANT)
    config = (await native.account.api.stream(native.name))["config"]
    await native.account.api.update_stream({**config, "allow_msg_schedules": True})
    assert (await native.mode_becomes(Mode.NATIVE))["log_level"] == "info"
    await native.schedule("s", f"@at {in_seconds(0)}", "out")
    [fired] = await native.wait_for("out")
    assert OURS not in fired.block


async def test_an_update_with_the_flag_that_a_native_server_refuses_changes_nothing(native: Beside) -> None:
    name = f"{native.name}-plain"
    await native.create(flagged=True)
    plain = await native.account.api.create_stream({"name": name, "subjects": [f"{name}.>"], "deny_purge": True})
    with pytest.raises(ApiError, match="deny purge"):
        await native.account.api.update_stream({**plain["config"], "allow_msg_schedules": True})
    await native.portable("p", f"@at {in_seconds(0.3)}", "out")
    await native.wait_for("out")
    assert name not in native.sidecar.sidecar.served
    await native.account.api.call(f"STREAM.DELETE.{name}")


# -- portable --------------------------------------------------------------------------------------------------------


async def test_a_stream_named_in_the_settings_has_every_portable_pattern_on_every_server(plain: Beside) -> None:
    await plain.mode_becomes(Mode.PORTABLE)
    await plain.portable("at", f"@at {in_seconds(0.2)}", "out.at")
    await plain.portable("every", "@every 1s", "out.every")
    await plain.portable("cron", "* * * * * *", "out.cron", {"-Time-Zone": "Asia/Kolkata"})
    [at] = await plain.wait_for("out.at")
    every, cron = await plain.wait_for("out.every", 2), await plain.wait_for("out.cron", 2)
    assert f"X-Nats-Scheduler: {plain.subject('at')}\r\nX-Nats-Schedule-Next: purge\r\n".encode() in at.block
    assert sorted(set(seconds_of(every))) == seconds_of(every)
    assert all(b"+05:30\r\n" in message.block for message in cron)
    config = (await plain.account.api.stream(plain.name))["config"]
    assert METADATA_FLAG not in (config.get("metadata") or {}), "the stream is left as it is"


async def test_a_stream_named_in_the_settings_does_not_fire_the_headers_of_the_adr(plain: Beside) -> None:
    headers = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": plain.subject("out")}
    reply = await plain.account.connection.request(plain.subject("s"), b"", block_to_send(headers))
    refused = f'"err_code":{REFUSED_ON_PLAIN_STREAMS}'.encode() in reply.body
    assert refused is (plain.version in (V2_12, V2_14, V2_15))
    await plain.portable("canary", f"@at {in_seconds(0.3)}", "canary.out")
    await plain.wait_for("canary.out")
    assert await plain.messages("out") == []


@pytest.mark.parametrize("native_server", [V2_12], indirect=True)
async def test_portable_cron_runs_on_a_flagged_stream_of_a_server_that_knows_only_delays(native: Beside) -> None:
    await native.create(flagged=True)
    await native.portable("every", "@every 1s", "out.every")
    await native.portable("cron", "*/1 * * * * *", "out.cron")
    assert len(await native.wait_for("out.every", 2)) >= 2
    assert len(await native.wait_for("out.cron", 2)) >= 2


@pytest.mark.parametrize("plain", [V2_11, V2_15], indirect=True)
async def test_portable_schedules_fire_into_a_full_stream_with_discard_new_once_it_has_room(
    plain: Beside,
) -> None:
    name, account = plain.name, plain.account
    await account.api.call(
        f"STREAM.UPDATE.{name}",
        {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "discard": "new", "max_msgs": 2},
    )
    await account.publish(f"{name}.filler")
    await plain.portable("s", f"@at {in_seconds(0.3)}", "out")
    await eventually(
        lambda: 10077 in [event.code for event in plain.sidecar.of(name, FireRefused)], within_seconds=SOON_SECONDS
    )
    assert len(await plain.messages("s")) == 1
    await account.api.call(f"STREAM.PURGE.{name}", {"filter": f"{name}.filler"})
    assert len(await plain.wait_for("out")) == 1


@pytest.mark.parametrize("plain", ALL_VERSIONS, indirect=True)
async def test_from_2_15_on_the_server_refuses_a_publish_with_nats_stream_source(plain: Beside) -> None:
    """Check 17, for messages and portable schedules alike, after the other checks."""
    target, cases = f"{plain.name}.out", []
    for more in ({}, {"X-Nats-Schedule": "@hourly", "X-Nats-Schedule-Target": target}, {"Nats-Schedule": "@often"}):
        block = block_to_send({**more, "Nats-Stream-Source": "A 1 > >"})
        answer = json.loads((await plain.account.connection.request(f"{plain.name}.s", b"", block)).body)
        cases.append(answer.get("error", {}).get("err_code", 0))
    is_refused = plain.version == V2_15
    wrong = REFUSED_ON_PLAIN_STREAMS if plain.version in (V2_12, V2_14, V2_15) else 0
    assert cases == [10227 if is_refused else 0, 10227 if is_refused else 0, wrong]


# -- what the operator reads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_run_prints_the_mode_of_each_stream_at_its_start(
    version: str, shared_server: SharedServer, stream_name: str, tmp_path: Any
) -> None:
    server = await shared_server(version)
    mark: dict[str, Any] = {"metadata": {METADATA_FLAG: "true"}}
    native = version in (V2_12, V2_14, V2_15)
    flag: dict[str, Any] = {"allow_msg_schedules": True} if native else mark
    named = f"{stream_name}-named"
    async with account_on(server.url) as account:
        for name, config in ((stream_name, flag), (named, {})):
            await account.api.create_stream({"name": name, "subjects": [f"{name}.>"], "storage": "memory", **config})
        with sidecar("run", "-s", server.url, "--portable-streams", named, folder=tmp_path) as running:
            await running.wait_for_line(f"mode={'native' if native else 'emulated'} stream={stream_name}$")
            await running.wait_for_line(f"mode=portable stream={named}$")
            assert await running.terminate() == 0
        for name in (stream_name, named):
            await account.api.call(f"STREAM.DELETE.{name}")
