"""Replaced, deleted, purged, expired, overwritten or cancelled schedules never fire again: *Latest* and *Gone*.

That nothing fires is shown by a canary: a schedule due later than the removed one, in the same stream, that has fired.
"""

from collections.abc import Awaitable, Callable

import pytest

from nats_scheduler.engine.events import ScheduleEnded
from nats_scheduler.schedule.instants import SECOND
from tests.e2e.conftest import Served
from tests.harness.account import in_seconds
from tests.harness.waiting import eventually

Removal = Callable[[Served, int], Awaitable[object]]


async def delete(served: Served, sequence: int) -> None:
    await served.account.api.call(f"STREAM.MSG.DELETE.{served.name}", {"seq": sequence, "no_erase": True})


async def erase(served: Served, sequence: int) -> None:
    await served.account.api.call(f"STREAM.MSG.DELETE.{served.name}", {"seq": sequence})


async def purge_the_subject(served: Served, _sequence: int) -> None:
    await served.account.api.call(f"STREAM.PURGE.{served.name}", {"filter": served.subject("s")})


async def purge_by_wildcard(served: Served, _sequence: int) -> None:
    await served.account.api.call(f"STREAM.PURGE.{served.name}", {"filter": f"{served.name}.*"})


async def purge_everything(served: Served, _sequence: int) -> None:
    await served.account.api.call(f"STREAM.PURGE.{served.name}")


async def overwrite(served: Served, _sequence: int) -> None:
    await served.publish("s", body=b"an ordinary message")


async def cancel(served: Served, _sequence: int) -> None:
    await served.publish("cancels", {"Nats-Scheduler": served.subject("s"), "Nats-Schedule-Next": "purge"})


async def replace_by_an_invalid_one(served: Served, _sequence: int) -> None:
    await served.schedule("s", "@at soon")


async def replace_by_a_later_one(served: Served, _sequence: int) -> None:
    await served.schedule("s", f"@at {in_seconds(3600)}")


ATTEMPTS = 20

REMOVALS = [
    delete,
    erase,
    purge_the_subject,
    purge_by_wildcard,
    purge_everything,
    overwrite,
    cancel,
    replace_by_an_invalid_one,
    replace_by_a_later_one,
]


async def expect_silence(served: Served, canary_in: float) -> None:
    """Show that what targets `out` did not fire, by a canary that fires after it was due."""
    await served.schedule("canary", f"@at {in_seconds(canary_in)}", target="canary.out")
    await served.wait_for("canary.out")
    assert await served.messages("out") == []


@pytest.mark.parametrize("remove", REMOVALS)
async def test_a_removed_schedule_never_fires(served: Served, remove: Removal) -> None:
    sequence = await served.schedule("s", f"@at {in_seconds(1.2)}")
    await remove(served, sequence)
    await expect_silence(served, 1.5)


@pytest.mark.parametrize("remove", REMOVALS)
async def test_a_schedule_removed_just_before_its_time_does_not_fire(served: Served, remove: Removal) -> None:
    """Removed when its content was already read: the guard, or on 2.10 the request that was seen, stops it."""
    await remove(served, await prepared(served))
    await expect_silence(served, 0.8)


async def prepared(served: Served) -> int:
    """Store a schedule, and return its sequence while its fire is built and not sent.

    On 2.10 that is for 50 ms at most. If a busy machine lets them pass, its fire is removed, and another one stored.
    """
    engine = served.sidecar.sidecar.served[served.name].engine

    def is_built() -> bool:
        flight = engine.view().flight(served.subject("s"))
        return flight is not None and flight.fire is not None

    async def is_built_or_fired() -> bool:
        return is_built() or bool(await served.messages("out"))

    for _attempt in range(ATTEMPTS):
        sequence = await served.schedule("s", f"@at {in_seconds(0.5)}")
        await eventually(is_built_or_fired, within_seconds=30, describe="the fire is built")
        if is_built():
            return sequence
        await served.account.api.call(f"STREAM.PURGE.{served.name}", {"filter": served.subject("out")})
    raise AssertionError(f"each of {ATTEMPTS} fires was sent before anybody saw that it was built")


async def test_a_repeating_schedule_stops_when_it_is_deleted(served: Served) -> None:
    sequence = await served.schedule("s", "@every 1s")
    before = await served.wait_for("out", 2)
    await delete(served, sequence)
    await served.schedule("canary", f"@at {in_seconds(2.2)}", target="canary.out")
    await served.wait_for("canary.out")
    assert len(await served.messages("out")) == len(before)
    assert [event.schedule for event in served.sidecar.of(served.name, ScheduleEnded)][:1] == [served.subject("s")]


async def test_a_replacement_fires_in_place_of_what_it_replaced_and_the_old_version_is_removed(served: Served) -> None:
    await served.schedule("s", f"@at {in_seconds(0.8)}", b"old")
    newer = await served.schedule("s", f"@at {in_seconds(1.0)}", b"new")

    async def rolled_up() -> bool:
        return [message.sequence for message in await served.messages("s")] == [newer]

    await eventually(rolled_up, within_seconds=30, describe="the older version is removed")
    assert [message.body for message in await served.wait_for("out")] == [b"new"]


async def test_an_older_version_that_is_uncovered_does_not_fire(served: Served) -> None:
    await served.schedule("s", f"@at {in_seconds(1.2)}", b"old")
    newer = await served.schedule("s", f"@at {in_seconds(1.2)}", b"new")
    await delete(served, newer)
    await expect_silence(served, 1.5)


async def test_a_schedule_that_expired_by_the_age_limit_of_the_stream_does_not_fire(served: Served) -> None:
    info = await served.account.api.stream(served.name)
    await served.account.api.update_stream({**info["config"], "max_age": SECOND, "duplicate_window": SECOND})
    await served.schedule("s", f"@at {in_seconds(2)}")

    async def expired() -> bool:
        return not await served.messages("s")

    await eventually(expired, within_seconds=30, describe="the schedule has expired")
    await served.account.api.update_stream(info["config"])
    await expect_silence(served, 1.5)


async def test_a_schedule_pushed_out_by_a_limit_does_not_fire(served: Served) -> None:
    info = await served.account.api.stream(served.name)
    await served.account.api.update_stream({**info["config"], "max_msgs": 2})
    await served.schedule("s", f"@at {in_seconds(1.2)}")
    await served.publish("other", body=b"1")
    await served.publish("other", body=b"2")
    await expect_silence(served, 1.5)
