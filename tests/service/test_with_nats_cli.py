"""The real `nats` CLI finds the service and gets answers: nothing of ours is needed to ask."""

import json

from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.nats_cli import NatsCli

FAR = {"Nats-Schedule": f"@at {in_seconds(3600)}", "Nats-Schedule-Target": "ORDERS.out"}


async def test_the_nats_cli_lists_the_service_and_gets_answers(start_server: StartServer, nats_cli: NatsCli) -> None:
    server = await start_server()
    nats = nats_cli.at(server.url)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("ORDERS")
        await account.publish("ORDERS.s", FAR)
        await running.ready("ORDERS")
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
