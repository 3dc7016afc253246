"""The checks before every page: host names, methods, sizes, the token, and the headers of every answer."""

import re
from ipaddress import ip_network
from typing import Any

import pytest
from pydantic import ValidationError

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.problems import SettingsError
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from nats_scheduler.web.app import controllers_of
from nats_scheduler.web.request_checks import CONTROL_COOKIE, COOKIE, SESSION_SECONDS, Controller, Controllers, Sessions
from tests.harness.account import CLOCK
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
            assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin"), path


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
            ({"Origin": "https://localhost:8225", "Host": "10.1.0.7", "Sec-Fetch-Site": "same-origin"}, 303, True),
            ({"Origin": "http://evil.example"}, 403, False),
            ({"Origin": "http://localhost:9999"}, 403, False),
            ({"Origin": "null"}, 403, False),  # a frame in a sandbox, of a browser without Sec-Fetch-Site
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


CONTROL_TOKEN = "-".join(["only", "operators", "know", "it"])
CHANGE_PATH = "/change?do=pause&stream=O&subject=O.s"
PROXY = ip_network("10.1.0.0/16")


def controllers(**more: Any) -> Controllers:
    """Return those who may change schedules: with `CONTROL_TOKEN`, unless more is given."""
    given = {"sessions": Sessions(CONTROL_TOKEN, CLOCK.now, CONTROL_COOKIE), **more}
    return Controllers(CONTROL_TOKEN.encode(), **given)


async def test_a_reader_changes_nothing() -> None:
    """Neither with the token of readers, nor with a cookie or a form of somebody else; what is off is not there."""
    allowed = controllers()
    form = {"do": "pause", "stream": "O", "one": "1 O.s", "author": "Eve", "reason": "why not"}
    async with browsing(NOWHERE, token=TOKEN) as page:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert (await page.client.get(CHANGE_PATH, headers=bearer)).status_code == 404
        assert (await page.client.post("/change", headers=bearer, data=form)).status_code == 405
    async with browsing(NOWHERE, token=TOKEN, controllers=allowed) as page:
        await log_in(page)
        assert "Sign in to change" in await page.get("/schedules")
        answer = await page.client.get(CHANGE_PATH, headers=HTML)
        assert (answer.status_code, answer.headers["location"][:19]) == (303, "/login?next=%2Fchan")
        refused = await page.client.post("/change", data=form)
        assert (refused.status_code, "the token of readers is not enough" in refused.text) == (403, True)
        reading = page.client.cookies[COOKIE]
        page.client.cookies.clear()
        page.client.cookies.set(CONTROL_COOKIE, reading)
        assert (await page.client.post("/change", data=form)).status_code == 403, "a cookie is of one token"


async def test_a_form_is_of_the_login_that_it_was_made_for_and_of_this_site() -> None:
    allowed = controllers()
    async with browsing(NOWHERE, controllers=allowed) as page:
        await page.get("/")  # without the token of readers all may read
        assert (await log_in(page, CONTROL_TOKEN)).status_code == 303
        own = allowed.form_proof(Controller(f"login {page.client.cookies[CONTROL_COOKIE]}", ""))
        other = allowed.form_proof(Controller(f"login {allowed.sessions.cookie()}", "")) if allowed.sessions else ""
        form = {"do": "pause", "stream": "O", "one": "1 O.s", "looked": "{}", "author": "Ada"}
        form["reason"] = "stocktaking"
        for proof, headers, status, says in (
            (own, {}, 200, "is being made|Connect call failed"),  # there is no connection yet, or none is possible
            (own, {"Origin": "http://localhost:8225", "Sec-Fetch-Site": "same-origin"}, 200, "refused"),
            (own, {"Sec-Fetch-Site": "cross-site"}, 403, "sent by another site"),
            (own, {"Origin": "http://evil.example"}, 403, "sent by another site"),
            (own, {"Origin": "https://status.example.com", "Sec-Fetch-Site": "same-origin"}, 200, "refused"),
            ("", {}, 403, "another login"),
            (other, {}, 403, "another login"),
            (own[:-1], {}, 403, "another login"),
        ):
            sent = {**form, "proof": proof}
            answer = await page.client.post("/change", data=sent, headers=headers, follow_redirects=True)
            found = re.search(says, answer.text)
            assert (answer.status_code, bool(found)) == (status, True), (proof, headers, answer.text)
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        for typed, status in (
            ({"author": " "}, 422),
            ({"reason": ""}, 422),
            ({"one": "x O.s"}, 400),
            ({"do": "purge"}, 404),
            ({"pad": "x" * 300_000}, 413),
        ):
            answer = await page.client.post("/change", data={**form, "proof": own, **typed})
            assert answer.status_code == status, typed
        await page.client.post("/login", data={"leave": "1"})
        page.client.cookies.clear()
        assert (await page.client.post("/change", data={**form, "proof": own})).status_code == 403


