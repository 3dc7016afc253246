"""The chart's pods, run: the sidecar fires, calendars are written, the page shows it, and each user lacks nothing."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nkeys
import pytest

from nats_scheduler.runtime.embedded import HOST, EmbeddedServer, free_port
from tests.conftest import StartServer
from tests.deploy.chart import example
from tests.deploy.rendering import ORDERS, Objects, Values, pod_of, rendered
from tests.deploy.running import SECRETS, Secrets, accounts, answer_of, probed, started, url_of
from tests.harness.account import account_on, in_seconds
from tests.harness.certificates import Authority, tls_config
from tests.harness.jwts import Key, Operator
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

JOB_SECONDS = 90.0


def values_for(server: EmbeddedServer, **more: Any) -> Values:
    """Return values for a server of this machine, on ports of this machine."""
    return {
        "nats": {"servers": [server.url]},
        "metrics": {"port": free_port(), "address": HOST},
        **more,
    }


@contextmanager
def running(objects: Objects, component: str, folder: Path, secrets: Secrets = SECRETS) -> Iterator[list[ChildProcess]]:
    """Run the containers of one pod of a component."""
    pod = pod_of(objects, component)
    with ExitStack() as stack:
        yield [stack.enter_context(started(one, pod, objects, secrets, folder)) for one in pod["containers"]]


def only_container(objects: Objects, component: str) -> dict[str, Any]:
    """Return the container of a component that has one."""
    (container,) = pod_of(objects, component)["containers"]
    return dict(container)


async def test_all_components_work_as_users_that_may_do_nothing_else(start_server: StartServer, tmp_path: Path) -> None:
    """The values are those of the page's example, with the status page."""
    server = await start_server(V2_11, config=accounts())
    objects = rendered(
        values_for(
            server,
            streams=example()["streams"],
            settings=example()["settings"],
            calendars={"days": {**example()["calendars"]["days"], "DE_by": "2026-12-25"}},
            web={"enabled": True, "port": free_port(), "address": HOST},
        )
    )
    with running(objects, "calendars", tmp_path) as jobs:
        assert [await job.wait_for_exit(within_seconds=JOB_SECONDS) for job in jobs] == [0, 0], jobs[0].stderr
    sidecar, page = only_container(objects, "sidecar"), only_container(objects, "web")
    with (
        running(objects, "sidecar", tmp_path) as (process,),
        running(objects, "web", tmp_path) as (web,),
    ):
        for probe in ("startup", "liveness", "readiness"):
            await probed(sidecar, probe)
        async with account_on(url_of(server.url, "shop"), inbox_prefix="_INBOX") as shop:
            schedule = {"Nats-Schedule": f"@at {in_seconds(0.2)}", "Nats-Schedule-Target": "orders.due"}
            await shop.publish("schedules.orders.1", schedule)
            excepted = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "orders.daily"}
            await shop.publish("schedules.orders.2", {**excepted, "Nats-Schedule-X-Except": "calendar:company"})
            await shop.wait_for("ORDERS", "orders.due")
            await shop.wait_for("ORDERS", "orders.daily")
        await probed(page, "liveness")
        await probed(page, "readiness")
        (port,) = [one["containerPort"] for one in page["ports"]]
        bearer = {"Authorization": f"Bearer {SECRETS['nats-scheduler-web-token']['token']}"}
        fired = "subject=schedules.orders.1"

        def shown(**headers: str) -> bool:
            return fired in answer_of(port, "/fires", **headers).text

        await eventually(lambda: shown(**bearer), describe="the fire on the page")
        assert not shown(), "without the token"
        assert await process.terminate() == 0
        assert await web.terminate() == 0
    for one in (process, web):
        assert "permission" not in (one.stdout + one.stderr).lower(), one.stdout + one.stderr


async def test_no_probe_restarts_a_sidecar_because_the_server_is_away(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Neither where it starts without one, nor where it loses one."""
    server = await start_server(V2_11, config=accounts())
    objects = rendered(values_for(server, streams={"ORDERS": ORDERS}))
    sidecar = only_container(objects, "sidecar")
    await server.stop()
    with running(objects, "sidecar", tmp_path):
        for probe, wanted in (("startup", 200), ("liveness", 200), ("readiness", 503)):
            await probed(sidecar, probe, wanted)
        await server.start()
        await probed(sidecar, "readiness")
        await server.kill()
        await probed(sidecar, "readiness", 503)
        await probed(sidecar, "liveness")
        await server.start()
        await probed(sidecar, "readiness")


def ways(folder: Path) -> dict[str, tuple[str, Values, Secrets]]:
    """Return each way to log in: the server's configuration, the values that select it, what is in the Secrets."""
    authority, operator, key = Authority(folder), Operator(), Key(nkeys.PREFIX_BYTE_USER)
    ends, client = authority.issue("server"), authority.issue("client")
    pair = {"tls.crt": client.cert.read_text("utf-8"), "tls.key": client.key.read_text("utf-8")}
    creds = operator.user().write(folder / "user.creds").read_text("utf-8")

    def auth(method: str, **keys: str) -> Values:
        return {"auth": {"secretName": "login", "method": method, **({"keys": keys} if keys else {})}}

    certificate = {"auth": {"method": "none", "clientCertificate": {"secretName": "client"}}}
    tls = {"nats": {"tls": {"ca": {"secretName": "authority"}}}}
    return {
        "password": (
            'authorization { user: "me", password: "swordfish" }',
            auth("userPassword", user="name", password="word"),  # noqa: S106 - the key of one
            {"login": {"name": "me", "word": "swordfish"}},
        ),
        "token": ('authorization { token: "swordfish" }', auth("token"), {"login": {"token": "swordfish"}}),
        "nkey": (
            f"authorization {{ users: [{{ nkey: {key.public} }}] }}",
            auth("nkey"),
            {"login": {"user.nk": key.seed.decode()}},
        ),
        "creds": (operator.config, auth("creds", creds="sidecar.creds"), {"login": {"sidecar.creds": creds}}),
        "client certificate": (
            tls_config(ends, clients=authority),
            {**certificate, **tls},
            {"authority": {"ca.crt": authority.file.read_text("utf-8")}, "client": pair},
        ),
    }


@pytest.mark.parametrize("name", ["password", "token", "nkey", "creds", "client certificate"])
async def test_a_pod_logs_in_with_what_its_secret_has(start_server: StartServer, tmp_path: Path, name: str) -> None:
    config, values, secrets = ways(tmp_path)[name]
    server = await start_server(V2_11, config=config)
    over_tls = values.get("nats", {})
    url = server.url.replace("nats://", "tls://") if over_tls else server.url
    objects = rendered(values_for(server, auth=values["auth"], nats={"servers": [url], **over_tls}))
    with running(objects, "sidecar", tmp_path, secrets):
        await probed(only_container(objects, "sidecar"), "readiness")
