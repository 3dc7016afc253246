"""The real `nats` CLI finds the service, gets answers and changes schedules: nothing of ours is needed to ask."""

import json
import shlex
from itertools import takewhile

from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.nats_cli import NatsCli
from tests.house.coming_from import STREAM_FILE
from tests.house.sources import ROOT
from tests.house.test_documents import shell_blocks
from tests.service.controlling import ENDPOINTS

FAR = {"Nats-Schedule": f"@at {in_seconds(3600)}", "Nats-Schedule-Target": "ORDERS.out"}


async def test_the_nats_cli_lists_the_service_and_gets_answers(start_server: StartServer, nats_cli: NatsCli) -> None:
    server = await start_server()
    nats = nats_cli.at(server.url)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("ORDERS")
        await account.publish("ORDERS.s", FAR)
        await running.ready("ORDERS")
        await running.healthy()
        me = running.sidecar.instance
        assert me in await nats.run("micro", "ls")
        assert "nats_scheduler.v1.schedules.get" in await nats.run("micro", "info", "nats-scheduler")
        health = json.loads(await nats.run("req", "--raw", "nats_scheduler.v1.health.get", ""))
        assert (health["ready"], health["instance"], health["reasons"]) == (True, me, [])
        request = json.dumps({"stream": "ORDERS", "subject": "ORDERS.s"})
        known = json.loads(await nats.run("req", "--raw", "nats_scheduler.v1.schedules.get", request))
        assert (known["holder"], known["holder_answered"]) == (me, True)
        assert (known["schedule"]["subject"], known["schedule"]["state"]) == ("ORDERS.s", "waiting")
        refused = await nats.run("req", "nats_scheduler.v1.schedules.get", "{}")
        assert "Nats-Service-Error-Code: 400" in refused
        assert "the key stream is missing" in refused
        statistics = json.loads(await nats.run("micro", "stats", "nats-scheduler", "--json"))
        (mine,) = statistics if isinstance(statistics, list) else [statistics]
        counted = {one["name"]: (one["num_requests"], one["num_errors"]) for one in mine["endpoints"]}
        assert (counted["schedules-get"], counted["health-get"]) == ((2, 1), (1, 0))


def typed() -> list[list[str]]:
    """List the requests of the page about changes, each as what follows `nats req`."""
    words = shlex.split("\n".join(shell_blocks(ROOT / "docs" / "reference" / "control.md")))
    begins = [number for number in range(len(words)) if words[number : number + 2] == ["nats", "req"]]
    return [list(takewhile(lambda word: word != "nats", words[number + 2 :])) for number in begins]


async def test_the_requests_of_the_page_work_one_after_the_other(start_server: StartServer, nats_cli: NatsCli) -> None:
    server = await start_server()
    nats = nats_cli.at(server.url)
    async with sidecar_on(server.url, allow_control=True) as running, account_on(server.url) as account:
        await account.api.call("STREAM.CREATE.ORDERS", json.loads(STREAM_FILE))
        await running.ready("ORDERS")
        done = [json.loads(await nats.run("req", "--raw", *arguments)) for arguments in typed()]
        assert [one["change"] for one in done] == [
            *("added", "paused", "resumed", "fired", "fired", "edited", "edited", "removed")
        ]
        assert len(await account.messages("ORDERS", "orders.due")) == 2
        assert [one.get("dry_run") for one in done].count(True) == 1
        info = await nats.run("micro", "info", "nats-scheduler")
        assert all(f"nats_scheduler.control.v1.schedules.{name}" in info for name in ENDPOINTS)
        (mine,) = json.loads(await nats.run("micro", "stats", "nats-scheduler", "--json"))
        counted = {one["subject"]: one["num_requests"] for one in mine["endpoints"]}
        assert counted["nats_scheduler.control.v1.schedules.edit"] == 2
