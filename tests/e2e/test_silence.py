"""What happens in silence is announced, on real servers: a loss that nobody asked for, and work that is not done."""

from dataclasses import replace

from nats_scheduler.engine.events import ScheduleOnlyDropped, ScheduleReplacedUnfired, ScheduleSilent
from nats_scheduler.engine.views.silent import BEGINNING
from nats_scheduler.message.findings import Code
from nats_scheduler.message.jitter import delay_of
from nats_scheduler.message.silence import Silence
from nats_scheduler.runtime.silent_schedules import SilentSchedules
from nats_scheduler.schedule.instants import DAY, HOUR, SECOND
from nats_scheduler.service.turns import Turns
from tests.conftest import StartServer
from tests.doctor.examined import findings_on, of
from tests.harness.account import CLOCK
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FLAG, FLAGGED, Served, at, served_on
from tests.harness.servers import V2_11
from tests.harness.spare_time import Fires
from tests.harness.waiting import eventually, instant_reached


async def beside(served: Served, name: str, **config: object) -> Served:
    """Have the same sidecar serve another stream too."""
    await served.account.create(name, **{**FLAG, **config})
    await served.sidecar.ready(name)
    return replace(served, name=name)


async def order(served: Served) -> tuple[int, int]:
    """Store an order that is due in an hour, again, again for a later time, and another one of the same size.

    Returns the sequences of the last two. What is replaced before it was read is not known.
    """
    due, engine = CLOCK.now() + HOUR, served.sidecar.sidecar.served[served.name].engine
    for later in (0, 0, HOUR):
        lost = await served.schedule("order", at(due + later), b"order 1")
    await eventually(lambda: engine.last_read >= lost)
    return lost, await served.schedule("order", at(due), b"order 2")


async def test_an_order_replaced_before_it_fires_is_announced(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config={"metadata": {**FLAGGED, "nats-scheduler.debounce": "true"}}) as meant:
        limits, queue = await beside(meant, "LIMITS"), await beside(meant, "QUEUE", retention="workqueue")
        await order(meant)
        for served in (limits, queue):
            heard = await HeardAdvisories.of(served.account.connection, served.name)
            lost, by = await order(served)
            advisory = await heard.first("schedule_replaced_unfired")
            assert (advisory["schedule"], advisory["replaced_by"]) == (served.subject("order"), by)
            # On a work queue, versions within milliseconds count as one; they have the same body.
            assert advisory["seq"] <= lost if served.name == "QUEUE" else advisory["seq"] == lost
            await served.left("order", [b"order 2"])
            await served.schedule("order", at(CLOCK.now()), b"order 2")
            await served.wait_for("out")
            assert [event.replaced_by for event in served.of(ScheduleReplacedUnfired)] == [by]
            assert served.sidecar.metrics.value("schedules_replaced_unfired", stream=served.name) == 1
        assert meant.of(ScheduleReplacedUnfired) == []
        lost_orders = of(await findings_on(server), Code.SCHEDULE_REPLACED_UNFIRED)
        assert [one.subject for one in lost_orders] == ["LIMITS.order", "QUEUE.order"]
        # What takes an hour is reported here as the engine does it (`tests/engine/test_silence.py`).
        heard = await HeardAdvisories.of(limits.account.connection, limits.name)
        dropped = ScheduleOnlyDropped("LIMITS.order", 5, 0, 7, "X-Overlap: skip")
        limits.sidecar.reporter.report(limits.name, dropped)
        await heard.first("schedule_only_dropped")
        (found,) = of(await findings_on(server), Code.SCHEDULE_ONLY_DROPPED)
        assert found.what.startswith("X-Overlap: skip dropped all fires of LIMITS.order (sequence 5)")


async def test_a_schedule_that_never_fires_is_announced_with_its_cause(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config=FLAG) as served:
        heard, sidecar = await HeardAdvisories.of(served.account.connection, served.name), served.sidecar.sidecar

        async def is_announced() -> bool:
            await served.schedule("often", "@every 1s")
            return bool(served.of(ScheduleSilent))

        await eventually(is_announced, describe="what is republished before each fire is announced")
        assert (await heard.first("schedule_silent"))["cause"] == "republished"
        (found,) = of(await findings_on(server), Code.SCHEDULE_SILENT)
        assert "(republished): it is stored again and again with the same pattern" in found.what
        hourly = await served.schedule("hourly", "@every 1h")
        await eventually(lambda: sidecar.served[served.name].engine.last_read >= hourly)
        now = CLOCK.now() - 3 * DAY  # as if these were stored while the clock was three days ahead
        check = SilentSchedules(sidecar.served, lambda: now, served.sidecar.reporter.report, Turns(Fires())).check
        assert await check(served.name, BEGINNING) is None
        told = [one.schedule for one in served.of(ScheduleSilent) if one.cause is Silence.CLOCK]
        assert sorted(told) == [served.subject("hourly"), served.subject("often")]


async def test_a_fire_lost_to_an_edit_is_announced(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config={"max_msgs_per_subject": 1}) as served:
        heard = await HeardAdvisories.of(served.account.connection, served.name)
        due = (CLOCK.now() // SECOND + 3) * SECOND
        note, rest, sequence = {"X-Jitter": "30s"}, "", 0
        while not sequence or delay_of(served.subject(rest), sequence, due, 30 * SECOND) < 10 * SECOND:
            rest = f"{rest}n"
            sequence = await served.schedule(rest, f"{due // SECOND % 60} * * * * *", more=note)
        await instant_reached(due, CLOCK.now)
        await served.schedule(rest, "@every 1h", more={**note, "X-Note": "edited"})
        advisory = await heard.first("fire_lost_to_replacement")
        assert (advisory["schedule"], advisory["seq"]) == (served.subject(rest), sequence)
        assert "keeps one message" in advisory["reason"]
