"""The pages that change native schedules in a real Chromium: keys, typing, no scripts, a phone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from nats_scheduler.observe.address import bound, url_of
from nats_scheduler.observe.listener import serve
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.web.rendering import address
from tests.harness.account import Account, account_on
from tests.harness.browser import ENTER, SPACE, TAB, Browser, browser_in, browser_programs
from tests.harness.processes import sidecar
from tests.harness.servers import V2_15, server_binary
from tests.harness.waiting import eventually
from tests.web.browsing import browsing
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
    assert await accessibility_faults_on(browser) == []
    assert b"X-Paused" in await desk.block("O.keys")
    await browser.run("location.reload()")
    await browser.until(SUBMITTED, "1 done, 0 refused")
    assert await browser.run("return location.pathname") == "/changed", "a reload sends nothing again"
    await browser.run("history.back()")
    await browser.until(SUBMITTED, "Pause?")
    assert await browser.run("return location.pathname") == "/change", "and neither does Back"
    assert await browser.console() == []


async def test_what_is_selected_stays_so_while_the_list_updates_itself(desk: Desk) -> None:
    browser = desk.browser
    for name in ("a", "b", "d"):
        await desk.add(f"O.chosen.{name}")
    boxes = "document.querySelectorAll('#live [name=one]')"
    await desk.open("/schedules?stream=O&filter=chosen&order=subject")
    await browser.until(f"return {boxes}.length === 3")
    for place in (0, 2):
        await browser.run(f"{boxes}[given[0]].focus()", place)
        await browser.press(SPACE)
    await desk.account.publish("O.chosen.c", {**MORNING, "Nats-Schedule-Target": "O.out"})
    await browser.until(f"return {boxes}.length === 4", describe="the list has the new one")
    assert await browser.run(f"return [...{boxes}].map((one) => one.checked)") == [True, False, False, True]
    assert await accessibility_faults_on(browser) == []
    await browser.run("document.querySelector('#live [form=chosen][value=pause]').focus()")
    await browser.press(ENTER)
    await browser.until(SUBMITTED, "Pause?")
    shown = await browser.run("return [...document.querySelectorAll('main a.subject')].map((one) => one.innerText)")
    assert shown == ["O.chosen.a", "O.chosen.d"]
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
        await desk.open(address("/edit", stream="O", subject="O.plain"))
        await browser.run("document.querySelector('#builder summary').focus()")
        await browser.press(ENTER)
        await fill(browser, build_time="06:15", build_zone="Asia/Tokyo")
        await browser.run("document.body.dataset.before = 'yes'")
        await browser.press(ENTER)  # the first button is that of the preview, also here
        await browser.until("return !document.body.dataset.before && document.readyState === 'complete'")
        assert await browser.run("return document.querySelector('#builder').open"), "what is not written is shown"
        assert await browser.run("return document.querySelector('[name=build_time]').value") == "06:15"
        await browser.run("document.querySelector('button[value=pattern]').focus()")
        await browser.press(ENTER)
        await browser.until(SUBMITTED, "every day at 06:15 in Tokyo. Nothing is stored yet.")
        filled = "return ['pattern', 'time_zone'].map((name) => document.querySelector(`[name=${name}]`).value)"
        assert await browser.run(filled) == ["0 15 6 * * *", "Asia/Tokyo"]
    finally:
        await browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
    assert b"Nats-Schedule: 0 0 7 * * *" in await desk.block("O.plain")


async def test_the_pages_are_accessible_also_in_the_dark(desk: Desk) -> None:
    browser = desk.browser
    await desk.add("O.look")
    one = {"stream": "O", "subject": "O.look"}
    for path in (
        *(address("/schedule", **one), "/schedules?stream=O", address("/edit", **one), "/add?stream=O"),
        *(address("/change", do=do, **one) for do in ("pause", "resume", "fire", "edit", "remove")),
        *("/change?do=resume&stream=O", "/change?do=remove&stream=O&filter=O.none", "/changes?stream=O"),
        address("/content", **one),
    ):
        await desk.open(path)
        assert await accessibility_faults_on(browser) == [], path
        assert await browser.console() == [], path
        try:
            await browser.prefer(prefers_color_scheme="dark")
            assert await accessibility_faults_on(browser, "color-contrast") == [], path
            await browser.size(PHONE, 800, is_phone=True)
            await desk.open(path)
            assert await browser.run("return document.documentElement.scrollWidth") <= PHONE, path
        finally:
            await browser.prefer(prefers_color_scheme="light")
            await browser.size(1280, 900)


async def test_a_form_is_sent_once_however_often_it_is_clicked(desk: Desk) -> None:
    browser = desk.browser
    await desk.open("/add?stream=O")
    counting = """
        window.sent = []; window.asked = 0; window.most = 0; window.ended = 0;
        addEventListener("submit", (event) => { sent.push(!event.defaultPrevented); event.preventDefault(); });
        const real = window.fetch;
        window.fetch = async (...given) => {
            most = Math.max(most, ++asked);
            try { return await real(...given); } finally { asked--; ended++; }
        };
        const input = document.querySelector("[name=ttl]");
        const type = () => input.dispatchEvent(new Event("input", { bubbles: true }));
        window.setTimeout = ((later) => (call, wait) => later(call, wait === 400 ? 0 : wait))(window.setTimeout);
        for (let number = 0; number < 8; number++) { type(); await new Promise((go) => setTimeout(go, 0)); }
    """
    await browser.run(counting)
    await browser.until("return ended >= 2 && asked === 0", describe="the first is asked for, and what was typed last")
    assert await browser.run("return most") == 1
    await browser.run(
        "const go = document.querySelector('main .go'); go.formNoValidate = true; go.click(); go.click();"
    )
    assert await browser.run("return sent") == [True, False]


async def accessibility_faults_on(browser: Browser, *rules: str) -> list[object]:
    """Return what axe finds wrong with the page that is open, by all rules unless some are given."""
    return [*await accessibility_faults(browser, *(rules or ALL_RULES))]


async def test_a_browser_says_where_a_form_comes_from(tmp_path: Path) -> None:
    """A browser has no TLS here: what is seen is the `Origin` from which the page knows of it."""
    browser_programs()
    origins: list[str | None] = []
    async with browsing("nats://127.0.0.1:1", token=CONTROL_TOKEN) as page, browser_in(tmp_path) as browser:

        async def seen(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["method"] == "POST":
                origins.append(Headers(scope=scope).get("origin"))
            await page.app(scope, receive, send)

        stop = asyncio.Event()
        with bound("127.0.0.1", 0, "web") as listening:
            serving = asyncio.create_task(serve(seen, listening, stop))
            await sign_in(browser, url_of(listening))
            assert origins == [url_of(listening)]
            stop.set()
            await serving
