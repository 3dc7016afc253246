"""The overview: one look says whether all is well, and what is not."""

import pytest

from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.web.browsing import browsing
from tests.web.conftest import Scene


@pytest.mark.server
@pytest.mark.asyncio(loop_scope="module")
async def test_all_is_well(scene: Scene) -> None:
    text = await scene.page.shows("/", "<title>All is well · Overview", "fired by 1 instance")
    assert 'href="/schedules?stream=O"' in text
    assert "O.s.1</bdi>" in text, "what fires next"
    assert "2 messages of stream O looked like a schedule and will never fire." in text


async def test_an_account_without_streams_shows_how_to_begin(start_server: StartServer) -> None:
    server = await start_server()
    async with sidecar_on(server.url), browsing(server.url) as page:
        text = await page.shows("/", "No stream carries schedules yet")
        assert "nats-scheduler stream add" in text


async def test_without_a_sidecar_the_page_says_so(start_server: StartServer) -> None:
    server = await start_server()
    async with browsing(server.url) as page:
        await page.connected()
        await page.shows("/", "<title>Not working", "No sidecar answers")


async def test_what_was_shown_stays_when_the_sidecar_ends_and_the_page_recovers(start_server: StartServer) -> None:
    server = await start_server()
    async with browsing(server.url) as page, account_on(server.url) as account:
        async with sidecar_on(server.url) as running:
            await account.create("O")
            await running.ready("O")
            await page.shows("/", "All is well", 'stream=O"')
        text = await page.shows("/", "No sidecar answers", "What you see is from")
        assert 'stream=O"' in text, "the last good answer is still shown"
        async with sidecar_on(server.url):
            await page.shows("/", "<title>All is well")


async def test_a_lost_connection_is_shown_and_made_again(start_server: StartServer) -> None:
    server = await start_server()
    async with browsing(server.url) as page:
        async with sidecar_on(server.url):
            await page.shows("/", "All is well")
        await server.stop()
        await page.shows("/", "The connection to NATS is lost", "What you see is from")
        await server.start()
        async with sidecar_on(server.url):
            await page.shows("/", "<title>All is well")


@pytest.mark.parametrize("path", ["/", "/?cursor=%00%ff", "/?cursor=..%2f"])
async def test_the_page_comes_without_any_server(path: str) -> None:
    async with browsing("nats://127.0.0.1:1") as page:
        assert "Not working" in await page.get(path)


@pytest.mark.server
@pytest.mark.asyncio(loop_scope="module")
async def test_the_parts_that_change_are_the_same_as_on_the_page(scene: Scene) -> None:
    fragment = await scene.page.get("/", x_fragment="1")
    assert "<html" not in fragment
    assert 'id="live"' in fragment
    assert 'id="now"' in fragment
