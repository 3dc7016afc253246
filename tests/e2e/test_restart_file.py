"""A process that is started on the folder of another one continues from its file, and fires as if none had ended.

Its rule: what is stored says whether each time was fired once; the log says whether the file was used.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from nats_scheduler.jetstream.calendar_bucket import CalendarBucket
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.paused import paused_block
from nats_scheduler.runtime.schedule_file import FILE_NAME
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, in_seconds
from tests.harness.flagged import FLAG, FlaggedStream, fire_time_of
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually
from tests.harness.workers import Worker

FAR = 30
STORED = {"storage": "file", **FLAG}
ELSEWHERE = "E"
STEADY = ("every", "zone", "all", "jitter", "calendar", "ttl")
"""Targets of schedules that fire each second or every two, before the restart and after it."""


def start(url: str, folder: Path, name: str) -> ChildProcess:
    """Start a sidecar that keeps its schedules in a folder."""
    more = ("--allowed-targets-elsewhere", f"S={ELSEWHERE}.>", "--data", str(folder / "data"))
    return sidecar("run", "-s", url, "--log-format", "json", *more, folder=folder, name=name)


def told(process: ChildProcess, event: str) -> list[dict[str, Any]]:
    """Return the lines of the log of one kind."""
    whole = process.stderr[: process.stderr.rfind("\n") + 1]
    lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


async def kept(folder: Path, through: int) -> None:
    """Wait until the file has what is needed to continue after a sequence of the stream."""

    def is_kept() -> bool:
        with closing(sqlite3.connect(f"file:{folder / FILE_NAME}?mode=ro", uri=True)) as connection:
            try:
                found = connection.execute("SELECT document FROM streams WHERE name = 'S'").fetchone()
            except sqlite3.OperationalError:  # it is not complete
                return False
        return found is not None and found[0] is not None and json.loads(found[0])["through"] >= through

    await eventually(is_kept, describe=f"the file has the stream through {through}")


async def store_all_kinds(account: Account) -> FlaggedStream:
    """Store schedules of all kinds: far ones, steady ones with policies, and those that fire nothing."""
    await account.create("S", allow_msg_ttl=True, **STORED)
    await account.create(ELSEWHERE, storage="file", allow_msg_schedules=False)
    bucket = CalendarBucket(account.connection, account.api, "nats_scheduler_calendars")
    await bucket.open()
    assert await bucket.write("work", b"# no day\n", 0)
    stream = FlaggedStream(account, "S")
    for number in range(FAR):
        pattern = (f"@at {in_seconds(9_000 + number)}", "@every 3h", "0 30 9 1 1 *")[number % 3]
        await stream.schedule(f"far.{number}", pattern, target="far.out")
    await stream.schedule("every", "@every 1s", target="every.out")
    await stream.schedule("zone", "* * * * * *", target="zone.out", more={"Time-Zone": "Europe/Berlin"})
    await stream.schedule("all", "@every 1s", target="all.out", more={"X-Missed": "all"})
    await stream.schedule("jitter", "@every 1s", target="jitter.out", more={"X-Jitter": "300ms"})
    await stream.schedule("calendar", "@every 1s", target="calendar.out", more={"X-Except": "calendar:work"})
    await stream.publish("ttl", {**stream.headers("@every 1s", "ttl.out"), "Nats-TTL": "1h"})
    await stream.schedule("limit", "@every 1s", target="limit.out", more={"X-Limit": "8", "X-Missed": "all"})
    elsewhere = {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-X-Target": f"{ELSEWHERE}.out"}
    await stream.publish("elsewhere", elsewhere)
    await stream.schedule("wrong", "@every often")
    await stream.schedule("paused", "@every 1s", target="paused.out")
    (message,) = await stream.messages("paused")
    block = paused_block(message.block, ADR51)
    await stream.publish("paused", dict(line.split(": ", 1) for line in block.decode().split("\r\n")[1:-2]))
    return stream


async def test_schedules_of_all_kinds_fire_once_over_a_restart(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        with start(server.url, tmp_path, "first") as first:
            await first.wait_for_line("data_folder")
            stream = await store_all_kinds(account)
            worker = Worker(account.connection, account.api, "S", "workers")
            await worker.begin(filter_subject="S.overlap.out")
            worker.pull(100)
            more = {"X-Overlap": "skip", "X-Consumer": "workers"}
            await stream.schedule("overlap", "@every 1s", target="overlap.out", more=more)
            for rest in (*STEADY, "limit", "overlap"):
                await stream.wait_for(f"{rest}.out", 1)
            await account.wait_for(ELSEWHERE, f"{ELSEWHERE}.out")
            assert told(first, "stream_continued") == []
            await kept(tmp_path / "data", (await stream.messages("every.out"))[-1].sequence)
            first.kill()
        await stream.schedule("soon", f"@at {in_seconds(1)}", target="soon.out")
        await stream.schedule("far.1", "@every 9h", target="far.out")
        await stream.call("STREAM.PURGE", {"filter": "S.far.2"})
        with start(server.url, tmp_path, "second") as second:
            [line] = await eventually(lambda: told(second, "stream_continued"), describe="the stream is continued")
            assert line["schedules"] >= FAR + len(STEADY)
            await stream.wait_for("soon.out")
            before = {rest: len(await stream.messages(f"{rest}.out")) for rest in STEADY}
            for rest in STEADY:
                await stream.wait_for(f"{rest}.out", before[rest] + 2)
            await account.wait_for(ELSEWHERE, f"{ELSEWHERE}.out", len(before) + 1)
            await stream.gone("limit")
            assert len(worker.taken) == 1, "the one before is not acknowledged"
            await worker.acknowledge(worker.taken[0])
            await worker.takes(2)
            await eventually(lambda: told(second, "stream_ready"))
            assert told(second, "stream_ready")[0]["rejected"] == 1
            assert await second.terminate() == 0
            assert (told(second, "stream_read_anew"), told(second, "schedule_file_lost")) == ([], [])
        fires = {rest: await stream.messages(f"{rest}.out") for rest in (*STEADY, "limit", "soon", "paused", "far")}
        assert (fires["paused"], fires["far"]) == ([], [])
        for rest, found in fires.items():
            identities = [header_value(fire.block, MSG_ID) for fire in found]
            assert len(set(identities)) == len(identities), rest
        assert len(fires["soon"]) == 1
        times = [fire_time_of(fire) for fire in fires["limit"]]
        assert times == [times[0] + n * SECOND for n in range(8)]
        times = [fire_time_of(fire) for fire in fires["all"]]
        assert times == list(range(times[0], times[-1] + 1, SECOND)), "what was missed is made up for"
        assert {fire.subject for fire in await stream.messages("far.*")} == {
            f"S.far.{number}" for number in range(FAR) if number != 2
        }
