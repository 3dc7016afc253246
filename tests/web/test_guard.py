"""The checks before every page: host names, methods, sizes, the token, and the headers of every answer."""

import pytest

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.web.guard import SESSION_SECONDS, Sessions
from tests.web.browsing import TOKEN, browsing

NOWHERE = "nats://127.0.0.1:1"
HTML = {"Accept": "text/html"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8225", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:8225", 200),
        ("[::1]:8225", 200),
        ("10.1.2.3", 200),
        ("status.example.com", 200),
        ("evil.example:8225", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
async def test_only_known_names_are_answered(host: str, status: int) -> None:
    async with browsing(NOWHERE, hosts=("status.example.com",)) as page:
        answer = await page.client.get("/healthz", headers={"Host": host})
        assert answer.status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/", "/login", "/nowhere"])
async def test_pages_are_only_read(method: str, path: str) -> None:
    async with browsing(NOWHERE) as page:
        answer = await page.client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/nowhere", "/static/live.js", "/static/none", "/healthz"])
async def test_every_answer_has_the_headers_that_protect_it(path: str) -> None:
    async with browsing(NOWHERE) as page:
        headers = (await page.client.get(path)).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


async def test_a_head_request_has_no_body() -> None:
    async with browsing(NOWHERE) as page:
        answer = await page.client.head("/healthz")
        assert (answer.status_code, answer.content) == (200, b"")


async def test_an_address_that_is_too_long_is_refused() -> None:
    async with browsing(NOWHERE) as page:
        assert (await page.client.get("/?cursor=" + "x" * 40_000)).status_code == 414


async def test_without_the_token_nothing_is_shown() -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        answer = await page.client.get("/schedules?stream=a%26b", headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fschedules%3Fstream%3Da%2526b")
        for headers in ({}, {"X-Fragment": "1", **HTML}, {"Authorization": "Bearer wrong"}):
            assert (await page.client.get("/", headers=headers)).status_code == 401
        assert (await page.client.get("/static/live.js")).status_code == 401
        assert (await page.client.get("/healthz")).status_code == 200


async def test_a_program_sends_the_token_in_a_header() -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        assert (await page.client.get("/", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200


async def test_the_login_leads_to_the_page_that_was_asked_for() -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        form = await page.client.get("/login?next=%2Fschedules%3Fstream%3Da", headers=HTML)
        assert 'value="/schedules?stream=a"' in form.text
        entered = await page.client.post("/login", data={"token": TOKEN, "next": "/schedules?stream=a"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/schedules?stream=a")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert TOKEN not in cookie
        assert (await page.client.get("/", headers=HTML)).status_code == 200
        left = await page.client.post("/login", data={"leave": "1"})
        assert (left.status_code, left.headers["location"]) == (303, "/login")
        page.client.cookies.clear()
        assert (await page.client.get("/", headers=HTML)).status_code == 303


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "\u202e", "x" * 5000])
async def test_a_wrong_token_opens_nothing(token: str) -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        refused = await page.client.post("/login", data={"token": token})
        assert refused.status_code == 403
        assert "This is not the token." in refused.text
        assert "set-cookie" not in refused.headers


@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:x", "/a\nb", "/ü"]
)
async def test_a_login_leads_to_no_other_site(target: str) -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        entered = await page.client.post("/login", data={"token": TOKEN, "next": target})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"Origin": "http://localhost:8225"}, 303),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:9999"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
async def test_the_form_of_another_site_is_refused(headers: dict[str, str], status: int) -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        assert (await page.client.post("/login", data={"token": TOKEN}, headers=headers)).status_code == status


def test_a_session_ends_and_cannot_be_forged() -> None:
    now = 1_800_000_000 * SECOND
    cookie = Sessions(TOKEN, lambda: now).cookie()
    ends, _, proof = cookie.partition(".")
    assert Sessions(TOKEN, lambda: now + (SESSION_SECONDS - 1) * SECOND).is_cookie(cookie)
    assert not Sessions(TOKEN, lambda: now + SESSION_SECONDS * SECOND).is_cookie(cookie)
    assert not Sessions(TOKEN + "x", lambda: now).is_cookie(cookie), "another token ends all sessions"
    for forged in ("", ".", ends, f"{int(ends) + 1}.{proof}", f"{ends}.{proof[:-1]}", f"{ends}.\u00e9", f"x.{proof}"):
        assert not Sessions(TOKEN, lambda: now).is_cookie(forged)


@pytest.mark.parametrize(
    "cookie", ["", ";;;", "nats_scheduler_session", "nats_scheduler_session=\xff", "a=" + "b" * 9000]
)
async def test_a_cookie_that_is_none_opens_nothing(cookie: str) -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        answer = await page.client.get("/", headers={b"Cookie": cookie.encode("latin-1"), b"Accept": b"text/html"})
        assert answer.status_code == 303


@pytest.mark.parametrize(("origin", "is_secure"), [("https://localhost:8225", True), ("http://localhost:8225", False)])
async def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_only(origin: str, is_secure: bool) -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        entered = await page.client.post("/login", data={"token": TOKEN}, headers={"Origin": origin})
        assert ("Secure" in entered.headers["set-cookie"]) == is_secure


async def test_without_a_token_there_is_no_login() -> None:
    async with browsing(NOWHERE) as page:
        assert (await page.client.get("/login")).status_code == 303
        assert "Sign out" not in await page.get("/")
