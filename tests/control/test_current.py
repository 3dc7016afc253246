"""The message that lies on a subject is read as whatever fires it reads it."""

import pytest

from nats_scheduler.control.current import read_current
from nats_scheduler.control.errors import NotFoundError, NotPossibleError
from nats_scheduler.control.standing import current
from nats_scheduler.control.store_port import Served
from nats_scheduler.message.dialect import PORTABLE
from tests.control.world import NEVER, SUBJECT, World, block
from tests.harness.blocks import block_of


async def test_a_paused_and_rejected_schedule_is_read(world: World) -> None:
    world.put(block("nonsense", "X-").replace(b"X-Nats-Schedule:", b"X-Nats-Schedule-X-Paused:"))
    found = await world.found()
    assert (found.is_paused, found.dialect, found.pattern, found.definition) == (True, PORTABLE, "nonsense", None)
    assert found.rejection is not None
    assert found.rejection.code == 10189
    assert found.active_block == block("nonsense", "X-")


async def test_policies_count_only_where_a_sidecar_fires() -> None:
    world = World(is_native=True)
    world.put(block(NEVER, Nats_Schedule_X_Nonsense="1"), subject="S.by-server")
    world.put(block(NEVER, "X-", X_Nats_Schedule_X_Nonsense="1"), subject="S.by-sidecar")
    by_server, by_sidecar = await world.found("S.by-server"), await world.found("S.by-sidecar")
    assert (by_server.is_fired_by_server, by_server.rejection) == (True, None)
    assert not by_sidecar.is_fired_by_server
    assert by_sidecar.rejection is not None


async def test_what_is_no_schedule_is_not_found() -> None:
    for stored, reason in (
        (b"", "is no schedule"),
        (block_of(("Nats-Schedule-Target", "S.out")), "is no schedule"),
        (block_of(("Nats-Schedule", "")), "is no schedule"),
        (block_of(("Nats-Marker-Reason", "MaxAge")), "no schedule is stored"),
    ):
        world = World()
        world.put(stored)
        with pytest.raises(NotFoundError, match=reason):
            await current(world.store, await world.store.served("S"), SUBJECT)


async def test_a_fire_that_was_stored_over_a_schedule_is_not_taken_for_it(world: World) -> None:
    world.put(block())
    world.put(block_of(("Nats-Scheduler", "S.other"), ("Nats-Msg-Id", "nats-scheduler:1:5:S.other")))
    with pytest.raises(NotPossibleError, match=r"a fire of S\.other"):
        await current(world.store, await world.store.served("S"), SUBJECT)


async def test_a_spelling_that_nothing_fires_is_named() -> None:
    for stored in (block(), block().replace(b"Nats-Schedule:", b"Nats-Schedule-X-Paused:")):
        world = World()
        world.put(stored)
        served = await world.store.served("S")
        dormant = Served(served.rules, (PORTABLE,), is_native=False)
        assert read_current(world.last(), dormant) is None
        with pytest.raises(NotPossibleError, match="has Nats-Schedule, and nothing fires"):
            await current(world.store, dormant, SUBJECT)
