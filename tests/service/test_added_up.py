"""The numbers of two sidecars are added up by the one that answers, and what is missing is named."""

from typing import Any

import pytest

from nats_scheduler.runtime.stream_service import HANDOVER_OVERLAP_SECONDS
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, in_seconds
from tests.harness.permissions import permissions_of, shared_account
from tests.harness.waiting import eventually
from tests.service.asking import answered
from tests.service.test_shared import ASKS, Pair, pair_on, without

FIRES = 24
WHEN_DIVIDED = HANDOVER_OVERLAP_SECONDS + 1
"""Seconds from when both know who holds what until only the holder fires."""


async def fire(pair: Pair) -> None:
    """Let both sidecars fire, and wait until they have counted it.

    While shards change hands, both fire for them, and one of them may store all fires: these are due after that.
    """
    for number in range(FIRES):
        headers = {"Nats-Schedule": f"@at {in_seconds(WHEN_DIVIDED)}", "Nats-Schedule-Target": "orders.out"}
        await pair.account.publish(f"orders.now.{number}", headers)

    async def are_counted() -> bool:
        parts = [await alone(pair, instance) for instance in pair.ids]
        stored = sum(fires_in(minutes) for minutes, _recent in parts)
        return stored == len({number for _minutes, recent in parts for number in in_order(recent)}) == FIRES

    await eventually(are_counted, within_seconds=WAIT_SECONDS, describe=f"{FIRES} fires are counted")


async def alone(pair: Pair, instance: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what one sidecar did: its minutes, and its last fires."""
    activity = await answered(pair.account.connection, f"activity.list.{instance}")
    recent = await answered(pair.account.connection, f"fires.recent.{instance}", {"limit": 200})
    assert (activity["instance"], activity["unanswered"]) == (instance, [])
    return activity["minutes"], recent["fires"]


def fires_in(minutes: list[dict[str, Any]]) -> int:
    return sum(one["fires"] for one in minutes)


def totals(minutes: list[dict[str, Any]]) -> tuple[list[int], int]:
    """Return the histogram of all minutes, and the greatest lateness."""
    columns = zip(*(one["lateness"] for one in minutes), strict=True)
    return [sum(column) for column in columns], max(one["lateness_max_nanoseconds"] for one in minutes)


def in_order(fires: list[dict[str, Any]]) -> list[int]:
    return [one["sequence"] for one in fires]


async def test_the_minutes_and_the_last_fires_of_both(start_server: StartServer) -> None:
    server = await start_server(config=shared_account([permissions_of("2.11")] * 2))
    async with pair_on(server) as pair:
        await fire(pair)

        async def add_up() -> bool:
            parts = [await alone(pair, instance) for instance in pair.ids]
            assert all(fires_in(minutes) and recent for minutes, recent in parts), "each of them fired"
            for instance in pair.ids:
                whole = await pair.by(instance, "activity.list", stream="ORDERS")
                assert (fires_in(whole["minutes"]), whole["unanswered"]) == (FIRES, [])
                assert totals(whole["minutes"]) == totals([one for minutes, _recent in parts for one in minutes])
                recent = await pair.by(instance, "fires.recent", stream="ORDERS", filter="orders.now.*", limit=200)
                both = {number for _minutes, fires in parts for number in in_order(fires)}
                assert (in_order(recent["fires"]), recent["unanswered"]) == (sorted(both, reverse=True), [])
                few = await pair.by(instance, "fires.recent", limit=3)
                assert in_order(few["fires"]) == in_order(recent["fires"][:3])
            return True

        await eventually(add_up, within_seconds=WAIT_SECONDS, describe="what both did is added up")


async def test_who_does_not_answer_is_named(start_server: StartServer) -> None:
    server = await start_server(config=shared_account([permissions_of("2.11"), without(ASKS)]))
    async with pair_on(server) as pair:
        await fire(pair)
        whole, partly = pair.ids
        (ours, recent), (_theirs, theirs) = await alone(pair, partly), await alone(pair, whole)
        activity = await pair.by(partly, "activity.list")
        assert (activity["unanswered"], fires_in(activity["minutes"])) == ([whole], fires_in(ours))
        fires = await pair.by(partly, "fires.recent", limit=200)
        assert (fires["unanswered"], fires["fires"]) == ([whole], recent)
        assert fires_in((await pair.by(whole, "activity.list"))["minutes"]) == FIRES
        assert len((await pair.by(whole, "fires.recent", limit=200))["fires"]) == len(recent) + len(theirs)


@pytest.mark.parametrize("leaver", [0, 1])
async def test_who_has_left_takes_its_hour_along_and_is_not_waited_for(start_server: StartServer, leaver: int) -> None:
    server = await start_server(config=shared_account([permissions_of("2.11")] * 2))
    async with pair_on(server) as pair:
        await fire(pair)
        stays = pair.ids[1 - leaver]
        ours, _recent = await alone(pair, stays)
        leaving = pair.sidecars[leaver].sidecar
        leaving.stop()
        # A request that reaches it while it ends has no answer.
        await eventually(lambda: leaving.connection is None, within_seconds=WAIT_SECONDS, describe="it has ended")

        async def has_left() -> dict[str, Any] | None:
            answer = await answered(pair.account.connection, "activity.list")
            is_alone = answer["instance"] == stays and not answer["unanswered"]
            return answer if is_alone and fires_in(answer["minutes"]) == fires_in(ours) else None

        await eventually(has_left, within_seconds=WAIT_SECONDS, describe="the one that stays answers alone")
