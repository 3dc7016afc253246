"""`Nats-TTL` on a server that does not know it: the sidecar removes what has expired, also after it was killed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import ExpiryFailed, MessagesExpired
from nats_scheduler.jetstream.streams import METADATA_FLAG, METADATA_TTL_FLAG
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import SharedServer, StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import Served
from tests.harness.processes import sidecar
from tests.harness.servers import V2_10
from tests.harness.waiting import eventually

SOON_SECONDS = 45.0
RETENTIONS = ("limits", "workqueue", "interest")
MARKS = {METADATA_FLAG: "true", METADATA_TTL_FLAG: "true"}
"""The metadata of a stream that was served before."""


@pytest.fixture
async def server(shared_server: SharedServer) -> EmbeddedServer:
    return await shared_server(V2_10)


async def create(account: Account, name: str, retention: str, **config: Any) -> None:
    """Create a stream that asks for TTLs, of the given retention, and where it needs one with a consumer."""
    await account.create(name, storage="file", retention=retention, metadata=MARKS, **config)
    if retention == "interest":
        consumer = {"durable_name": "all", "ack_policy": "explicit"}
        body = {"stream_name": name, "config": consumer}
        await account.api.call(f"CONSUMER.DURABLE.CREATE.{name}.all", body)


async def bodies(account: Account, stream: str, subject: str = "out") -> list[bytes]:
    """Return the bodies on a subject of the stream, in order."""
    return [message.body or b"" for message in await account.messages(stream, f"{stream}.{subject}")]


async def left(account: Account, stream: str, expected: list[bytes], subject: str = "out") -> None:
    """Wait until exactly these bodies are left on a subject."""

    async def so() -> bool:
        return await bodies(account, stream, subject) == expected

    await eventually(so, within_seconds=SOON_SECONDS, describe=f"{expected} are left on {subject} of {stream}")


async def fire(account: Account, stream: str, name: str, ttl: str, *, dialect: str = "", due: int = 0) -> None:
    """Have a message generated at once, or when it is due, that lives for `ttl`."""
    prefix = f"{dialect}Nats-Schedule"
    headers = {prefix: f"@at {format_rfc3339(due or CLOCK.now())}", f"{prefix}-Target": f"{stream}.out"}
    await account.publish(f"{stream}.s.{name}", {**headers, f"{prefix}-TTL": ttl}, name.encode())


async def generated(account: Account, stream: str, count: int) -> None:
    """Wait until `count` messages were generated, whether or not they are still there."""

    async def enough() -> bool:
        info = await account.api.call(f"STREAM.INFO.{stream}", {"subjects_filter": f"{stream}.s.*"})
        return not info["state"].get("subjects") and info["state"]["last_seq"] >= 2 * count

    await eventually(enough, within_seconds=SOON_SECONDS, describe=f"{count} schedules have fired")


@pytest.mark.clause("ttl-generated")
@pytest.mark.parametrize("dialect", ["", "X-"], ids=["adr51", "portable"])
async def test_generated_messages_live_as_long_as_they_say(served: Served, dialect: str) -> None:
    for name, ttl in (("a", "1h"), ("b", "1s"), ("c", "never"), ("d", "2"), ("e", "00")):
        await fire(served.account, served.name, name, ttl, dialect=dialect)
    await generated(served.account, served.name, 5)

    async def short_ones_gone() -> bool:
        return sorted(await bodies(served.account, served.name)) == [b"a", b"c", b"e"]

    await eventually(short_ones_gone, within_seconds=SOON_SECONDS, describe="what has expired is gone")
    if served.version == V2_10:
        assert served.sidecar.metrics.value("messages_expired", stream=served.name) == 2
        assert sum(event.count for event in served.sidecar.of(served.name, MessagesExpired)) == 2


@pytest.mark.clause("ttl-restart")
@pytest.mark.parametrize("retention", RETENTIONS)
async def test_killed_and_started_again_it_removes_what_expired_meanwhile(
    start_server: StartServer, tmp_path: Path, retention: str
) -> None:
    server = await start_server(V2_10)
    async with account_on(server.url) as account:
        await create(account, "S", retention)
        with sidecar("run", "-s", server.url, folder=tmp_path, name="first") as first:
            await first.wait_for_line("stream_ready")
            for name, ttl in (("a", "1h"), ("b", "4s"), ("c", "never"), ("d", "4s"), ("e", "1h")):
                await fire(account, "S", name, ttl)
            await generated(account, "S", 5)
            first.kill()
        assert len(await bodies(account, "S")) == 5
        expired_at = (await account.messages("S", "S.out"))[-1].stored_at + 4 * SECOND
        early = {"Nats-Schedule": f"@at {format_rfc3339(expired_at)}", "Nats-Schedule-Target": "S.never"}
        await account.publish("S.early", {**early, "Nats-TTL": "1s"})
        late = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": "S.made-up", "Nats-TTL": "2s"}
        await account.publish("S.late", late)
        await eventually(lambda: CLOCK.now() > expired_at, within_seconds=SOON_SECONDS)
        order = await bodies(account, "S")
        with sidecar("run", "-s", server.url, folder=tmp_path, name="second"):
            await left(account, "S", [body for body in order if body not in (b"b", b"d")])
            await left(account, "S", [b"body"], "made-up")
            for subject in ("early", "late", "never"):
                await left(account, "S", [], subject)


@pytest.mark.clause("ttl-generated")
@pytest.mark.parametrize("retention", RETENTIONS)
async def test_a_herd_of_generated_messages_on_one_subject_expires(
    server: EmbeddedServer, stream_name: str, retention: str
) -> None:
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await create(account, stream_name, retention)
        await running.ready(stream_name)
        due = CLOCK.now() + SECOND
        await asyncio.gather(*(fire(account, stream_name, str(number), "2s", due=due) for number in range(300)))
        await fire(account, stream_name, "stays", "1h", due=due)
        await generated(account, stream_name, 301)
        await left(account, stream_name, [b"stays"])
        assert running.metrics.value("messages_expired", stream=stream_name) == 300


@pytest.mark.clause("ttl-generated")
async def test_two_sidecars_remove_each_message_once(server: EmbeddedServer, stream_name: str) -> None:
    async with account_on(server.url) as account, sidecar_on(server.url) as one, sidecar_on(server.url) as two:
        await create(account, stream_name, "limits")
        for running in (one, two):
            await running.ready(stream_name)
        for number in range(50):
            await fire(account, stream_name, str(number), "1s")
        await fire(account, stream_name, "stays", "1h")
        await generated(account, stream_name, 51)
        await left(account, stream_name, [b"stays"])
        counted = [running.metrics.value("messages_expired", stream=stream_name) for running in (one, two)]
        assert sum(counted) == 50
        assert [running.of(stream_name, ExpiryFailed) for running in (one, two)] == [[], []]


@pytest.mark.clause("ttl-generated")
async def test_where_the_stream_denies_deletes_it_is_told_once_and_schedules_still_end(
    server: EmbeddedServer, stream_name: str
) -> None:
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        heard = HeardAdvisories(account.connection, stream_name)
        await create(account, stream_name, "limits", deny_delete=True)
        await running.ready(stream_name)
        headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"{stream_name}.out", "Nats-TTL": "3s"}
        await account.publish(f"{stream_name}.s", {**headers, "Nats-Schedule-TTL": "1s"})
        await eventually(
            lambda: running.metrics.value("schedules_ended", stream=stream_name, reason="expired") == 1,
            within_seconds=SOON_SECONDS,
            describe="the schedule has expired",
        )
        fired = len(await bodies(account, stream_name))
        canary = {"Nats-Schedule": f"@at {in_seconds(2.5)}", "Nats-Schedule-Target": f"{stream_name}.canary"}
        await account.publish(f"{stream_name}.c", canary)
        await account.wait_for(stream_name, f"{stream_name}.canary")
        assert len(await bodies(account, stream_name)) == fired
        (failed,) = running.of(stream_name, ExpiryFailed)
        assert failed.refused
        assert "message delete not permitted" in failed.reason
        advisory = await heard.first("expiry_failed")
        assert (advisory["stream"], advisory["seq"]) == (stream_name, failed.sequence)
