"""The status page in a real Chromium, beside a real sidecar that holds thousands of schedules."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nats_scheduler.jetstream.connection import frame
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.web.rendering import address
from tests.harness.account import CLOCK, Account, account_on, in_seconds
from tests.harness.blocks import block_to_send
from tests.harness.browser import ENTER, TAB, Browser, browser_in, browser_programs
from tests.harness.flagged import FLAGGED
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import V2_11, server_binary

pytestmark = [pytest.mark.server, pytest.mark.deep, pytest.mark.asyncio(loop_scope="module")]

SCHEDULES = 10_000
FRAMES_AT_ONCE = 5_000
PHONE = 390
"""Width of the narrowest screen that the page is made for (CSS pixels)."""

HOSTILE = 'W.h.<img/src=x/onerror="pwned=1">\'"\u202e&amp;'
PAGES = {
    "/": "Overview",
    "/streams": "Streams",
    "/schedules?stream=W": "Schedules of W",
    address("/schedules", stream="W", filter="W.h.>"): "Schedules of W",
    address("/schedule", stream="W", subject="W.cron"): "W.cron",
    address("/schedule", stream="W", subject=HOSTILE): "",
    address("/history", stream="W", subject=HOSTILE): "",
    address("/history", stream="W", subject="W.cron", until="<b>soon"): "Past fires of W.cron",
    address("/schedule", stream="W", subject="W.invalid"): "W.invalid",
    "/rejected?stream=W": "Rejected messages of W",
    "/fires": "Last fires",
    "/failures": "What went wrong",
    "/changes": "Changes",
    "/instances": "Instances",
    "/findings": "Doctor",
    "/calendars": "Calendars",
    "/nowhere": "No such page",
}
AXE = Path(__file__).parent / "axe" / "axe.min.js"
ALL_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@dataclass
class Watched:
    """The page, its browser, and what it is about."""

    url: str
    browser: Browser
    account: Account
    web: ChildProcess

    async def open(self, path: str) -> None:
        """Load a page of the status page."""
        await self.browser.open(f"{self.url}{path}")

    async def update(self) -> None:
        """Have the page ask for what changes, as it does when its tab is shown again, and wait until it has.

        What a page of the past shows does not change.
        """
        if await self.browser.run("return document.getElementById('pause') === null"):
            return
        number = "return performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').length"
        before = await self.browser.run(number)
        await self.browser.run("document.dispatchEvent(new Event('visibilitychange'))")
        await self.browser.until(f"{number} > given[0]", before)

    async def fires(self, subject: str) -> None:
        """Publish a schedule that fires at once."""
        headers = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": "W.out"}
        await self.account.publish(subject, headers)


async def fill(account: Account) -> None:
    """Store the schedules of the scene."""
    await account.create("W", allow_msg_ttl=True, metadata=FLAGGED)
    cron = {"Nats-Schedule": "0 30 9 * * mon-fri", "Nats-Schedule-Time-Zone": "Europe/Berlin"}
    await account.publish("W.cron", {**cron, "Nats-Schedule-Target": "W.morning"})
    await account.publish("W.invalid", {"Nats-Schedule": "@every soon<b>", "Nats-Schedule-Target": "W.out"})
    await account.publish("W.misnamed", {"Nats-Schedul": "@every 1s"})
    far = {"Nats-Schedule": f"@at {in_seconds(90_000)}", "Nats-Schedule-Target": HOSTILE.replace("W.h", "W.t", 1)}
    await account.publish(HOSTILE, far)
    now = CLOCK.now()
    for first in range(0, SCHEDULES, FRAMES_AT_ONCE):
        frames = []
        for number in range(first, first + FRAMES_AT_ONCE):
            at = format_rfc3339(now + (3600 + number) * SECOND)
            block = block_to_send({"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "W.out"})
            frames.append(frame(f"W.s.{number:06}", "", block, b""))
        account.connection.write(b"".join(frames))
        await account.connection.request("W.mark", b"")  # the server has taken all that was sent before


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    """One server, sidecar, page and browser for all tests of this module."""
    browser_programs()
    folder = tmp_path_factory.mktemp("browser")
    server = EmbeddedServer(server_binary(V2_11), folder / "server")
    await server.start()
    try:
        async with account_on(server.url) as account, browser_in(folder) as browser:
            await fill(account)
            run = sidecar("run", "--server", server.url, folder=folder, name="run")
            web = sidecar("web", "--server", server.url, "--web-port", "0", folder=folder, name="web")
            with run, web:
                line = await web.wait_for_line("web_served")
                page = Watched(line.rpartition("url=")[2].strip(), browser, account, web)
                await browser.size(1280, 900)
                await page.open("/")
                await browser.until(f"return document.body.innerText.includes('{SCHEDULES + 2:,} schedules')")
                await browser.console()
                yield page
    finally:
        await server.stop()


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_accessible_and_fits_a_phone(watched: Watched, path: str) -> None:
    browser = watched.browser
    await watched.open(path)
    title = await browser.run("return document.title")
    assert title.endswith(f"{PAGES[path]} · nats-scheduler") or not PAGES[path]
    await watched.update()  # what it puts into the page is allowed by the policy, too
    assert await browser.run("return typeof pwned") == "undefined"
    assert await browser.run("return document.querySelectorAll('#main img, #main b, #main script').length") == 0
    said = await browser.console()
    assert said == [] if path != "/nowhere" else len(said) > 0, "the browser reports each answer with 404"
    assert await accessibility_faults(watched.browser, *ALL_RULES) == []
    await browser.console()
    try:
        await browser.size(PHONE, 844, is_phone=True)
        await watched.open(path)
        assert await browser.run("return document.documentElement.scrollWidth") <= PHONE, "no scrolling to the side"
    finally:
        await browser.size(1280, 900)


async def test_the_page_updates_itself_and_keeps_what_the_reader_did(watched: Watched) -> None:
    """A fire appears without a reload; the focus, an open table, a selection and the scroll position stay."""
    browser = watched.browser
    await watched.open("/")
    await browser.run("window.sameDocument = true; document.querySelector('#ahead ~ details').open = true")
    await browser.run("document.querySelector('#streams').parentElement.querySelector('a').focus()")
    await browser.run("getSelection().selectAllChildren(document.querySelector('#streams'))")
    await browser.run("scrollTo(0, 200)")
    await watched.fires("W.now")
    await browser.until("return document.querySelector('#fires').parentElement.innerText.includes('W.now')")
    kept = await browser.run(
        "return [window.sameDocument, document.querySelector('#ahead ~ details').open,"
        " document.activeElement.innerText, getSelection().toString().trim(), scrollY > 0]"
    )
    assert kept == [True, True, "W", "Streams", True]


async def test_a_hostile_subject_is_shown_as_text(watched: Watched) -> None:
    browser = watched.browser
    await watched.open(address("/schedules", stream="W", filter="W.h.>"))
    # An answer that takes a moment comes after the page.
    await browser.until("return document.querySelector('#live a.subject') !== null")
    shown = await browser.run("return document.querySelector('#live a.subject').innerText")
    assert shown == HOSTILE.replace("\u202e", "\\u202e")
    await browser.run("document.querySelector('#live a.subject').click()")
    await browser.until("return document.querySelector('h1.title') !== null")
    assert await browser.run("return document.querySelector('h1').innerText") == shown
    await browser.until("return document.body.innerText.includes('Stored as')")


async def test_the_page_works_by_keys(watched: Watched) -> None:
    """The first key leads to the content; then come the pages in their order, and what has the focus is outlined."""
    browser = watched.browser
    await watched.open("/")
    await browser.press(TAB)
    assert await browser.run("return document.activeElement.innerText") == "Skip to the content"
    assert await browser.run("return document.activeElement.getBoundingClientRect().left") >= 0
    await browser.press(ENTER)
    assert await browser.run("return document.activeElement.id") == "main"
    await watched.open("/")
    await browser.press(TAB)
    places = []
    for _ in range(9):
        await browser.press(TAB)
        outlined = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        place, has_outline = await browser.run(f"return [document.activeElement.innerText, {outlined}]")
        assert has_outline, place
        places.append(place.strip())
    pages = ["Overview", "Schedules", "Fires", "Failures", "Instances", "Doctor"]
    assert places == ["nats-scheduler", *pages, "All is well", "Pause updates"]


async def accessibility_faults(browser: Browser, *rules: str) -> list[tuple[str, Any]]:
    """Return what axe finds wrong with the page that is open."""
    await browser.run(AXE.read_text("utf-8") + ";return true")
    kind = "tag" if rules == ALL_RULES else "rule"
    script = (
        "return JSON.stringify((await axe.run({ runOnly: { type: given[0], values: given.slice(1) } })).violations)"
    )
    found = await browser.run(script, kind, *rules)
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in json.loads(found)]


async def test_a_page_whose_server_ends_says_so(watched: Watched) -> None:
    """It is the last test: the process of the page does not come back."""
    browser = watched.browser
    await watched.open("/")
    assert await watched.web.terminate() == 0
    for _ in range(2):
        await browser.run("document.dispatchEvent(new Event('visibilitychange'))")
    await browser.until("return !document.querySelector('#lost').hidden")
    assert "It tries again." in await browser.run("return document.querySelector('#lost').innerText")
    await browser.console()
