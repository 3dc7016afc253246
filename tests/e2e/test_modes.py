"""The firing party of each header: the server on its flagged streams, the sidecar everywhere else, and never both.

It tests `runtime/account_serving.py` too.
It tests `runtime/stream_flags.py` too.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.engine.events import FireStored
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.runtime.modes import Mode
from tests.conftest import SharedServer
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.flagged import FLAG
from tests.harness.servers import ALL_VERSIONS, NATIVE_VERSIONS, V2_12
from tests.harness.waiting import eventually
from tests.harness.watched import Watched

Lines = list[dict[str, Any]]
OURS = b"Nats-Msg-Id: nats-scheduler:"
REFUSED_ON_PLAIN_STREAMS = 10188
EVERY, CRON = "@every 1s", "* * * * * *"


@dataclass
class Beside(Watched):
    """A stream beside which both a sidecar and a server may fire."""

    async def portable(self, rest: str, pattern: str, target: str, **more: str) -> None:
        """Store a schedule with portable headers."""
        headers = self.headers(pattern, target, {name.replace("_", "-"): value for name, value in more.items()})
        await self.publish(rest, {f"X-{name}": value for name, value in headers.items()}, rest.encode())

    async def mode_becomes(self, mode: Mode) -> dict[str, Any]:
        """Wait until the stream is served in a mode and return the line that says so."""

        def told() -> dict[str, Any] | None:
            lines = [line for line in self.said if (line["event"], line.get("stream")) == ("stream_served", self.name)]
            return lines[-1] if lines and lines[-1]["mode"] is mode else None

        line: dict[str, Any] = await eventually(told, describe=f"mode {mode}")
        assert self.sidecar.sidecar.served[self.name].mode is mode
        return line

    async def code(self, headers: dict[str, str]) -> int:
        """Publish, and return the code with which the server refuses it; 0 if it does not."""
        answer = await self.account.connection.request(self.subject("asked"), b"", block_to_send(headers))
        return int(json.loads(answer.body).get("error", {}).get("err_code", 0))


async def beside(server: EmbeddedServer, name: str, said: Lines, **settings: Any) -> AsyncIterator[Beside]:
    async with account_on(server.url) as account, sidecar_on(server.url, **settings) as running:
        yield Beside(account, name, running, server.url, server.version, said)
        await account.api.call(f"STREAM.DELETE.{name}")


@pytest.fixture
async def native(native_server: EmbeddedServer, stream_name: str, said: Lines) -> AsyncIterator[Beside]:
    """Run a sidecar beside a server of each version that schedules by itself."""
    async for one in beside(native_server, stream_name, said):
        yield one


@pytest.fixture(params=ALL_VERSIONS)
async def plain(
    request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str, said: Lines
) -> AsyncIterator[Beside]:
    """Serve a stream without the flag, which the settings name for portable headers, on a server of each version."""
    server = await shared_server(request.param)
    async for one in beside(server, stream_name, said, portable_streams=(stream_name,)):
        await one.served(allow_msg_schedules=False)
        yield one


def expect_no_doubles(fires: list[StoredMessage]) -> None:
    """Show that no two fires of a repeating schedule stand for the same time: each names another next one."""
    following = [
        header_value(fire.block, b"Nats-Schedule-Next") or header_value(fire.block, b"X-Nats-Schedule-Next")
        for fire in fires
    ]
    assert len(set(following)) == len(following), following


# -- native ----------------------------------------------------------------------------------------------------------


async def test_server_and_sidecar_fire_their_own_headers_only(native: Beside) -> None:
    """Repeating schedules of both run beside each other without doubles, as far as the server knows them."""
    await native.served()
    soon = f"@at {in_seconds(0.5)}"
    await native.schedule("s", soon, b"s")
    await native.portable("p", soon, "portable.out")
    await native.portable("cron", CRON, "ticks.portable")
    ticks = {"ticks.portable"}
    if native.version != V2_12:
        await native.schedule("server-every", EVERY, target="ticks.every")
        await native.schedule("server-cron", CRON, target="ticks.cron")
        ticks |= {"ticks.every", "ticks.cron"}
    for rest in ticks:
        expect_no_doubles(await native.wait_for(rest, 2))
    [fired], [portable] = await native.wait_for("out"), await native.wait_for("portable.out")
    assert (fired.body, OURS in fired.block) == (b"s", False)
    assert (portable.body, OURS in portable.block) == (b"p", True)
    assert f"X-Nats-Scheduler: {native.subject('p')}\r\nX-Nats-Schedule-Next: purge\r\n".encode() in portable.block
    assert b"\r\nNats-Schedule" not in portable.block
    by_sidecar = {event.fire.schedule for event in native.of(FireStored)}
    assert by_sidecar == {native.subject("p"), native.subject("cron")}


# -- dormant -----------------------------------------------------------------------------------------------------------


async def test_a_stream_with_only_the_metadata_flag_is_dormant(native: Beside) -> None:
    """It becomes native when the flag is switched on."""
    await native.served(allow_msg_schedules=False, **FLAG)
    line = await native.mode_becomes(Mode.DORMANT)
    assert line["log_level"] == "warning"
    assert "not switched on" in line["meaning"]
    await native.portable("p", f"@at {in_seconds(0)}", "portable.out")
    assert await native.wait_for("portable.out")
    assert await native.code(native.headers(f"@at {in_seconds(0)}")) == REFUSED_ON_PLAIN_STREAMS
    await native.update(allow_msg_schedules=True)
    assert (await native.mode_becomes(Mode.NATIVE))["log_level"] == "info"
    await native.schedule("s", f"@at {in_seconds(0)}")
    [fired] = await native.wait_for("out")
    assert OURS not in fired.block


# -- portable --------------------------------------------------------------------------------------------------------


async def test_a_named_stream_has_all_portable_patterns_everywhere(plain: Beside) -> None:
    """Headers of the ADR are not fired on it, and it is left as it is."""
    assert plain.sidecar.sidecar.served[plain.name].mode is Mode.PORTABLE
    refused = await plain.code(plain.headers(f"@at {in_seconds(0)}", "never"))
    assert refused == (REFUSED_ON_PLAIN_STREAMS if plain.version in NATIVE_VERSIONS else 0)
    await plain.portable("at", f"@at {in_seconds(0.2)}", "out.at")
    await plain.portable("every", EVERY, "out.every")
    await plain.portable("cron", CRON, "out.cron", Time_Zone="Asia/Kolkata")
    [at] = await plain.wait_for("out.at")
    every, cron = await plain.wait_for("out.every", 2), await plain.wait_for("out.cron", 2)
    assert f"X-Nats-Scheduler: {plain.subject('at')}\r\nX-Nats-Schedule-Next: purge\r\n".encode() in at.block
    expect_no_doubles(every)
    assert all(b"+05:30\r\n" in message.block for message in cron)
    assert await plain.messages("never") == []
    assert (await plain.config())["metadata"] == {}
