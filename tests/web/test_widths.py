"""No text makes a page wider than its screen, or leaves its card, whatever is in it: in a real Chromium."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.web.rendering import address
from tests.harness.account import Account, account_on
from tests.harness.browser import Browser, browser_in, browser_programs
from tests.harness.flagged import FLAGGED
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11, server_binary
from tests.service.controlling import request
from tests.web.test_request_checks import CONTROL_TOKEN

pytestmark = [pytest.mark.server, pytest.mark.deep, pytest.mark.asyncio(loop_scope="module")]

WIDTHS = (360, 1280, 1440)
UUID = "0123456789abcdef0123456789abcdef"
"""A token without a hyphen, at which a browser would break it."""

SUBJECTS = {
    "H": [f"H.{UUID}.{UUID}", f"H.{UUID}.{UUID}.{UUID}", f"H.{UUID * 2}"],
    "L" * 120: ["L." + "x" * 248, "L." + ".".join(["y" * 82] * 3)],
}
"""The subjects of schedules, by stream."""

TOO_WIDE = """
const found = [], screen = document.documentElement;
const name = (node) => `${node.nodeName}.${node.className} of ${node.closest("section")?.id || "no section"}`;
if (screen.scrollWidth > screen.clientWidth) found.push(`the page: ${screen.scrollWidth} > ${screen.clientWidth}`);
for (const node of document.querySelectorAll("main *, footer *, header *")) {
  const isHidden = node.closest("svg, .unseen, .skip, thead, details:not([open])") || !node.getClientRects().length;
  if (isHidden) continue;
  const style = getComputedStyle(node);
  if (style.display !== "inline" && style.overflowX === "visible" && node.scrollWidth > node.clientWidth + 1)
    found.push(`${name(node)}: ${node.scrollWidth} > ${node.clientWidth}`);
  const card = node.closest("section");
  if (card && card !== node && !node.closest("pre")) {
    const over = node.getBoundingClientRect().right - card.getBoundingClientRect().right;
    if (over > 1) found.push(`${name(node)}: ${Math.round(over)} px outside of its card`);
  }
}
return found.slice(0, 6);
"""


@dataclass
class Scene:
    """The page, its browser, and the paths of its pages."""

    url: str
    browser: Browser
    paths: list[str]


def paths_of(stream: str, subject: str) -> list[str]:
    """Return the pages about the messages on a subject and beside it."""
    one = {"stream": stream, "subject": subject}
    beside = [{**one, "subject": f"{subject}{end}"} for end in ("b", "m", "p")]
    return [
        address("/schedule", **one),
        *(address("/schedule", **other) for other in beside),
        address("/edit", **one),
        address("/change", do="pause", **one),
        address("/change", do="backfill", **one),
    ]


async def fill(account: Account, stream: str, subjects: list[str]) -> None:
    """Store schedules whose texts have no break, those that are paused, rejected and misnamed among them."""
    await account.create(stream, subjects=[f"{stream[0]}.>"], metadata=FLAGGED)
    for subject in subjects:
        target = f"{stream[0]}.t.{subject[2:]}"
        labels = {"Nats-Schedule-X-Owner": UUID * 4, "Nats-Schedule-X-Note": UUID * 5}
        await account.publish(subject, {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": target, **labels})
        zone = {"Nats-Schedule": "0 30 9 * * mon-fri", "Nats-Schedule-Time-Zone": "America/Argentina/ComodRivadavia"}
        await account.publish(f"{subject}z", {**zone, "Nats-Schedule-Target": target, "Nats-Schedule-Source": subject})
        await account.publish(f"{subject}p", {"Nats-Schedule-X-Paused": "@daily", "Nats-Schedule-Target": target})
        await account.publish(f"{subject}b", {"Nats-Schedule": UUID * 6, "Nats-Schedule-Target": target})
        await account.publish(f"{subject}m", {"Nats-Schedul": UUID * 6})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    browser_programs()
    folder = tmp_path_factory.mktemp("widths")
    server = EmbeddedServer(server_binary(V2_11), folder / "server")
    await server.start()
    try:
        async with account_on(server.url) as account, browser_in(folder) as browser:
            for stream, subjects in SUBJECTS.items():
                await fill(account, stream, subjects)
            run = sidecar("run", "--server", server.url, "--allow-control", folder=folder, name="run")
            given = ("--server", server.url, "--web-port", "0", "--web-control-token-file", str(written(folder)))
            web = sidecar("web", *given, folder=folder, name="web")
            with run, web:
                url = (await web.wait_for_line("web_served")).rpartition("url=")[2].strip()
                await run.wait_for_line("stream_ready", count=len(SUBJECTS))
                yield await opened(url, browser, account)
    finally:
        await server.stop()


def written(folder: Path) -> Path:
    """Write the token for changes, and return its file."""
    file = folder / "token"
    file.write_text(CONTROL_TOKEN, "utf-8")
    return file


async def opened(url: str, browser: Browser, account: Account) -> Scene:
    """Sign in, choose a time zone, and change what leaves long texts in the record of changes."""
    paths = ["/", "/streams", "/fires", "/failures", "/changes", "/instances", "/findings", "/calendars"]
    paths.append("/add?stream=H")
    for stream, subjects in SUBJECTS.items():
        paths += [address("/schedules", stream=stream), address("/schedules", stream=stream, order="target")]
        paths += [address("/rejected", stream=stream), address("/change", do="fire", stream=stream)]
        paths.append(address("/schedules", stream=stream, filter=UUID * 4, target=UUID * 4, owner=UUID * 4))
        for subject in subjects:
            paths += paths_of(stream, subject)
            asked: dict[str, Any] = {"stream": stream, "subject": f"{subject}z", "author": UUID * 4}
            changed = await request(account.connection, "pause", {**asked, "reason": UUID * 6})
            assert isinstance(changed, dict), changed
    await browser.open(f"{url}/login")
    await browser.run("document.querySelector('#token').value = given[0]", CONTROL_TOKEN)
    await browser.run("document.querySelector('form').submit()")
    await browser.until("return document.querySelector('.zone [name=zone]') !== null")
    await browser.run("document.querySelector('.zone [name=zone]').value = 'America/Argentina/ComodRivadavia'")
    await browser.run("document.querySelector('.zone').submit()")
    await browser.until("return document.querySelector('.local') !== null")
    return Scene(url, browser, paths)


@pytest.mark.parametrize("width", WIDTHS)
async def test_nothing_is_wider_than_its_place(scene: Scene, width: int) -> None:
    await scene.browser.size(width, 900, is_phone=width < 500)
    wrong = {}
    for path in scene.paths:
        await scene.browser.open(f"{scene.url}{path}")
        await scene.browser.until("return !document.body.innerText.includes('The answer takes a moment')")
        if found := await scene.browser.run(TOO_WIDE):
            wrong[path[:60]] = found
    assert not wrong, "\n".join(f"{path}: {found}" for path, found in wrong.items())
