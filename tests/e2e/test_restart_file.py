"""A process that is started on the folder of another one continues from its file, and fires as if none had ended.

Its rule: what is stored says whether each time was fired once; the log says whether the file was used.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

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
from tests.harness.servers import EMULATED_VERSIONS, V2_10, V2_11
from tests.harness.waiting import eventually
from tests.harness.workers import Worker

FAR = 30
STORED = {"storage": "file", **FLAG}
ELSEWHERE = "E"
STEADY = ("every", "zone", "all", "jitter", "calendar", "ttl")
"""Targets of schedules that fire each second or every two, before the restart and after it."""


def start(url: str, folder: Path, name: str, data: str | Path = "data") -> ChildProcess:
    """Start a sidecar that keeps its schedules in a folder."""
    more = ("--allowed-targets-elsewhere", f"S={ELSEWHERE}.>", "--data", str(folder / data))
    return sidecar("run", "-s", url, "--log-format", "json", *more, folder=folder, name=name)


def told(process: ChildProcess, event: str) -> list[dict[str, Any]]:
    """Return the lines of the log of one kind."""
    whole = process.stderr[: process.stderr.rfind("\n") + 1]
    lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


async def continued(process: ChildProcess, stream: str = "S") -> int:
    """Wait until a process says that it continues with a stream; returns the number of its schedules."""
    lines = await eventually(
        lambda: [line for line in told(process, "stream_continued") if line["stream"] == stream],
        describe=lambda: f"{stream} is continued: {process.stderr[-3_000:]}",
    )
    return int(lines[0]["schedules"])


async def kept(folder: Path, through: int, stream: str = "S") -> None:
    """Wait until the file has what is needed to continue after a sequence of a stream."""

    def is_kept() -> bool:
        with closing(sqlite3.connect(f"file:{folder / FILE_NAME}?mode=ro", uri=True)) as connection:
            try:
                found = connection.execute("SELECT document FROM streams WHERE name = ?", (stream,)).fetchone()
            except sqlite3.OperationalError:  # it is not complete
                return False
        return found is not None and found[0] is not None and json.loads(found[0])["through"] >= through

    await eventually(is_kept, describe=f"the file has {stream} through {through}")


async def end(process: ChildProcess, how: str) -> None:
    """End a process."""
    if how == "terminated":
        assert await process.terminate() == 0
    else:
        process.kill()


async def store_all_kinds(account: Account, *, has_ttl: bool) -> FlaggedStream:
    """Store schedules of all kinds: far ones, steady ones with policies, and those that fire nothing.

    Where the server does not act on TTLs, a stream that has them is read from its beginning.
    """
    await account.create("S", allow_msg_ttl=has_ttl, **STORED)
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
    ttl = {**stream.headers("@every 1s", "ttl.out"), **({"Nats-TTL": "1h"} if has_ttl else {})}
    await stream.publish("ttl", ttl)
    await stream.schedule("limit", "@every 1s", target="limit.out", more={"X-Limit": "8", "X-Missed": "all"})
    elsewhere = {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-X-Target": f"{ELSEWHERE}.out"}
    await stream.publish("elsewhere", elsewhere)
    await stream.schedule("wrong", "@every often")
    await stream.schedule("paused", "@every 1s", target="paused.out")
    (message,) = await stream.messages("paused")
    block = paused_block(message.block, ADR51)
    await stream.publish("paused", dict(line.split(": ", 1) for line in block.decode().split("\r\n")[1:-2]))
    return stream


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
@pytest.mark.parametrize("how", ["terminated", "killed"])
async def test_schedules_of_all_kinds_fire_once_and_in_time_over_a_restart(
    start_server: StartServer, tmp_path: Path, version: str, how: str
) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        with start(server.url, tmp_path, "first") as first:
            await first.wait_for_line("data_folder")
            stream = await store_all_kinds(account, has_ttl=version != V2_10)
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
            await end(first, how)
        await stream.schedule("soon", f"@at {in_seconds(1)}", target="soon.out")
        await stream.schedule("far.1", "@every 9h", target="far.out")
        await stream.call("STREAM.PURGE", {"filter": "S.far.2"})
        with start(server.url, tmp_path, "second") as second:
            assert await continued(second) >= FAR + len(STEADY)
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


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
@pytest.mark.parametrize("how", ["terminated", "killed"])
async def test_a_stream_that_loses_messages_by_itself_fires_once_over_a_restart(
    start_server: StartServer, tmp_path: Path, retention: str, how: str
) -> None:
    """It may be read from its beginning, since messages may be gone before they are read."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        with start(server.url, tmp_path, "first") as first:
            await first.wait_for_line("data_folder")
            await account.create("S", retention=retention, **STORED)
            stream = FlaggedStream(account, "S")
            keeper = Worker(account.connection, account.api, "S", "keeper")
            await keeper.begin(filter_subject="S.s.*")
            worker = Worker(account.connection, account.api, "S", "workers")
            await worker.begin(filter_subject="S.out")
            worker.pull(1_000)
            await stream.schedule("s.every", "@every 1s", more={"X-Missed": "all"})
            await stream.schedule("s.far", f"@at {in_seconds(9_000)}")
            for sequence in await worker.takes(2):
                await worker.acknowledge(sequence)
            await end(first, how)
        await stream.schedule("s.soon", f"@at {in_seconds(1)}")
        taken = len(worker.taken)
        with start(server.url, tmp_path, "second") as second:
            await worker.takes(taken + 4)
            await eventually(lambda: [one for one in worker.taken if worker.schedule_of(one) == "S.s.soon"])
            assert await second.terminate() == 0
        assert len([one for one in worker.taken if worker.schedule_of(one) == "S.s.soon"]) == 1
        assert await stream.stored_on("s.far") == 1


