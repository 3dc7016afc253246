"""The overview: one look says whether all is well, and what is not.

It tests `web/link.py` too.

And what the server itself fires is shown as what a sidecar fires.
"""

from __future__ import annotations

from nats_scheduler.web.rendering import address
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.servers import V2_15
from tests.web.browsing import browsing


async def test_the_page_keeps_what_it_shows_and_recovers(start_server: StartServer) -> None:
    server = await start_server()
    async with browsing(server.url) as page, account_on(server.url) as account:
        await page.connected()
        await page.shows("/", "<title>Not working", "No sidecar answers")
        async with sidecar_on(server.url) as running:
            text = await page.shows("/", "No stream carries schedules yet")
            assert "nats-scheduler stream add" in text
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


async def test_an_update_is_compressed_and_leaves_out_what_the_page_has(start_server: StartServer) -> None:
    server = await start_server()
    async with sidecar_on(server.url) as running, account_on(server.url) as account, browsing(server.url) as page:
        await account.create("O")
        await running.ready("O")
        await page.shows("/rejected?stream=O", "All is well")
        whole = await page.client.get("/rejected?stream=O", headers={"X-Fragment": "1"})
        assert whole.headers["content-encoding"] == "gzip"
        assert 'id="live"' in whole.text
        known = {"X-Fragment": "1", "X-Live": whole.headers["x-live"]}
        again = await page.client.get("/rejected?stream=O", headers=known)
        assert 'id="live"' not in again.text
        assert 'id="now"' in again.text
        plain = await page.client.get(
            "/rejected?stream=O", headers={**known, "Accept-Encoding": "identity", "X-Live": ""}
        )
        assert "content-encoding" not in plain.headers
        page_itself = await page.client.get("/rejected?stream=O")
        assert "content-encoding" not in page_itself.headers, "a page may have a form with a secret"


# -- the pages show what the server itself fires as they show what a sidecar fires, and name what is not known of it ---


async def test_what_the_server_fires_is_on_each_page(start_server: StartServer) -> None:
    server = await start_server(V2_15)
    every = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "O.out"}
    async with sidecar_on(server.url) as running, account_on(server.url) as account, browsing(server.url) as page:
        await account.create("O")
        await account.publish("O.s", {**every, "Nats-Schedule-X-Limit": "1", "Nats-Schedule-X-Note": "the first"})
        await account.publish("O.gone", every)
        await running.ready("O")
        await account.wait_for("O", "O.out", 4)
        await account.api.call("STREAM.PURGE.O", {"filter": "O.gone"})
        fired = "<bdi>O.s</bdi>"
        await page.shows("/", "1 schedule in 1 stream, served by 1 instance", "All is well", "<span>native<", fired)
        await page.shows("/fires", fired, " ms<")
        await page.shows(address("/schedules", stream="O"), fired, "1 schedule in O")
        one = await page.shows(address("/schedule", stream="O", subject="O.s"), "the server itself", " ms<")
        ignored = one.partition("since no server knows them: ")[2].partition("policies_ignored")[0]
        assert ("X-Limit" in ignored, "X-Note" in ignored) == (True, False)
        assert "not known, stored" in await page.get(address("/schedule", stream="O", subject="O.gone"), 404)
        await page.shows("/failures", "the scheduler of a server reports nothing")
