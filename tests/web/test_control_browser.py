"""The pages that change native schedules in a real Chromium: keys, typing, no scripts, a phone."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.web.rendering import address
from tests.harness.account import Account, account_on
from tests.harness.browser import ENTER, TAB, Browser, browser_in, browser_programs
from tests.harness.processes import sidecar
from tests.harness.servers import V2_15, server_binary
from tests.harness.waiting import eventually
from tests.web.test_browser import ALL_RULES, accessibility_faults
from tests.web.test_request_checks import CONTROL_TOKEN

pytestmark = [pytest.mark.server, pytest.mark.deep, pytest.mark.asyncio(loop_scope="module")]

PHONE = 360
"""Width of the narrowest screen that these pages are made for (CSS pixels)."""

MORNING = {"Nats-Schedule": "0 30 9 * * mon-fri", "Nats-Schedule-Time-Zone": "Europe/Berlin"}
SUBMITTED = "return document.querySelector('main').innerText.includes(given[0])"


@dataclass
class Desk:
    """The page, the browser of one who may change schedules, and what is stored."""

    url: str
    browser: Browser
    account: Account

    async def open(self, path: str) -> None:
        await self.browser.open(f"{self.url}{path}")

    async def add(self, subject: str) -> None:
        """Publish a schedule that the server fires, and wait until the page has it."""
        await self.account.publish(subject, {**MORNING, "Nats-Schedule-Target": "O.out"})
        listed = address("/schedule", stream="O", subject=subject)

        async def is_known() -> bool:
            await self.open(listed)
            return bool(await self.browser.run("return document.body.innerText.includes('Stored as')"))

        await eventually(is_known, describe=f"the page knows {subject}")

    async def block(self, subject: str) -> bytes:
        stored = await self.account.api.message("O", last_by_subj=subject)
        assert stored is not None
        return stored.block


async def fill(browser: Browser, **typed: str) -> None:
    """Type into fields by their names, as a person does: into the one that has the focus."""
    for name, text in typed.items():
        await browser.run("document.querySelector(`main [name=${given[0]}]`).select()", name)
        await browser.press(*text)


async def sign_in(browser: Browser, url: str) -> None:
    await browser.open(f"{url}/login")
    await browser.press(*CONTROL_TOKEN, ENTER)
    await browser.until("return location.pathname === '/' && document.readyState === 'complete'")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    browser_programs()
    folder = tmp_path_factory.mktemp("desk")
    server = EmbeddedServer(server_binary(V2_15), folder / "server")
    await server.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        account = await stack.enter_async_context(account_on(server.url))
        await account.create("O", allow_msg_ttl=True)
        run = stack.enter_context(sidecar("run", "--server", server.url, "--allow-control", folder=folder, name="run"))
        await run.wait_for_line("connected")
        flags = ("--server", server.url, "--web-port", "0", "--web-control-token", CONTROL_TOKEN)
        web = stack.enter_context(sidecar("web", *flags, folder=folder, name="web"))
        url = (await web.wait_for_line("web_served")).rpartition("url=")[2].strip()
        browser = await stack.enter_async_context(browser_in(folder / "browser"))
        await browser.size(1280, 900)
        await sign_in(browser, url)
        await browser.console()  # it would like a field for a name beside that of the token
        yield Desk(url, browser, account)


async def test_a_schedule_is_paused_by_keys_alone(desk: Desk) -> None:
    browser = desk.browser
    await desk.add("O.keys")
    await browser.until("return document.body.innerText.includes('the server itself')")
    await browser.run("document.getElementById('main').focus()")
    for _ in range(20):
        await browser.press(TAB)
        if await browser.run("return document.activeElement.innerText") == "Pause":
            break
    assert await browser.run("return getComputedStyle(document.activeElement).outlineStyle") != "none"
    await browser.press(ENTER)
    await browser.until(SUBMITTED, "The server itself fires the schedules of this stream")
    await browser.run("document.querySelector('[name=author]').focus()")
    await browser.press(*"Ada", TAB, *"stocktaking", ENTER)
    await browser.until(SUBMITTED, "1 done, 0 refused")
    assert await accessibility_faults(browser, *ALL_RULES) == []
    assert b"X-Paused" in await desk.block("O.keys")
    await browser.run("location.reload()")
    await browser.until(SUBMITTED, "1 done, 0 refused")
    assert await browser.run("return location.pathname") == "/changed", "a reload sends nothing again"
    await browser.run("history.back()")
    await browser.until(SUBMITTED, "Pause?")
    assert await browser.run("return location.pathname") == "/change", "and neither does Back"
    assert await browser.console() == []


async def test_what_a_schedule_would_be_is_shown_while_one_types(desk: Desk) -> None:
    browser = desk.browser
    shown = "return document.querySelector('#preview').innerText.includes(given[0])"
    await desk.open("/add?stream=O")
    await fill(browser, subject="O.typed", target="O.out", pattern="0 0 8 * * *")
    await browser.until(shown, "every day at 08:00")
    assert await browser.run("return document.activeElement.name") == "pattern", "the focus stays"
    await browser.press(*"x")
    await browser.until(shown, "server code 10189")
    assert await desk.account.number_on("O", "O.typed") == 0, "nothing is stored"
    assert await browser.console() == []


async def test_it_works_without_scripts(desk: Desk) -> None:
    browser = desk.browser
    await desk.add("O.plain")
    await browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        await desk.open(address("/edit", stream="O", subject="O.plain"))
        await fill(browser, pattern="0 0 7 * * *")
        await browser.press(ENTER)  # the first button is that of the preview
        await browser.until(SUBMITTED, "every day at 07:00 in Berlin")
        await fill(browser, author="Ada", reason="earlier")
        await browser.run("document.querySelector('button[value=store]').focus()")
        await browser.press(ENTER)
        await browser.until(SUBMITTED, "1 done, 0 refused")
    finally:
        await browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
    assert b"Nats-Schedule: 0 0 7 * * *" in await desk.block("O.plain")


async def test_the_pages_are_accessible_also_in_the_dark(desk: Desk) -> None:
    browser = desk.browser
    await desk.add("O.look")
    one = {"stream": "O", "subject": "O.look"}
    for path in (
        *(address("/schedule", **one), "/schedules?stream=O", address("/edit", **one), "/add?stream=O"),
        *(address("/change", do="pause", **one), "/change?do=remove&stream=O", "/changes?stream=O"),
    ):
        await desk.open(path)
        assert await accessibility_faults(browser, *ALL_RULES) == [], path
        assert await browser.console() == [], path
        try:
            await browser.prefer(prefers_color_scheme="dark")
            assert await accessibility_faults(browser, "color-contrast") == [], path
            await browser.size(PHONE, 800, is_phone=True)
            await desk.open(path)
            assert await browser.run("return document.documentElement.scrollWidth") <= PHONE, path
        finally:
            await browser.prefer(prefers_color_scheme="light")
            await browser.size(1280, 900)
