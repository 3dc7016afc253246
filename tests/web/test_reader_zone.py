"""The time zone of a reader stands beside UTC, and the browser keeps it."""

import re

import pytest

from nats_scheduler.web.reader_zone import ZONE_COOKIE, zone_called
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.service.controlling import far
from tests.web.browsing import TOKEN, browsing
from tests.web.test_request_checks import NOWHERE

LOCAL = '<span class="local">'
WRONG = ["Europe/Atlantis", "../../etc/passwd", "Europe/Berlin\r\nSet-Cookie: a=b"]


async def test_it_stands_beside_the_times_in_utc(start_server: StartServer) -> None:
    server = await start_server()
    async with browsing(server.url) as page, account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("O")
        await running.ready("O")
        await account.publish("O.s", dict(far("O.out")))
        for path in ("/", "/schedules?stream=O", "/schedule?stream=O&subject=O.s"):
            assert LOCAL not in await page.shows(path, "O.s</bdi>" if path != "/schedule" else "O.s")
        chosen = await page.client.post("/zone", data={"zone": "Asia/Kathmandu", "next": "/schedules?stream=O"})
        assert (chosen.status_code, chosen.headers["location"]) == (303, "/schedules?stream=O")
        assert "HttpOnly; Max-Age=31536000; Path=/; SameSite=strict" in chosen.headers["set-cookie"]
        for path in ("/", "/schedules?stream=O", "/schedule?stream=O&subject=O.s"):
            for text in (await page.get(path), await page.get(path, X_Fragment="1")):
                assert re.search(rf"{LOCAL}[-0-9: ]+ \+05:45</span>", text), path
        assert 'value="Asia/Kathmandu"' in await page.get("/")
        forgotten = await page.client.post("/zone", data={"zone": "", "next": "//evil.example"})
        assert (forgotten.status_code, forgotten.headers["location"]) == (303, "/")
        assert LOCAL not in await page.get("/schedules?stream=O")


@pytest.mark.parametrize("name", WRONG)
async def test_a_name_that_is_none_is_refused_and_in_a_cookie_it_is_ignored(name: str) -> None:
    assert zone_called(name) is None
    async with browsing(NOWHERE) as page:
        refused = await page.client.post("/zone", data={"zone": name})
        assert refused.status_code == 422
        assert "expected a name such as Europe/Berlin" in refused.text
        assert "set-cookie" not in refused.headers
        sent = {b"Cookie": f"{ZONE_COOKIE}={name}".encode().replace(b"\r\n", b"%0D%0A")}
        shown = await page.client.get("/", headers=sent)
        assert (shown.status_code, LOCAL in shown.text) == (200, False)


async def test_only_a_form_of_the_page_sets_it() -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        assert (await page.client.post("/zone", data={"zone": "Asia/Tokyo"})).status_code == 401
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        for sent in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            headers = {**bearer, **sent}
            assert (await page.client.post("/zone", data={"zone": "Asia/Tokyo"}, headers=headers)).status_code == 403
        assert (await page.client.get("/zone", headers=bearer)).status_code == 405