async def test_only_a_trusted_proxy_names_a_user() -> None:
    """The client of these requests is 127.0.0.1."""
    name = {"X-User": "Zoë".encode()}
    cases: list[tuple[list[Any], Any, int]] = [
        ([ip_network("127.0.0.1")], name, 200),
        ([PROXY, ip_network("127.0.0.0/8")], name, 200),
        ([ip_network("127.0.0.1")], {}, 403),
        ([ip_network("127.0.0.1")], {"X-User": b" "}, 403),
        ([ip_network("127.0.0.1")], [("X-User", "Eve"), ("X-User", "Zoe")], 403),
    ]
    for proxies, headers, status in cases:
        allowed = controllers(sessions=None, header="X-User", proxies=proxies)
        async with browsing(NOWHERE, token=TOKEN, controllers=allowed) as page:
            answer = await page.client.get(CHANGE_PATH, headers=headers)
            assert answer.status_code == status, (proxies, headers)
            if status == 403:
                assert (
                    "one header X-User from an address of web_trusted_proxies (this came from 127.0.0.1)" in answer.text
                )
                assert (await page.client.get("/", headers=headers)).status_code == 401, "it does not read either"
            else:
                assert (await page.client.get("/", headers=headers)).status_code == 200, "it needs no token to read"


def test_settings_say_who_may_change_schedules() -> None:
    def allowed(**given: Any) -> Controllers | None:
        return controllers_of(SidecarSettings(**given), CLOCK.now)

    reading = f"{TOKEN}, which is longer"
    assert allowed(web_token=reading) is None
    by_token = allowed(web_control_token=CONTROL_TOKEN)
    assert by_token is not None
    assert by_token.sessions is not None
    assert by_token.sessions.is_token(CONTROL_TOKEN)
    by_proxy = allowed(web_user_header="X-User", web_trusted_proxies=("10.1.0.0/16",))
    assert by_proxy is not None
    assert (by_proxy.sessions, by_proxy.header, by_proxy.proxies) == (None, "X-User", [PROXY])
    for given, said in (
        ({"web_token": reading, "web_control_token": reading}, "is the same as web_token"),
        ({"web_user_header": "X-User"}, "web_user_header is set: expected web_trusted_proxies to be set too"),
        ({"web_control_token": CONTROL_TOKEN, "web_control_token_file": "x"}, "are both set: expected one of them"),
        ({"web_control_token_file": "/nowhere/x"}, "web_control_token_file of '/nowhere/x'"),
    ):
        with pytest.raises(SettingsError, match=said):
            allowed(**given)
    assert allowed(web_trusted_proxies=("10.1.0.0/16",)) is None, "a proxy alone names addresses, and no users"
    for wrong in ("10.1.0.7/16", "0.0.0.0/0", "::/0", "proxy"):
        with pytest.raises(ValidationError):
            SidecarSettings(web_trusted_proxies=(wrong,))
