"""The listener of the pages: where it listens, and what clients can hold open."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from nats_scheduler.observe.address import ListenError, bound, is_loopback, url_of
from nats_scheduler.observe.listener import Limits, serve
from nats_scheduler.settings.sidecar import SidecarSettings
from nats_scheduler.web.app import TokenError, token_of
from nats_scheduler.web.pages import healthz
from tests.harness.account import WAIT_SECONDS


async def form(request: Request) -> PlainTextResponse:
    """Read a whole request."""
    return PlainTextResponse(str(len(await request.body())))


async def large(_request: Request) -> StreamingResponse:
    """Answer more than any socket buffers, in parts."""
    return StreamingResponse(repeat(bytes(100_000), 200))


APP = Starlette(routes=[Route("/healthz", healthz), Route("/form", form, methods=["POST"]), Route("/large", large)])
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def listener(limits: Limits | None = None) -> AsyncIterator[str]:
    """Serve one page on a free port."""
    stop = asyncio.Event()
    with bound("127.0.0.1", 0, "web") as listening:
        serving = asyncio.create_task(serve(APP, listening, stop, limits))
        try:
            yield url_of(listening)
        finally:
            stop.set()
            await serving


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection on which nothing has been sent."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the other side has closed a connection."""
    async with asyncio.timeout(WAIT_SECONDS):
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
    return True


async def test_a_page_is_served_until_the_end() -> None:
    async with listener() as url, httpx.AsyncClient() as client:
        answer = await client.get(f"{url}/healthz")
        assert (answer.text, answer.headers.get("server")) == ("ok\n", None)
    with pytest.raises(ConnectionRefusedError):
        await connected(url)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [b"", b"GET /heal", b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1"]
)
async def test_a_request_that_never_ends_is_cut_off(sent: bytes) -> None:
    async with listener(Limits(request_seconds=0.2)) as url:
        reader, writer = await connected(url)
        writer.write(sent)
        assert await is_closed(reader)
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: localh"])
async def test_the_connection_that_waits_longest_makes_room_for_one_too_many(sent: bytes) -> None:
    async with listener(Limits(connections=3)) as url:
        held = [await connected(url) for _ in range(3)]
        for _reader, writer in held:
            writer.write(sent)
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{url}/healthz")).status_code == 200
        assert await is_closed(held[0][0])
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize("part", [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", b""])
async def test_hundreds_of_slow_clients_keep_nobody_from_an_answer(part: bytes) -> None:
    async with listener(Limits(connections=16, head_seconds=0.5)) as url:
        slow = [await connected(url) for _ in range(200)]

        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
            for _ in range(4):
                for _reader, writer in slow:
                    if not writer.is_closing():
                        writer.write(part or b"G")
                assert (await client.get(f"{url}/healthz")).status_code == 200
        for reader, writer in slow:  # a byte now and then keeps none of them open
            assert await is_closed(reader)
            writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /form HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1",
        b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["half a body", "an answer that is not read"],
)
async def test_clients_that_stop_in_the_middle_of_a_request_keep_nobody_from_an_answer(sent: bytes) -> None:
    async with listener(Limits(connections=4)) as url, httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
        held = []
        for _ in range(3):
            for _ in range(4):
                held.append(await connected(url))
                held[-1][1].write(sent)
            assert (await client.get(f"{url}/healthz", headers={"Connection": "close"})).status_code == 200
        for _reader, writer in held:
            writer.transport.abort()


@pytest.mark.parametrize("part", [b"G", b"GET /healthz HTTP/1.1\r\nX: "])
async def test_a_byte_now_and_then_holds_no_connection_open(part: bytes) -> None:
    async with listener(Limits(head_seconds=0.5)) as url:
        reader, writer = await connected(url)
        writer.write(part)
        closed = asyncio.create_task(is_closed(reader))
        while not closed.done():  # a deadline for each read would never end
            writer.write(b"x")
            await asyncio.wait([closed], timeout=0.1)
        assert closed.result()
        writer.close()


async def test_a_connection_is_used_again_and_each_head_has_the_same_time() -> None:
    async with listener(Limits(head_seconds=0.3)) as url:
        reader, writer = await connected(url)
        for _ in range(3):
            writer.write(REQUEST)
            assert await reader.readuntil(b"ok\n")
        writer.write(REQUEST[:10])
        assert await is_closed(reader)
        writer.close()


async def test_a_head_that_is_too_long_is_refused() -> None:
    async with listener() as url:
        reader, writer = await connected(url)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()


def test_a_port_that_is_in_use_is_named_with_what_is_expected() -> None:
    with (
        bound("127.0.0.1", 0, "web") as listening,
        pytest.raises(ListenError, match="a port that no other program uses"),
    ):
        bound("127.0.0.1", listening.getsockname()[1], "web")
    with pytest.raises(ListenError, match=r"web_address no\.such\.host\.invalid"):
        bound("no.such.host.invalid", 1, "web")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_every_address_is_one_of_both_families() -> None:
    with bound("::", 0, "web") as listening:
        assert url_of(listening).startswith("http://[::]:")
        with socket.create_connection(("127.0.0.1", listening.getsockname()[1])):
            pass


@pytest.mark.parametrize(
    ("address", "only_here"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("localhost", True),
        ("::", False),
        ("example.com", False),
    ],
)
def test_what_is_loopback(address: str, only_here: bool) -> None:
    assert is_loopback(address) == only_here


def test_another_address_than_loopback_needs_a_token(tmp_path: Path) -> None:
    assert token_of(SidecarSettings()) is None
    with pytest.raises(TokenError, match="expected web_token or web_token_file"):
        token_of(SidecarSettings(web_address="::"))
    file = tmp_path / "token"
    file.write_text("  0123456789abcdefghij\n")
    assert token_of(SidecarSettings(web_address="::", web_token_file=file)) == "0123456789abcdefghij"
    file.write_text("short\n")
    with pytest.raises(TokenError, match="has 5 characters: expected at least 20"):
        token_of(SidecarSettings(web_token_file=file))
    with pytest.raises(TokenError, match="expected a file with a token"):
        token_of(SidecarSettings(web_token_file=tmp_path / "none"))
    with pytest.raises(TokenError, match="both set"):
        token_of(SidecarSettings.model_validate({"web_token": "x" * 20, "web_token_file": str(file)}))
