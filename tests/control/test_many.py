"""Schedules are found by wildcards, sorted and bounded."""

import pytest

from nats_scheduler.control.errors import NotPossibleError
from nats_scheduler.control.store import matching
from tests.control.world import World, block


async def test_what_matches_is_found_by_subject() -> None:
    world = World()
    world.put(block(), subject="S.b.two")
    world.put(block("nonsense"), subject="S.b.one")
    world.put(block().replace(b"Schedule:", b"Schedule-X-Paused:"), subject="S.b.three")
    world.put(b"", subject="S.b.plain")
    world.put(block(), subject="S.c.one")
    found = await matching(world.store, "S", "S.b.*")
    assert [one.subject for one in found] == ["S.b.one", "S.b.three", "S.b.two"]
    assert [(one.is_paused, one.rejection is None) for one in found] == [(False, False), (True, True), (False, True)]
    assert [one.subject for one in await matching(world.store, "S")][-1] == "S.c.one"


async def test_more_than_are_wanted_are_refused() -> None:
    world = World()
    for number in range(3):
        world.put(block(), subject=f"S.{number}")
    assert len(await matching(world.store, "S", most=3)) == 3
    with pytest.raises(NotPossibleError, match="more than 2 schedules of stream S match >"):
        await matching(world.store, "S", most=2)
