"""The site is built without a warning, loads nothing from elsewhere, and can be read from a folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.browser import browser_in
from tests.house.sources import ROOT

pytestmark = pytest.mark.server
pytest.importorskip("mkdocs", reason="no mkdocs: CONTRIBUTING.md says how to install it")
BUILD_SECONDS = 240.0
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\" >]+)"
    r"|<link\b(?=[^>]*\brel=\"?(?:stylesheet|preconnect|icon|preload))[^>]*\bhref=\"?([^\" >]+)"
    r"|@import\s+[\"']?([^\"';]+)|url\([\"']?([^\"')]+)"
)
"""The addresses that a page or a style sheet makes a browser load."""
PAGES = ("index.html", "comparison.html", "tutorials/reminder.html", "reference/commands.html")
PHONE = (390, 844)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the site, built once, without a warning."""
    target = tmp_path_factory.mktemp("site") / "built"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    answer = subprocess.run(
        [*command, "--site-dir", str(target)],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    said = answer.stdout + answer.stderr
    assert (answer.returncode, re.findall(r"^(?:WARNING|ERROR).*", said, re.M)) == (0, []), said
    return target


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    files = [path for kind in ("html", "css") for path in site.rglob(f"*.{kind}")]
    loaded = {next(filter(None, found)) for path in files for found in LOADED.findall(path.read_text("utf-8"))}
    assert len(files) > 50
    assert len(loaded) > 10
    assert {one for one in loaded if re.match(r"(?:https?:)?//", one)} == set()


async def test_a_browser_shows_it_on_a_phone_without_a_network(site: Path, tmp_path: Path) -> None:
    async with browser_in(tmp_path) as browser:
        await browser.size(*PHONE, is_phone=True)
        for page in PAGES:
            await browser.open((site / page).as_uri())
            await browser.until("return document.body.getAttribute('data-md-color-scheme')")
            wide = await browser.run("return document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"{page} is {wide} pixels wider than {PHONE[0]}"
            addresses = await browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
            assert [one for one in addresses if not one.startswith("file:")] == []
            broken = "return [...document.images].filter((one) => one.complete && !one.naturalWidth).length"
            assert await browser.run(broken) == 0
        assert [line for line in await browser.console() if line.startswith("SEVERE")] == []
