"""The pages show what the server itself fires as they show what a sidecar fires, and name what is not known of it."""

from __future__ import annotations

from nats_scheduler.web.rendering import address
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.servers import V2_15
from tests.web.browsing import browsing


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
