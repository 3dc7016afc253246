"""*Latest* and *Gone* in the moment of the fire: the server decides on 2.11, and the native scheduler does not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nats_scheduler.schedule.instants import MILLISECOND
from tests.conftest import StartServer
from tests.differential.races import Race, Tally
from tests.differential.sides import fresh_name
from tests.harness.account import account_on
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11, V2_15

ACTS: dict[str, tuple[Callable[[Race], Callable[[int], tuple[str, bytes, bytes]]], dict[str, bool]]] = {
    "replaced": (lambda race: race.replacement, {"replaces": True}),
    "overwritten": (lambda race: race.plain, {}),
    "deleted": (lambda race: race.deletion, {"marked": True}),
    "purged": (lambda race: race.purge, {"marked": True}),
}


LASTS = (60 * MILLISECOND, 200 * MILLISECOND)
"""How long the acts go on behind the instant: on a slow machine the second try meets the herd in the middle."""


async def raced(url: str, act: str, lasts: int, folder: Path | None = None) -> Tally:
    """Race on one server, with a sidecar of its own process where `folder` is given."""
    name = fresh_name()
    async with account_on(url) as account:
        race = Race(account, name, lasts=lasts)
        choose, how = ACTS[act]
        if folder is None:
            await account.create(name)
            return await race.run(choose(race), **how)
        with sidecar("run", "--server", url, "--no-context", "--log-format", "json", folder=folder) as process:
            await process.wait_for_line('"event": "connected"')
            await account.create(name)
            await process.wait_for_line('"event": "stream_ready"')
            tally = await race.run(choose(race), **how)
            assert await process.terminate() == 0
            return tally


@pytest.mark.clause("latest-and-gone")
@pytest.mark.parametrize("act", ACTS)
async def test_what_was_acknowledged_at_the_instant_of_the_fire_holds(
    act: str, start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    tallies = []
    for lasts in LASTS:
        tallies.append(await raced(server.url, act, lasts, tmp_path / str(lasts)))
        assert (tallies[-1].stale, tallies[-1].lost) == (0, 0)
        if tallies[-1].was_close:
            return
    raise AssertionError(f"nothing raced: {tallies}")


@pytest.mark.clause("latest-and-gone")
async def test_the_native_scheduler_loses_updates_in_the_same_race(start_server: StartServer) -> None:
    server = await start_server(V2_15)
    tallies = []
    for lasts in (0, 0, 10 * MILLISECOND):
        tallies.append(await raced(server.url, "replaced", lasts))
        if tallies[-1].lost and tallies[-1].stale:
            return
    raise AssertionError(f"it is as good as we are: {tallies}")
