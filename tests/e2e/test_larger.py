"""Five sidecars and twenty streams, each with an owner and a standby: what each reads, and what a killed one leaves."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.message.headers import MSG_ID, header_value
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds
from tests.harness.flagged import FLAG, FlaggedStream
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

pytestmark = pytest.mark.deep

STREAMS = [f"S{number}" for number in range(20)]
INSTANCES = 5
READERS = 2
"""The owner of a stream and its standby."""
FAR = 20
SOON = 10
LINE = re.compile(r'^\{.*"event": ?"stream_(?:served|left_to_others)".*\}$', re.M)


def told(process: ChildProcess) -> list[tuple[str, str]]:
    """Return what a process did with each stream, by its log."""
    lines = map(json.loads, LINE.findall(process.stderr))
    return [(line["event"], line["stream"]) for line in lines]


def held_by(process: ChildProcess) -> int:
    """Return of how many streams a process holds anything: also of those that it is about to leave."""
    last = {stream: event for event, stream in told(process)}
    return sum(event == "stream_served" for event in last.values())


async def readers_by(url: str, folder: Path, instances: int) -> dict[str, frozenset[str]]:
    """Wait until the first two of so many sidecars read each stream; return who, as `instances` says."""
    read: Mapping[str, set[str]] = {}

    async def are_read() -> bool:
        nonlocal read
        with sidecar("instances", "--server", url, "--json", folder=folder, name="instances") as asked:
            if await asked.wait_for_exit() != 0:
                return False
            found = [one for one in json.loads(asked.stdout)["instances"] if one["state"] == "alive"]
        serve = {one["id"]: {key.partition(".")[2] for key in one["serves"] or ()} for one in found}
        own = {about["stream"]: [one["id"]] for one in found for about in one["owns"]}
        read = {name: {one for one, streams in serve.items() if name in streams} for name in STREAMS}
        wanted = {name: set(order_of(f"emulated.{name}", serve)[:READERS]) for name in STREAMS}
        first = {name: order_of(f"emulated.{name}", serve)[:1] for name in STREAMS}
        return len(found) == instances and own == first and read == wanted

    await eventually(are_read, describe=lambda: f"the first {READERS} of {instances} read each stream: {read}")
    return {name: frozenset(names) for name, names in read.items()}


async def test_each_of_five_reads_some_of_the_streams_and_the_others_take_over_what_one_owned(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        streams = [FlaggedStream(account, name) for name in STREAMS]
        for name in STREAMS:
            await account.create(name, storage="file", **FLAG)
        run = ("run", "--server", server.url, "--log-format", "json")
        processes = [sidecar(*run, folder=tmp_path, name=f"sidecar-{number}") for number in range(INSTANCES)]
        try:
            for stream in streams:
                await asyncio.gather(*(stream.schedule(f"far.{n}", f"@at {in_seconds(9_000)}") for n in range(FAR)))
            before = await readers_by(server.url, tmp_path, INSTANCES)
            parts = Counter(one for names in before.values() for one in names)
            assert len(parts) == INSTANCES, "each reads some"
            assert max(parts.values()) < len(STREAMS), "none reads all"
            await eventually(
                lambda: sum(map(held_by, processes)) == READERS * len(STREAMS), describe="the rest is left"
            )
            for number in range(SOON):
                due = in_seconds(2 + number / 2)
                await asyncio.gather(*(stream.schedule(f"soon.{number}", f"@at {due}") for stream in streams))
            processes[0].kill()
            for stream in streams:
                await stream.wait_for("out", SOON)
                fires = await stream.messages("out")
                assert len({header_value(fire.block, MSG_ID) for fire in fires}) == len(fires) == SOON
            after = await readers_by(server.url, tmp_path, INSTANCES - 1)
            taken_over = {name for name in STREAMS if after[name] - before[name]}
            assert {name for name in STREAMS if not before[name] <= after[name]} == taken_over != set()
        finally:
            for process in processes:
                process.kill()
