"""The checks before every page: host names, methods, sizes, the token, and the headers of every answer."""

from typing import Any

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.web.guard import SESSION_SECONDS, Sessions
from tests.web.browsing import TOKEN, Browsing, browsing

NOWHERE = "nats://127.0.0.1:1"
HTML = {"Accept": "text/html"}


async def test_only_known_names_are_answered() -> None:
    known = ("localhost:8225", "LOCALHOST", "127.0.0.1:8225", "[::1]:8225", "10.1.2.3", "status.example.com")
    unknown = ("evil.example:8225", "localhost.evil.example", "127.0.0.1.evil.example", "")
    async with browsing(NOWHERE, hosts=("status.example.com",)) as page:
        answers = {
            host: (await page.client.get("/healthz", headers={"Host": host})).status_code for host in known + unknown
        }
    assert answers == dict.fromkeys(known, 200) | dict.fromkeys(unknown, 421)


async def test_pages_are_only_read() -> None:
    async with browsing(NOWHERE) as page:
        for path in ("/", "/login", "/nowhere"):
            for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
                answer = await page.client.request(method, path)
                assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), (method, path)
        head = await page.client.head("/healthz")
        assert (head.status_code, head.content) == (200, b"")
        assert (await page.client.get("/?cursor=" + "x" * 40_000)).status_code == 414


async def test_every_answer_has_the_headers_that_protect_it() -> None:
    async with browsing(NOWHERE) as page:
        for path in ("/", "/nowhere", "/static/live.js", "/static/none", "/healthz"):
            headers = (await page.client.get(path)).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; "), path
            assert "unsafe" not in policy, path
            assert "frame-ancestors 'none'" in policy, path
            assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer"), path


async def test_without_the_token_nothing_is_shown() -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        answer = await page.client.get("/schedules?stream=a%26b", headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fschedules%3Fstream%3Da%2526b")
        for headers in ({}, {"X-Fragment": "1", **HTML}, {"Authorization": "Bearer wrong"}):
            assert (await page.client.get("/", headers=headers)).status_code == 401
        assert (await page.client.get("/static/live.js")).status_code == 401
        assert (await page.client.get("/healthz")).status_code == 200
        for cookie in ("", ";;;", "nats_scheduler_session", "nats_scheduler_session=\xff", "a=" + "b" * 9000):
            sent = {b"Cookie": cookie.encode("latin-1"), b"Accept": b"text/html"}
            assert (await page.client.get("/", headers=sent)).status_code == 303, cookie
        program = await page.client.get("/", headers={"Authorization": f"Bearer {TOKEN}"})
        assert program.status_code == 200, "a program sends the token in a header"


async def log_in(page: Browsing, token: str = TOKEN, headers: dict[str, str] | None = None, **form: str) -> Any:
    """Send the form of the login as one who has no session yet."""
    page.client.cookies.clear()
    return await page.client.post("/login", data={"token": token, **form}, headers=headers)


async def test_the_login_leads_to_the_page_that_was_asked_for() -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        form = await page.client.get("/login?next=%2Fschedules%3Fstream%3Da", headers=HTML)
        assert 'value="/schedules?stream=a"' in form.text
        entered = await log_in(page, next="/schedules?stream=a")
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


async def test_a_login_leads_to_no_other_site_and_comes_from_none() -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        for elsewhere in ("//evil.example", "/\\evil.example", "https://evil.example", "javascript:x", "/a\nb", "/ü"):
            entered = await log_in(page, next=elsewhere)
            assert (entered.status_code, entered.headers["location"]) == (303, "/"), elsewhere
        for headers, status, is_secure in (
            ({}, 303, False),
            ({"Origin": "http://localhost:8225"}, 303, False),
            ({"Origin": "https://localhost:8225"}, 303, True),  # a proxy with TLS: so the cookie is for TLS only
            ({"Origin": "http://evil.example"}, 403, False),
            ({"Origin": "http://localhost:9999"}, 403, False),
            ({"Sec-Fetch-Site": "cross-site"}, 403, False),
            ({"Sec-Fetch-Site": "same-site"}, 403, False),
        ):
            entered = await log_in(page, headers=headers)
            found = entered.status_code, "Secure" in entered.headers.get("set-cookie", "")
            assert found == (status, is_secure), headers


async def test_a_wrong_token_opens_nothing() -> None:
    async with browsing(NOWHERE, token=TOKEN) as page:
        for token in ("", "wrong", TOKEN[:-1], TOKEN + "x", "\u202e", "x" * 5000):
            refused = await log_in(page, token)
            assert (refused.status_code, "set-cookie" in refused.headers) == (403, False), token
            assert "This is not the token." in refused.text


def test_a_session_ends_and_cannot_be_forged() -> None:
    now = 1_800_000_000 * SECOND
    cookie = Sessions(TOKEN, lambda: now).cookie()
    ends, _, proof = cookie.partition(".")
    assert Sessions(TOKEN, lambda: now + (SESSION_SECONDS - 1) * SECOND).is_cookie(cookie)
    assert not Sessions(TOKEN, lambda: now + SESSION_SECONDS * SECOND).is_cookie(cookie)
    assert not Sessions(TOKEN + "x", lambda: now).is_cookie(cookie), "another token ends all sessions"
    for forged in ("", ".", ends, f"{int(ends) + 1}.{proof}", f"{ends}.{proof[:-1]}", f"{ends}.\u00e9", f"x.{proof}"):
        assert not Sessions(TOKEN, lambda: now).is_cookie(forged)


async def test_the_page_comes_without_any_server_and_without_a_token_there_is_no_login() -> None:
    async with browsing(NOWHERE) as page:
        assert (await page.client.get("/login")).status_code == 303
        for path in ("/", "/?cursor=%00%ff", "/?cursor=..%2f"):
            text = await page.get(path)
            assert ("Not working" in text, "Sign out" in text) == (True, False), "it comes without any server"
