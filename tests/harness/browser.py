"""A real Chromium, driven over the WebDriver protocol: pages, keys, what its console says, and pictures.

The rules: a browser that a test started is gone when its block ends, with its profile. Nothing but the page under test
is requested from the network. Where Chromium or its driver is missing, `browser_programs` skips the test and says so.
Why no library: the protocol is JSON over HTTP, a test needs ten of its commands, and the libraries for it bring plugins
into the tests.
"""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import gettempdir
from typing import Any

import httpx
import pytest

from tests.harness.processes import ChildProcess, clean_environment
from tests.harness.waiting import eventually

COMMAND_SECONDS = 120.0
"""Longest wait for one command, on a busy machine."""

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
)
TAB, ENTER = "\ue004", "\ue007"
"""Keys, as WebDriver names them."""


def browser_programs() -> tuple[str, str]:
    """Return the paths of Chromium and of its driver; skip the test where there is none."""
    browser, driver = which("chromium") or which("chromium-browser") or which("google-chrome"), which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no chromium with chromedriver: apt-get install chromium chromium-driver")
    return browser, driver


@dataclass
class Browser:
    """One window."""

    client: httpx.AsyncClient
    session: str

    async def command(self, name: str, **values: Any) -> Any:
        """Send a command of the session and return its value."""
        answer = await self.client.post(f"/session/{self.session}/{name}", json=values)
        value = answer.json()["value"]
        assert answer.status_code == 200, f"{name} {values}: {value}"
        return value

    async def open(self, url: str) -> None:
        """Load a page."""
        await self.command("url", url=url)

    async def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function in the page and return its result; a promise is awaited."""
        body = "const done = arguments[arguments.length - 1]; (async (...given) => {" + script + "})"
        body += "(...[...arguments].slice(0, -1)).then(done, (error) => done({ failed: String(error) }));"
        value = await self.command("execute/async", script=body, args=list(arguments))
        assert not (isinstance(value, dict) and "failed" in value), value
        return value

    async def until(self, script: str, *arguments: Any, describe: str = "") -> Any:
        """Wait until a script returns something true, and return it."""

        async def seen() -> Any:
            return await self.run(script, *arguments)

        return await eventually(seen, within_seconds=COMMAND_SECONDS, describe=describe or script)

    async def press(self, *keys: str) -> None:
        """Press and release keys, one after the other, in what has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        await self.command("actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    async def devtools(self, method: str, **values: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return await self.command("goog/cdp/execute", cmd=method, params=values)

    async def size(self, width: int, height: int, *, is_phone: bool = False) -> None:
        """Set the size of the page."""
        await self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )

    async def prefer(self, **features: str) -> None:
        """Set media features, such as `prefers_color_scheme="dark"`."""
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        await self.devtools("Emulation.setEmulatedMedia", features=listed)
        await self.until("return !document.getAnimations().length", describe="the colours have changed")

    async def console(self) -> list[str]:
        """Return what the console has said since the last call: errors, warnings, refusals of the policy."""
        return [f"{line['level']}: {line['message']}" for line in await self.command("se/log", type="browser")]

    async def picture(self, width: int, height: int) -> bytes:
        """Return a picture of the page's upper part (PNG)."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = await self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def browser_in(folder: Path) -> AsyncIterator[Browser]:
    """Start a browser with a profile of its own."""
    program, driver = browser_programs()
    # The paths of the browser's sockets would be too long in the temporary folder of a test.
    env = {**clean_environment(folder), "TMPDIR": gettempdir()}
    with ChildProcess([driver, "--port=0", "--log-level=SEVERE"], folder, name="chromedriver", env=env) as process:
        line = await process.wait_for_line(r"successfully on port \d+")
        url = f"http://127.0.0.1:{line.rstrip('.').rpartition(' ')[2]}"
        async with httpx.AsyncClient(base_url=url, timeout=COMMAND_SECONDS, trust_env=False) as client:
            options = {"binary": program, "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            timeouts = {"script": int(COMMAND_SECONDS * 1000), "pageLoad": int(COMMAND_SECONDS * 1000)}
            always = {"browserName": "chrome", "timeouts": timeouts, **wanted}
            answer = (await client.post("/session", json={"capabilities": {"alwaysMatch": always}})).json()["value"]
            assert "sessionId" in answer, answer
            try:
                yield Browser(client, answer["sessionId"])
            finally:
                await client.delete(f"/session/{answer['sessionId']}")
