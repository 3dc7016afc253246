"""Make the picture of the page that controls: `python -m tests.web.pictures` writes docs/operating/images/control.png.

The rule: what it shows is a real edit in a real Chromium, beside a real server and sidecar.
"""

import asyncio
import tempfile
from pathlib import Path

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.web.rendering import address
from tests.harness.account import account_on
from tests.harness.browser import Browser, browser_in
from tests.harness.processes import sidecar
from tests.harness.servers import V2_15, server_binary
from tests.web.test_control_browser import MORNING, fill, sign_in
from tests.web.test_request_checks import CONTROL_TOKEN

IMAGES = Path(__file__).parents[2] / "docs" / "operating" / "images"
WIDTH = 1180
SUBJECT = "orders.schedules.morning"
SHOWN = "return document.querySelector('#preview').innerText.includes(given[0])"


async def picture(folder: Path) -> bytes:
    """Return a picture (PNG) of an edit that is being typed."""
    server = EmbeddedServer(server_binary(V2_15), folder / "server")
    await server.start()
    try:
        async with account_on(server.url) as account, browser_in(folder) as browser:
            await account.create("ORDERS", subjects=["orders.>"])
            await account.publish(SUBJECT, {**MORNING, "Nats-Schedule-Target": "orders.due"})
            run = sidecar("run", "--server", server.url, "--allow-control", folder=folder, name="run")
            flags = ("--server", server.url, "--web-port", "0", "--web-control-token", CONTROL_TOKEN)
            with run, sidecar("web", *flags, folder=folder, name="web") as web:
                url = (await web.wait_for_line("web_served")).rpartition("url=")[2].strip()
                return await _edit(browser, url)
    finally:
        await server.stop()


async def _edit(browser: Browser, url: str) -> bytes:
    await browser.size(WIDTH, 900)
    await sign_in(browser, url)
    await browser.until("return (await (await fetch('/streams')).text()).includes('>ORDERS<')")
    await browser.until("return (await (await fetch('/')).text()).includes('<title>All is well')")
    await browser.open(f"{url}{address('/edit', stream='ORDERS', subject=SUBJECT)}")
    await fill(browser, author="Ada", reason="the shop opens earlier", pattern="0 15 8 * * mon-sat")
    await browser.until(SHOWN, "08:15")
    height = await browser.run("scrollTo(0, 0); return document.querySelector('main').getBoundingClientRect().bottom")
    return await browser.picture(WIDTH, int(height))


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        (IMAGES / "control.png").write_bytes(asyncio.run(picture(Path(folder))))


if __name__ == "__main__":
    main()
