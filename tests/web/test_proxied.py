"""The page behind a proxy: below a path, and with what only a trusted proxy may say."""

import re
from html import unescape
from ipaddress import ip_network
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from pydantic import ValidationError

from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.service.controlling import far
from tests.web.browsing import TOKEN, browsing, fields_of
from tests.web.test_request_checks import CONTROL_TOKEN, NOWHERE, controllers

PREFIX = "/status/scheduler"
HOST = "status.example.com"
PROXY = [ip_network("127.0.0.1/32")]
LINKS = re.compile(r'(?:href|src|action)="([^"]*)"')
MAX_PAGES = 25
"""Pages that are followed: each of the kinds has some."""


async def followed(client: httpx.AsyncClient) -> set[str]:
    """Open the overview and what its links lead to, and theirs; return the paths, which all are below the prefix."""
    waiting, opened = [f"{PREFIX}/"], dict[str, None]()
    while waiting and len(opened) < MAX_PAGES:
        path = waiting.pop(0)
        if path in opened:
            continue
        opened[path] = None
        answer = await client.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 200, (path, answer.status_code)
        for link in map(unescape, LINKS.findall(answer.text)):
            if link.startswith("#"):
                continue
            assert link.startswith(f"{PREFIX}/"), (path, link)
            if not urlsplit(link).path.endswith(("/login", "/zone", "/change", "/edit", "/add")):
                waiting.append(urljoin(path, link))
    return {urlsplit(path).path.removeprefix(PREFIX) for path in opened}


async def test_all_of_the_page_is_below_its_prefix(start_server: StartServer) -> None:
    server = await start_server()
    async with (
        sidecar_on(server.url, allow_control=True) as running,
        account_on(server.url) as account,
        browsing(
            server.url, token=TOKEN, controllers=controllers(), hosts=(HOST,), proxies=PROXY, prefix=PREFIX
        ) as page,
    ):
        await account.create("O")
        await running.ready("O")
        await account.publish("O.s", dict(far("O.out")))
        await page.connected()
        client = page.client
        client.headers.update({"X-Forwarded-Host": HOST, "X-Forwarded-Proto": "https"})
        refused = await client.get(f"{PREFIX}/schedules?stream=O", headers={"Accept": "text/html"})
        asked = f"{PREFIX}/login?next=%2Fschedules%3Fstream%3DO"
        assert (refused.status_code, refused.headers["location"]) == (303, asked)
        form = {"token": CONTROL_TOKEN, "next": "/schedules?stream=O"}
        entered = await client.post(f"{PREFIX}/login", data=form, headers={"Origin": f"https://{HOST}"})
        assert (entered.status_code, entered.headers["location"]) == (303, f"{PREFIX}/schedules?stream=O")
        cookie = entered.headers["set-cookie"]
        assert f"; Path={PREFIX};" in cookie
        assert "; Secure" in cookie
        client.cookies.clear()
        client.headers["Cookie"] = cookie.partition(";")[0]
        opened = await followed(client)
        assert {"/", "/schedules", "/schedule", "/fires", "/instances", "/static/style.css"} <= opened
        change = await client.get(f"{PREFIX}/change?do=pause&stream=O&subject=O.s")
        sent = {**dict(fields_of(change.text)), "author": "Ada", "reason": "stocktaking", "step": "do"}
        done = await client.post(f"{PREFIX}/change", data=sent, headers={"Origin": f"https://{HOST}"})
        assert done.status_code == 303, done.text
        assert "Pause: 1 done, 0 refused" in (await client.get(done.headers["location"])).text


async def test_a_path_that_only_begins_like_the_prefix_is_another_one() -> None:
    async with browsing(NOWHERE, prefix=PREFIX) as page:
        for path, status in ((f"{PREFIX}/fires", 200), (PREFIX, 200), ("/fires", 200), (f"{PREFIX}s/fires", 404)):
            assert (await page.client.get(path)).status_code == status, path
        assert (await page.client.get(f"{PREFIX}{PREFIX}/fires")).status_code == 404


async def posted(proxies: Any, **headers: str) -> int:
    """Return the status of a login whose form comes with these headers."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with browsing(NOWHERE, token=TOKEN, hosts=(HOST,), proxies=proxies) as page:
        return (await page.client.post("/login", data={"token": TOKEN}, headers=sent)).status_code


async def test_a_forwarded_host_counts_from_a_trusted_proxy_alone() -> None:
    forwarded = {"X_Forwarded_Host": HOST, "Origin": f"https://{HOST}"}
    assert await posted(PROXY, **forwarded) == 303
    assert await posted([ip_network("10.0.0.0/8")], **forwarded) == 403, "it is another host than that of the request"
    assert await posted((), **forwarded) == 403


async def test_a_forwarded_host_opens_no_name_that_is_not_configured() -> None:
    """A proxy may pass on what a page of another site has written there."""
    assert await posted(PROXY, X_Forwarded_Host="evil.example") == 421
    assert await posted(PROXY, Host="evil.example", X_Forwarded_Host=HOST) == 421
    assert await posted(PROXY, X_Forwarded_Host=f"{HOST}, evil.example") == 421, "the last one is of the proxy"
    assert await posted(PROXY, X_Forwarded_Host=f"evil.example, {HOST}") == 303
    assert await posted((), X_Forwarded_Host="evil.example") == 303, "from anybody else it is ignored"


async def test_a_forwarded_scheme_counts_from_a_trusted_proxy_alone() -> None:
    for proxies, scheme, is_secure in ((PROXY, "https", True), ((), "https", False), (PROXY, "gopher", False)):
        async with browsing(NOWHERE, token=TOKEN, proxies=proxies) as page:
            sent = {"X-Forwarded-Proto": scheme}
            entered = await page.client.post("/login", data={"token": TOKEN}, headers=sent)
            assert ("; Secure" in entered.headers["set-cookie"]) is is_secure, (proxies, scheme)


def test_a_prefix_is_a_path_without_a_slash_at_its_end() -> None:
    assert SidecarSettings(web_path_prefix=PREFIX).web_path_prefix == PREFIX
    for wrong in ("scheduler", "/scheduler/", "//evil.example", "/a/../b", "/a?b", "/a b", "/"):
        with pytest.raises(ValidationError):
            SidecarSettings(web_path_prefix=wrong)
