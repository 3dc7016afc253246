"""Wrong tokens: who sends them has to wait and is logged, and a right token from elsewhere opens the page."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import httpx
import pytest

from nats_scheduler.web.attempts import (
    FIRST_WAIT_SECONDS,
    FORGOTTEN_AFTER_SECONDS,
    FREE_ATTEMPTS,
    FREE_ATTEMPTS_OF_ALL,
    LATE_SECONDS,
    MAX_ADDRESSES,
    MAX_WAIT_SECONDS,
    Attempts,
    address_of,
)
from tests.harness.log_lines import capture_logs
from tests.web.browsing import TOKEN, Browsing, browsing
from tests.web.test_request_checks import NOWHERE, log_in

PROXY = ip_network("127.0.0.1")
"""The address of the client of these tests."""


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    with capture_logs() as found:
        yield found


def of(address: str) -> dict[str, str]:
    return {"X-Forwarded-For": address}


def stands_still() -> float:
    """Return the same time at every call, so that no wait ends on a busy machine."""
    return 0.0


async def bearer(page: Browsing, token: str, address: str = "203.0.113.7") -> httpx.Response:
    return await page.client.get("/", headers={"Authorization": f"Bearer {token}", **of(address)})


async def test_who_sends_wrong_tokens_has_to_wait_and_others_do_not(lines: list[dict[str, Any]]) -> None:
    async with browsing(NOWHERE, token=TOKEN, proxies=[PROXY], clock=stands_still) as page:
        wrong, right = of("203.0.113.7"), of("203.0.113.8")
        tried = [(await log_in(page, f"{TOKEN}{n}", wrong)).status_code for n in range(FREE_ATTEMPTS + 2)]
        assert tried == [403] * FREE_ATTEMPTS + [429] * 2
        refused = await log_in(page, TOKEN, wrong)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert "Too many wrong tokens came from this address: try again in 2 s." in refused.text
        assert "set-cookie" not in refused.headers, "a token is not compared while its sender has to wait"
        assert (await bearer(page, TOKEN)).status_code == 429, "nor is that of a program"
        assert (await log_in(page, TOKEN, right)).status_code == 303
        assert (await bearer(page, TOKEN, "203.0.113.8")).status_code == 200
    told = [line for line in lines if line["event"] == "login_failed"]
    assert [(one["address"], one["failures"]) for one in told] == [
        ("203.0.113.7", number + 1) for number in range(FREE_ATTEMPTS)
    ]
    assert TOKEN not in str(lines)


async def test_without_a_trusted_proxy_nobody_can_choose_an_address() -> None:
    async with browsing(NOWHERE, token=TOKEN, clock=stands_still) as page:
        tried = [(await log_in(page, "wrong", of(f"203.0.113.{n}"))).status_code for n in range(FREE_ATTEMPTS + 1)]
        assert tried == [403] * FREE_ATTEMPTS + [429]


def test_the_address_is_the_last_one_that_no_trusted_proxy_has() -> None:
    proxies = [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")]

    def found(peer: str | None, *forwarded: str) -> str:
        headers = [(b"x-forwarded-for", one.encode()) for one in forwarded]
        return address_of({"type": "http", "headers": headers, "client": peer and (peer, 1)}, proxies)

    assert found("10.0.0.1", "203.0.113.7") == "203.0.113.7"
    assert found("::ffff:10.0.0.1", "198.51.100.9, 203.0.113.7, 10.0.0.2") == "203.0.113.7"
    assert found("10.0.0.1", "198.51.100.9", "203.0.113.7,10.0.0.2") == "203.0.113.7", "two headers are one list"
    assert found("203.0.113.9", "198.51.100.9") == "203.0.113.9", "it is no proxy"
    assert found("10.0.0.1") == found("10.0.0.1", "10.0.0.2") == found("10.0.0.1", "no address") == "10.0.0.1"
    assert found("10.0.0.1", "[2a00:1450::5]") == found("2a00:1450::6") == "2a00:1450::/64"
    assert found(None) == "unknown"


def scope(address: str) -> dict[str, Any]:
    return {"type": "http", "headers": [], "client": (address, 1)}


async def test_each_further_wait_is_twice_as_long_and_ends() -> None:
    now = 0.0
    attempts, waits = Attempts(clock=lambda: now), list[int]()
    for _ in range(FREE_ATTEMPTS + 11):
        assert attempts.seconds(scope("203.0.113.7")) == 0
        await attempts.failed(scope("203.0.113.7"))
        waits.append(attempts.seconds(scope("203.0.113.7")))
        now += max(0, waits[-1])
    assert waits[:FREE_ATTEMPTS] == [0] * (FREE_ATTEMPTS - 1) + [int(FIRST_WAIT_SECONDS) + 1]
    assert waits[FREE_ATTEMPTS : FREE_ATTEMPTS + 3] == [3, 5, 9]
    assert waits[-1] == int(MAX_WAIT_SECONDS) + 1
    now += FORGOTTEN_AFTER_SECONDS + MAX_WAIT_SECONDS
    await attempts.failed(scope("203.0.113.7"))
    assert attempts.seconds(scope("203.0.113.7")) == 0, "it begins anew"


async def test_remembered_addresses_and_log_lines_are_limited(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nats_scheduler.web.attempts.LATE_SECONDS", 0.0)
    attempts = Attempts(clock=lambda: 0.0)
    for number in range(2 * MAX_ADDRESSES):
        await attempts.failed(scope(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"))
    assert len(attempts._addresses) == MAX_ADDRESSES
    assert 100 <= len(lines) < MAX_ADDRESSES


@pytest.mark.slow
async def test_a_right_token_is_answered_at_once_under_attack() -> None:
    async with browsing(NOWHERE, token=TOKEN, proxies=[PROXY], clock=stands_still) as page:
        for number in range(int(FREE_ATTEMPTS_OF_ALL)):
            assert (await log_in(page, "wrong", of(f"203.0.{number}.7"))).status_code == 403
        late = await log_in(page, "wrong", of("203.0.113.200"))
        assert late.status_code == 403
        assert late.elapsed.total_seconds() >= LATE_SECONDS
        assert (await log_in(page, TOKEN, of("203.0.113.201"))).status_code == 303
