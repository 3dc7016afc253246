"""What happens in silence is announced, on real servers: a loss that nobody asked for, and work that is not done."""

from dataclasses import replace

import pytest

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
from tests.harness.servers import V2_11, V2_12, V2_15
from tests.harness.waiting import eventually, instant_reached
from tests.service.asking import answered


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


@pytest.mark.slow
async def test_an_order_that_another_one_replaces_before_it_fires_is_announced(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config={"metadata": {**FLAGGED, "nats-scheduler.debounce": "true"}}) as meant:
        limits, one = await beside(meant, "LIMITS"), await beside(meant, "ONE", max_msgs_per_subject=1)
        of_limits = HeardAdvisories(limits.account.connection, limits.name)
        await order(meant)
        for served in (limits, one, await beside(meant, "QUEUE", retention="workqueue")):
            heard = HeardAdvisories(served.account.connection, served.name)
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
        found = of(await findings_on(server), Code.SCHEDULE_REPLACED_UNFIRED)
        assert [one.subject for one in found] == ["LIMITS.order", "ONE.order", "QUEUE.order"]
        assert all("replaced it before that" in one.what for one in found)
        from_within = await answered(limits.account.connection, "findings.list")
        told = [(one["subject"], one["what"]) for one in from_within["findings"] if one["code"] == found[0].code]
        assert told == [(one.subject, one.what) for one in found], "a running sidecar finds the same"
        # What takes hours is reported here as the engine does it (`tests/engine/test_silence.py`).
        report = limits.sidecar.sidecar._reporter.report
        report(limits.name, ScheduleSilent("LIMITS.order", 5, 0, Silence.REFUSED, "its fires are refused"))
        report(limits.name, ScheduleOnlyDropped("LIMITS.order", 5, 0, 7, "X-Overlap: skip"))
        for kind, cause in (("schedule_silent", "not_stored"), ("schedule_only_dropped", "dropped")):
            await of_limits.first(kind)
            assert limits.sidecar.metrics.value("schedules_silent", stream="LIMITS", cause=cause) == 1
        (silent,) = of(await findings_on(server), Code.SCHEDULE_SILENT)
        (dropped,) = of(await findings_on(server), Code.SCHEDULE_ONLY_DROPPED)
        assert "from 1970-01-01T00:00:00Z on (refused): its fires are refused" in silent.what
        assert dropped.what.startswith("X-Overlap: skip dropped all fires of LIMITS.order (sequence 5)")


async def test_a_schedule_that_never_comes_to_fire_is_announced_with_its_cause(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config=FLAG) as served:
        heard, sidecar = HeardAdvisories(served.account.connection, served.name), served.sidecar.sidecar

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
        turns = Turns(sidecar._services, sidecar._file.views)
        check = SilentSchedules(sidecar.served, lambda: now, sidecar._reporter.report, turns).check
        for number in range(2):
            assert await check(served.name, BEGINNING) is None
            told = [one.schedule for one in served.of(ScheduleSilent) if one.cause is Silence.CLOCK]
            assert sorted(told) == [served.subject("hourly"), served.subject("often")], f"once each, check {number}"
        now += DAY
        await check(served.name, BEGINNING)
        assert len([one for one in served.of(ScheduleSilent) if one.cause is Silence.CLOCK]) == 4, "a day later"


@pytest.mark.slow
async def test_a_fire_that_an_edit_loses_where_one_message_is_kept_is_announced(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config={"max_msgs_per_subject": 1}) as served:
        heard = HeardAdvisories(served.account.connection, served.name)
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


@pytest.mark.slow
@pytest.mark.parametrize("version", [V2_12, V2_15])
async def test_an_order_that_the_server_itself_would_fire_is_watched(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with served_on(server.url, config={}) as served:
        first = await served.schedule("gone", at(CLOCK.now() + HOUR), b"order 1")
        await eventually(lambda: served.sidecar.sidecar.served["S"].engine.last_read == first)
        await served.call("STREAM.PURGE", {"filter": served.subject("gone")})
        await served.schedule("gone", at(CLOCK.now() + HOUR), b"order 2")
        heard = HeardAdvisories(served.account.connection, served.name)
        lost, by = await order(served)
        advisory = await heard.first("schedule_replaced_unfired")
        assert (advisory["schedule"], advisory["seq"], advisory["replaced_by"]) == (served.subject("order"), lost, by)
        await served.schedule("order", at(CLOCK.now()), b"order 2")
        await served.wait_for("out")
        await served.schedule("order", at(CLOCK.now() + HOUR), b"order 3")
        second = await served.schedule("order", at(CLOCK.now() + HOUR), b"order 4")
        told = [one.replaced_by for one in await served.reported(ScheduleReplacedUnfired, 2)]
        assert told == [by, second], "what fired is not lost"
        queue = await beside(served, "QUEUE", retention="workqueue", metadata={})
        engine = queue.sidecar.sidecar.served["QUEUE"].engine
        lost = await queue.schedule("order", at(CLOCK.now() + HOUR), b"order 1")
        await eventually(lambda: engine.last_read == lost)  # what is replaced within milliseconds counts as one
        by = await queue.schedule("order", at(CLOCK.now() + HOUR), b"order 2")
        assert [(one.sequence, one.replaced_by) for one in await queue.reported(ScheduleReplacedUnfired)] == [
            (lost, by)
        ]
