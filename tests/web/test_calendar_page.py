"""The page of calendars: their days that are to come, what is none, and which calendar a schedule lacks."""

from nats_scheduler.engine.views.outlook import State
from nats_scheduler.schedule.days import day_text
from nats_scheduler.schedule.instants import DAY
from nats_scheduler.web.pages import PAGE_LENGTH
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, sidecar_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually
from tests.service.test_calendar_endpoints import write
from tests.web.browsing import browsing


async def test_the_days_that_are_to_come_and_the_calendar_that_a_schedule_lacks(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    day = CLOCK.now() // DAY
    ahead = [day_text(day + number) for number in range(10, 30, 2)]
    async with sidecar_on(server.url) as running, account_on(server.url) as account, browsing(server.url) as page:
        await account.create("O")
        await running.ready("O")
        headers = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "O.out"}
        await account.publish("O.waits", {**headers, "Nats-Schedule-X-Except": "calendar:lost"})

        def is_waiting() -> bool:
            listed = running.sidecar.served["O"].engine.view().schedule("O.waits", CLOCK.now())
            return listed is not None and listed.state is State.NO_CALENDAR

        await eventually(is_waiting, describe="the schedule waits for its calendar")
        await page.connected()
        assert "There is no calendar." in await page.shows(
            "/calendars", "names the calendar lost, which does not exist"
        )

        texts = {
            "de-by": "\n".join([f"{day_text(day - 3)}..{day_text(day + 3)}", "2001-01-01", *ahead]).encode(),
            "over": b"2001-01-01",
            "wrong": "<script>\u202e".encode(),
        }
        await write(account, texts)
        shown = await page.shows("/calendars", ">de-by</bdi>", ">over</bdi>", ">wrong</bdi>")
        assert f"{day_text(day - 3)} to {day_text(day + 3)}</span>" in shown
        assert "<summary>and 10 days and ranges</summary>" in shown
        assert [f"<li>{one}</li>" in shown for one in ahead] == [True] * len(ahead)
        assert "no day is to come" in shown
        assert '<span class="alarm">invalid</span>' in shown
        assert "line 1 contains &#39;&lt;script&gt;\\u202e&#39;" in shown
        assert ("<script>" in shown.partition("<main")[2], "\u202e" in shown) == (False, False)
        link = 'href="/calendars">Calendars</a>'
        assert link in await page.get("/schedules?stream=O")
        assert f"calendar:lost</bdi> <a {link}" in await page.shows("/schedule?stream=O&subject=O.waits", "X-Except")
        fragment = await page.get("/calendars", x_fragment="1")
        assert ("<html" in fragment, ">de-by</bdi>" in fragment) == (False, True)

        await write(account, dict.fromkeys([f"many-{number:02}" for number in range(PAGE_LENGTH)], b"2030-01-01"))
        first = await page.shows("/calendars", 'rel="next"')
        assert ">wrong</bdi>" not in first
        following = first.partition('rel="next" href="')[2].partition('"')[0]
        last = await page.shows(following, ">wrong</bdi>", 'rel="first"')
        assert ">de-by</bdi>" not in last
        assert "Not known: cursor of" in await page.get("/calendars?cursor=%3F")
