"""Targets that nobody consumes for a day are announced: on a real server, with a clock that the test moves."""

from nats_scheduler.message.findings import Code
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.consumption import Consumption, stalled, unconsumed
from nats_scheduler.schedule.instants import DAY, HOUR
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.turns import Turns
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from nats_scheduler.testing.manual_clock import START
from tests.conftest import StartServer
from tests.doctor.examined import findings_on, of
from tests.harness.account import CLOCK
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FLAG, Served, served_on
from tests.harness.servers import V2_11
from tests.harness.spare_time import Fires
from tests.harness.waiting import eventually

NO_CONSUMERS = """
authorization { users: [
  { user: all, password: p }
  { user: few, password: p, permissions: { publish: { deny: ["$JS.API.CONSUMER.LIST.>"] } } }
] }
no_auth_user: all
"""


class Hours:
    """A check of the consumers of one stream, at hours that the test names."""

    def __init__(self, served: Served, url: str) -> None:
        settings = SidecarSettings(connection=ConnectionSettings(servers=(url,)))
        self.access = Access.through(served.account.connection, settings)
        self.served = served
        self._began = self._now = CLOCK.now()
        running = served.sidecar
        self._checked = Consumption(running.sidecar.served, lambda: self._now, running.reporter, Turns(Fires()))

    async def at(self, *hours: int) -> list[int]:
        """Check at these hours after the beginning; returns those at which something was reported."""
        told = []
        for hour in hours:
            self._now, before = self._began + hour * HOUR, self._reports()
            await self._checked.check(self.access)
            told += [hour] * (self._reports() - before)
        return told

    def _reports(self) -> int:
        return int(self.served.sidecar.metrics.value("schedules_silent", stream=self.served.name, cause="unconsumed"))


async def test_a_target_that_nobody_consumes_for_a_day_is_announced(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config=FLAG) as served:
        heard, hours = await HeardAdvisories.of(served.account.connection, served.name), Hours(served, server.url)
        await served.schedule("yearly", "@yearly", target="never")
        await served.schedule("beat", "@every 1s")
        await served.schedule("sampler", "@every 1s", target="copy", more={"Source": served.subject("out")})
        await served.wait_for("copy")
        await served.add_consumer("copies", "copy")
        assert await hours.at(0, 23, 24, 25, 47) == [], "`out` is sampled, `copy` has a consumer, `never` has no fire"
        await served.call("STREAM.PURGE", {"filter": served.subject("sampler")})
        await eventually(lambda: served.sidecar.sidecar.served["S"].engine.held.on(served.subject("sampler")) is None)
        assert await hours.at(48, 71, 72, 73, 95, 96) == [72, 96], "once a day"
        advisory = await heard.first("target_unconsumed")
        assert (advisory["schedule"], advisory["target"]) == (served.subject("beat"), served.subject("out"))
        assert "no consumer of the stream receives it" in advisory["reason"]
        (found,) = of(await findings_on(server), Code.TARGET_UNCONSUMED)
        assert found.subject == served.subject("beat")
        await served.add_consumer("work", "out")  # a consumer that was created days before these hours
        assert await hours.at(97, 120) == [120]
        await eventually(
            lambda: heard.bodies[-1][1]["reason"] == "messages wait for consumer work, which delivers nothing"
        )
        later = of(await findings_on(server, now=lambda: CLOCK.now() + 2 * DAY), Code.TARGET_UNCONSUMED)
        assert [one.subject for one in later] == [served.subject("out")], "the doctor finds it at once"


async def test_what_may_not_be_listed_is_not_known(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=NO_CONSUMERS)
    url = server.url.replace("nats://", "nats://few:p@")
    async with served_on(url, config=FLAG) as served:
        hours = Hours(served, url)
        await served.schedule("beat", "@every 1s")
        await served.wait_for("out")
        assert await hours.at(0, 24, 48) == []


def test_a_consumer_is_idle_if_messages_wait_for_it_for_a_day() -> None:
    def info(name: str, pending: int, hours: int | None) -> dict[str, object]:
        delivered = {} if hours is None else {"last_active": format_rfc3339(START - hours * HOUR)}
        created = format_rfc3339(START - 30 * HOUR)
        return {"name": name, "num_pending": pending, "created": created, "delivered": delivered}

    given = [info("none waits", 0, 30), info("works", 5, 23), info("idle", 5, 24), info("never", 5, None)]
    assert stalled([*given, {}], START) == ["idle", "never"]
    targets, consumers = ("a.1", "a.2", "b.1", "c.1"), {"idle": ["a.*"], "works": ["a.2", "b.1"]}
    assert list(unconsumed(targets, consumers, ["idle"], [])) == [("a.1", "idle"), ("c.1", "")]
    assert list(unconsumed(targets, consumers, ["idle"], ["c.>", "a.1"])) == []