async def test_a_file_of_another_creation_of_the_stream_is_not_used(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        stream = FlaggedStream(account, "S")
        with start(server.url, tmp_path, "first") as first:
            await first.wait_for_line("data_folder")
            await account.create("S", **STORED)
            for number in range(FAR):
                await stream.schedule(f"old.{number}", f"@at {in_seconds(9_000)}", target="old.out")
            await kept(tmp_path / "data", FAR)
            assert await first.terminate() == 0
        await account.api.call("STREAM.DELETE.S")
        await account.create("S", **STORED)
        for number in range(2 * FAR):
            await stream.schedule(f"new.{number}", f"@at {in_seconds(2)}", target="new.out")
        with start(server.url, tmp_path, "second") as second:
            await second.wait_for_line("stream_read_anew")
            assert told(second, "stream_read_anew")[0]["reason"].startswith("it is of another creation")
            await stream.wait_for("new.out", 2 * FAR)
            assert await second.terminate() == 0
            assert told(second, "stream_continued") == []
        assert len(await stream.messages("new.out")) == 2 * FAR
        assert await stream.messages("old.out") == []


async def test_a_file_of_another_account_is_not_used(start_server: StartServer, tmp_path: Path) -> None:
    """An operator may give a folder to another sidecar."""
    for name in ("one", "other"):
        server = await start_server(V2_11)
        async with account_on(server.url) as account:
            await account.create("S", **STORED)
            stream = FlaggedStream(account, "S")
            if name == "other":
                shutil.copytree(tmp_path / "one", tmp_path / "other")
            with start(server.url, tmp_path, name, name) as process:
                await stream.schedule("s.1", f"@at {in_seconds(1)}", target=f"{name}.out")
                await stream.schedule("s.2", f"@at {in_seconds(9_000)}", target=f"{name}.out")
                await stream.wait_for(f"{name}.out")
                await kept(tmp_path / name, 3)
                assert await process.terminate() == 0
                assert told(process, "stream_continued") == []
                assert len(told(process, "stream_read_anew")) == (name == "other")
            assert len(await stream.messages(f"{name}.out")) == 1


async def test_a_folder_that_cannot_be_written_keeps_nothing_from_firing(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", **STORED)
        stream = FlaggedStream(account, "S")
        with start(server.url, tmp_path, "only", "/proc/nats-scheduler") as process:
            await process.wait_for_line("data_folder_unusable")
            assert "not writable" in told(process, "data_folder_unusable")[0]["reason"]
            await stream.canary(1)
            assert await process.terminate() == 0


async def test_of_two_sidecars_on_one_folder_the_second_says_so_and_serves(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", **STORED)
        stream = FlaggedStream(account, "S")
        with start(server.url, tmp_path, "first") as first:
            await first.wait_for_line("stream_ready")
            with start(server.url, tmp_path, "second") as second:
                await second.wait_for_line("stream_ready")
                assert told(second, "data_folder_unusable")[0]["reason"] == "another process uses it"
                await stream.schedule("s.1", "@every 1s", more={"X-Missed": "all"})
                fires = await stream.wait_for("out", 2)
                await kept(tmp_path / "data", fires[-1].sequence)
                first.kill()
                await stream.wait_for("out", len(await stream.messages("out")) + 2)
                with start(server.url, tmp_path, "third") as third:
                    await continued(third)
                    assert await second.terminate() == 0
                    await stream.wait_for("out", len(await stream.messages("out")) + 2)
                    assert await third.terminate() == 0
        times = [fire_time_of(fire) for fire in await stream.messages("out")]
        assert times == list(range(times[0], times[-1] + 1, SECOND))


async def test_an_index_that_lost_a_row_is_found_after_the_start_and_all_schedules_fire(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", **STORED)
        stream = FlaggedStream(account, "S")
        with start(server.url, tmp_path, "first") as first:
            await first.wait_for_line("stream_ready")
            for number in range(FAR):
                await stream.schedule(f"s.{number}", f"@at {in_seconds(9_000 + number)}")
            await kept(tmp_path / "data", FAR)
            assert await first.terminate() == 0
        file = tmp_path / "data" / FILE_NAME
        with closing(sqlite3.connect(file)) as connection:
            ((wake,),) = connection.execute("SELECT wake FROM schedules WHERE subject = 'S.s.7'")
        content, value = bytearray(file.read_bytes()), int(wake).to_bytes(8, "big")
        places = [place for place in range(len(content)) if content.startswith(value, place)]
        assert len(places) > 1, "in the row and in the index"
        for place in places:
            damaged = bytearray(content)
            damaged[place + 7] ^= 2
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(tmp_path / "data", tmp_path / "copy")
            (tmp_path / "copy" / FILE_NAME).write_bytes(damaged)
            with start(server.url, tmp_path, f"at-{place}", "copy") as process:
                await process.wait_for_line("schedule_file_lost")
                await process.wait_for_line(
                    f'"schedules": ?{FAR}[,}}].*stream_ready|stream_ready.*"schedules": ?{FAR}[,}}]'
                )
                await stream.canary(1)
                assert await process.terminate() == 0
