"""The fires after nobody was there: one for all that was missed, and then as before.

A native server is stopped and started, or killed; beside an older one the sidecar is, or both are.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND, round_to_second
from tests.conftest import SharedServer
from tests.differential.differences import Differences
from tests.differential.sides import fresh_name
from tests.differential.test_fire_times import next_of
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.processes import sidecar
from tests.harness.servers import V2_10, V2_11, V2_14, V2_15, running_server
from tests.harness.waiting import instant_reached

REPEATING = {"@every 2s": 2, "@every 3s": 3, "*/2 * * * * *": 2}
"""Patterns and their periods in seconds."""
INTERVALS = ("@every 2s", "@every 3s")

AWAY = 7 * SECOND
"""The time (ns) for which nobody fires: at least two periods of each."""

ROUND, OFF_GRID = 6 * SECOND, 2 * SECOND
"""All intervals fire together each round (ns); a server that is back so long after that is on no grid by luck."""

LEAD_SECONDS = 4
"""The lead of what fires once: then all are away already, and not yet back."""

Life = Callable[[], AbstractAsyncContextManager[Account]]


@asynccontextmanager
async def life_of_a_server(version: str, folder: Path, *, is_killed: bool = False) -> AsyncIterator[Account]:
    """Run a native server on its store."""
    async with running_server(version, folder) as server:
        async with account_on(server.url) as account:
            yield account
        if is_killed:
            await server.kill()


@asynccontextmanager
async def life_of_a_sidecar(server: EmbeddedServer) -> AsyncIterator[Account]:
    """Run a sidecar beside a server that goes on."""
    async with account_on(server.url) as account, sidecar_on(server.url):
        yield account


@asynccontextmanager
async def life_of_both(version: str, folder: Path) -> AsyncIterator[Account]:
    """Run an older server on its store and a sidecar beside it, until both are killed."""
    arguments = ("run", "--no-context", "--log-format", "json", "--server")
    async with running_server(version, folder) as server:
        with sidecar(*arguments, server.url, folder=folder.with_suffix(".sidecar")) as process:
            await process.wait_for_line('"event": "connected"')
            async with account_on(server.url) as account:
                yield account
            process.kill()
        await server.kill()


@dataclass(frozen=True)
class Return:
    """The findings after the return: all fires of a schedule on each target, and when each schedule was stored."""

    fires: dict[str, list[StoredMessage]]
    stored: dict[str, int]

    def made_up(self) -> dict[str, int]:
        """Count what was stored for the fires that were missed: before the next one that the first names.

        One that is sent in the moment before that next one may be stored after it, and names a time that has passed.
        """
        counted = {pattern: len(fires) for pattern, fires in self.fires.items() if pattern not in REPEATING}
        for pattern in REPEATING:
            fires, following = self.fires[pattern], next_of(self.fires[pattern][0])
            counted[pattern] = sum(fire.stored_at < following or next_of(fire) <= fire.stored_at for fire in fires)
        return counted

    def is_on_its_grid(self, pattern: str) -> bool:
        """Return whether an interval goes on as if it had never been interrupted."""
        start, period = round_to_second(self.stored[pattern]), REPEATING[pattern] * SECOND
        return all((next_of(fire) - start) % period == 0 for fire in self.fires[pattern])

    def is_anchored_anew(self, pattern: str) -> bool:
        """Return whether an interval begins anew at the second of its first fire."""
        first = self.fires[pattern][0]
        return abs(next_of(first) - first.stored_at - REPEATING[pattern] * SECOND) <= SECOND


async def away_and_back(life: Life, *, first_fires: bool = False) -> Return:
    """Store schedules, let nobody be there while they come due, and see what fires then.

    With `first_fires` the repeating ones fire before everybody goes away, and the return is off their grid.
    """
    name, stored = fresh_name(), dict[str, int]()
    patterns = [*REPEATING, "@at"]
    async with life() as account:
        await account.create(name, storage="file", metadata={METADATA_FLAG: "true"})
        for number, key in enumerate(patterns):
            pattern = f"@at {in_seconds(LEAD_SECONDS)}" if key == "@at" else key
            headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"{name}.o.{number}"}
            sequence = await account.publish(f"{name}.s.{number}", headers)
            message = await account.api.message(name, seq=sequence)
            assert message is not None
            stored[key] = message.stored_at
        if first_fires:
            await asyncio.gather(*(account.wait_for(name, f"{name}.o.{number}") for number in range(len(patterns))))
    gone = CLOCK.now()
    back = gone + AWAY
    if first_fires:
        back += (round_to_second(stored[INTERVALS[0]]) + OFF_GRID - back) % ROUND
    await instant_reached(back, CLOCK.now)
    async with life() as account:
        fires = {}
        for number, key in enumerate(patterns):
            before = len([one for one in await account.messages(name, f"{name}.o.{number}") if one.stored_at <= gone])
            more = 1 if key == "@at" else 2
            if key != "@at" or not first_fires:
                fires[key] = (await account.wait_for(name, f"{name}.o.{number}", before + more))[before:]
        await account.api.call(f"STREAM.DELETE.{name}")
    return Return(fires, stored)


@pytest.mark.clause("missed-fires", "at-past", "every-grid")
async def test_one_fire_makes_up_for_all_that_were_missed(shared_server: SharedServer, tmp_path: Path) -> None:
    lives: dict[str, Life] = {v: partial(life_of_a_server, v, tmp_path / v) for v in (V2_15, V2_14)}
    lives |= {v: partial(life_of_a_sidecar, await shared_server(v)) for v in (V2_11, V2_10)}
    returns = dict(zip(lives, await asyncio.gather(*map(away_and_back, lives.values())), strict=True))
    differences = Differences()
    differences.compare("fires made up", {version: found.made_up() for version, found in returns.items()})
    differences.check()
    for pattern in INTERVALS:
        assert returns[V2_11].is_on_its_grid(pattern)
        assert returns[V2_10].is_on_its_grid(pattern)
        assert returns[V2_15].is_anchored_anew(pattern)
        assert returns[V2_14].is_anchored_anew(pattern)


@pytest.mark.deep
@pytest.mark.clause("missed-fires", "kill")
async def test_a_kill_costs_neither_the_missed_fire_nor_the_phase(tmp_path: Path) -> None:
    ours, theirs = await asyncio.gather(
        away_and_back(partial(life_of_both, V2_11, tmp_path / "ours"), first_fires=True),
        away_and_back(partial(life_of_a_server, V2_15, tmp_path / "theirs", is_killed=True), first_fires=True),
    )
    assert ours.made_up() == dict.fromkeys(REPEATING, 1)
    assert all(map(ours.is_on_its_grid, INTERVALS))
    keeps_both = theirs.made_up() == ours.made_up() and all(map(theirs.is_on_its_grid, INTERVALS))
    assert not keeps_both, "the native scheduler keeps both now: say so in the document"
