"""`Nats-TTL` on a server that does not know it: the sidecar removes what has expired, also after it was killed."""

from pathlib import Path

import pytest

from nats_scheduler.engine.events import ExpiryFailed, MessagesExpired
from nats_scheduler.jetstream.streams import METADATA_TTL_FLAG
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import SharedServer, StartServer
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FLAG, FlaggedStream, Served, at, served_on
from tests.harness.processes import sidecar
from tests.harness.servers import V2_10
from tests.harness.waiting import eventually

PAST = "@at 2020-01-01T00:00:00Z"
MARKS = {"storage": "file", "metadata": {**FLAG["metadata"], METADATA_TTL_FLAG: "true"}}
"""The configuration of a stream that was served before."""


async def fire_all(stream: FlaggedStream, ttls: dict[str, str], prefix: str = "") -> None:
    """Have messages generated at once that live so long, and wait until they were, whether or not they are there."""
    before = (await stream.call("STREAM.INFO"))["state"]["last_seq"]
    for name, ttl in ttls.items():
        headers = stream.headers(PAST, more={"TTL": ttl})
        await stream.publish(
            f"s.{name}", {f"{prefix}{header}": value for header, value in headers.items()}, name.encode()
        )

    async def are_generated() -> bool:
        state = (await stream.call("STREAM.INFO"))["state"]
        return await stream.stored_on("s.*") == 0 and state["last_seq"] >= before + 2 * len(ttls)

    await eventually(are_generated, describe="all schedules have fired")


async def are_left(stream: FlaggedStream, *bodies: str) -> None:
    """Wait until just these generated messages are left, in any order."""

    async def is_so() -> bool:
        return sorted((one.body or b"").decode() for one in await stream.messages("out")) == sorted(bodies)

    await eventually(is_so, describe=f"{bodies} are left")


@pytest.mark.clause("ttl-generated")
@pytest.mark.parametrize("prefix", ["", "X-"], ids=["adr51", "portable"])
async def test_generated_messages_live_as_long_as_they_say(served: Served, prefix: str) -> None:
    await fire_all(served, {"a": "1h", "b": "1s", "c": "never", "d": "2", "e": "00"}, prefix)
    await are_left(served, "a", "c", "e")
    if served.version == V2_10:
        assert served.sidecar.metrics.value("messages_expired", stream=served.name) == 2
        assert sum(event.count for event in served.of(MessagesExpired)) == 2


@pytest.mark.clause("ttl-restart")
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_after_a_kill_it_removes_what_expired_meanwhile(
    start_server: StartServer, tmp_path: Path, retention: str
) -> None:
    server = await start_server(V2_10)
    async with account_on(server.url) as account:
        stream = FlaggedStream(account, "S")
        await account.create("S", retention=retention, **MARKS)
        with sidecar("run", "-s", server.url, folder=tmp_path, name="first") as first:
            await first.wait_for_line("stream_ready")
            await fire_all(stream, {"a": "1h", "b": "4s", "c": "never", "d": "4s", "e": "1h"})
        found = await stream.messages("out")
        assert len(found) == 5
        expired_at = found[-1].stored_at + 4 * SECOND
        await stream.publish("early", {**stream.headers(at(expired_at), "never"), "Nats-TTL": "1s"})
        await stream.publish("late", {**stream.headers(f"@at {in_seconds(0)}", "made-up"), "Nats-TTL": "2s"})
        await eventually(lambda: CLOCK.now() > expired_at)
        async with sidecar_on(server.url):
            await are_left(stream, "a", "c", "e")
            await stream.left("made-up", [b"body"])
            for rest in ("early", "late", "never"):
                await stream.gone(rest)


@pytest.mark.clause("ttl-generated")
async def test_schedules_end_although_the_stream_denies_deletes(shared_server: SharedServer, stream_name: str) -> None:
    server = await shared_server(V2_10)
    async with served_on(server.url, stream_name, config={**MARKS, "deny_delete": True}) as served:
        heard = await HeardAdvisories.of(served.account.connection, stream_name)
        await served.publish("s", {**served.headers("@every 1s", more={"TTL": "1s"}), "Nats-TTL": "3s"})
        await eventually(
            lambda: served.sidecar.metrics.value("schedules_ended", stream=stream_name, reason="expired") == 1,
            describe="the schedule has expired",
        )
        fired = len(await served.messages("out"))
        await served.canary(2)
        assert len(await served.messages("out")) == fired
        (failed,) = served.of(ExpiryFailed)
        assert failed.refused
        assert "message delete not permitted" in failed.reason
        advisory = await heard.first("expiry_failed")
        assert (advisory["stream"], advisory["seq"]) == (stream_name, failed.sequence)
