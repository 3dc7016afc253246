"""What stands before every page: host names, methods, sizes, the token, and the headers of every answer."""

import pytest

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
