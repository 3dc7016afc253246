"""The values for the official chart of NATS: each user has its least permissions, and the pod what it needs.

The chart itself is rendered where it can be had; the users are held to their permissions by a real server anyway.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.engine.events import FireStored
from nats_scheduler.runtime.embedded import HOST, free_port
from nats_scheduler.service.change_endpoints import CONTROL_SUBJECTS
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import StartServer
from tests.deploy.chart import PAGE
from tests.deploy.files import EVERY_ADDRESS, NATS_VALUES, STREAMS, beside, nats_values
from tests.deploy.rendering import Objects, objects_of
from tests.deploy.running import SECRETS, accounts, filled_in, probed, started, url_of, users, variables
from tests.harness.account import account_on, started_sidecar
from tests.harness.kubernetes import NATS_CHART, VERSIONS, helm, kubeconform, nats_chart
from tests.harness.permissions import listed
from tests.harness.servers import V2_11, server_binary
from tests.harness.waiting import eventually
from tests.service.controlling import far, request

BUCKETS = {f"KV_nats_scheduler{name}" for name in ("", "_calendars")}
OWN_STREAMS = {"ORDERS", *BUCKETS, "nats_scheduler_failures", "nats_scheduler_canary"}
INBOX = "_INBOX_nats_scheduler"
FOR_FILES = {"$JS.API.STREAM.CREATE.ORDERS"}
"""The subjects that the page about security lists for streams from files."""
FOR_REQUESTS = {"schedules.orders.>", "$SYS.REQ.USER.INFO"}
"""Those that it lists for requests that change schedules; the others are needed anyway."""


def within(subject: str, wider: str) -> bool:
    """Return whether all that a subject stands for is also meant by another."""
    tokens, others = subject.split("."), wider.split(".")
    if others[-1] == ">":
        return len(tokens) >= len(others) and within(".".join(tokens[: len(others) - 1]), ".".join(others[:-1]))
    pairs = zip(tokens, others, strict=False)
    return len(tokens) == len(others) and all(other in ("*", token) for token, other in pairs)


def test_the_sidecar_is_granted_what_the_page_lists_for_its_streams_and_no_more() -> None:
    granted = users()["scheduler"]
    rows = [row for row in listed() if row.subject != "jobs.>"]
    for act in ("publish", "subscribe"):
        wanted = {row.subject for row in rows if row.act == act} | (
            FOR_FILES | FOR_REQUESTS if act == "publish" else set()
        )
        subjects = [INBOX + ".>" if one == "_INBOX.>" and act == "subscribe" else one for one in wanted]
        given = granted[act]["allow"]
        assert [one for one in given if not any(within(one, other) for other in subjects)] == []
        assert [one for one in subjects if not any(within(other, one) for other in given)] == []


def test_the_sidecar_is_restricted_to_its_streams() -> None:
    """Whatever changes, reads or consumes a stream names it; asking for a configuration finds the streams."""
    subjects = users()["scheduler"]["publish"]["allow"]
    of_streams = {one.rpartition(".")[2]: one for one in subjects if one.startswith("$JS.API.STREAM.")}
    assert of_streams.pop("*") == "$JS.API.STREAM.INFO.*"
    assert of_streams.pop("LIST") == "$JS.API.STREAM.LIST"
    of_consumers = [one.removeprefix("$JS.API.CONSUMER.") for one in subjects if one.startswith("$JS.API.CONSUMER.")]
    listed = {one.removeprefix("LIST.") for one in of_consumers if one.startswith("LIST.")}
    named = {one.split(".")[-2] for one in of_consumers if not one.startswith("LIST.")}
    assert {*of_streams, *named, *listed} == OWN_STREAMS


def test_the_users_are_those_of_the_secrets_that_the_page_has_created() -> None:
    text = PAGE.read_text("utf-8")
    assert set(users()) == {one["user"] for one in SECRETS.values() if "user" in one}
    assert all(f"{one['user']}:{name}" in text for name, one in SECRETS.items() if "user" in one)
    assert all(name in text for name in SECRETS)
    assert all(f"--version {NATS_CHART} " in line for line in text.splitlines() if "nats/nats" in line)


def test_the_container_beside_the_server_has_no_rights_and_only_its_own_secret() -> None:
    container = beside()
    given = {one["name"]: one.get("value") for one in container["env"]}
    secrets = {one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"] if "valueFrom" in one}
    (port,) = container["ports"]
    assert container["securityContext"] == nats_values("server.yaml")["container"]["merge"]["securityContext"]
    assert secrets == {"nats-scheduler-user"}
    assert given["NATS_SCHEDULER_CONNECTION_INBOX_PREFIX"] == INBOX
    assert given["NATS_SCHEDULER_METRICS_ADDRESS"] == EVERY_ADDRESS
    assert given["NATS_SCHEDULER_METRICS_PORT"] == str(port["containerPort"])
    assert {container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness")} == {"/healthz"}
    assert "readinessProbe" not in container, "it must not take the server out of service"


STREAM, CONSUMER = "$JS.API.STREAM", "$JS.API.CONSUMER.CREATE"
DENIED = {
    "scheduler": [
        *("schedules.stock.1", "jobs.new", "$KV.nats_scheduler_calendars.company", "$KV.other.key"),
        *(f"{STREAM}.DELETE.ORDERS", f"{STREAM}.CREATE.OTHER", f"{STREAM}.UPDATE.OTHER", f"{STREAM}.PURGE.OTHER"),
        *(f"{STREAM}.MSG.GET.OTHER", f"{STREAM}.SNAPSHOT.ORDERS", f"{CONSUMER}.OTHER.mine"),
        "nats_scheduler.control.v1.schedules.pause",
    ],
    "calendars": [
        *("orders.due", "$KV.nats_scheduler.owner", f"{STREAM}.LIST", f"{STREAM}.INFO.ORDERS"),
        *(f"{STREAM}.{act}.KV_nats_scheduler_calendars" for act in ("DELETE", "PURGE")),
    ],
    "web": ["orders.due", "$JS.API.INFO", "nats_scheduler.control.v1.schedules.pause"],
    "shop": [
        *("$KV.nats_scheduler.stream.ORDERS", "$KV.nats_scheduler_calendars.company", f"{STREAM}.DELETE.ORDERS"),
        *(f"{CONSUMER}.KV_nats_scheduler.mine", "nats_scheduler.advisory.x", "nats_scheduler.v1.streams.list"),
        f"{INBOX}.x",
    ],
}
INBOXES = {"scheduler": INBOX, "calendars": "_INBOX.calendars", "web": "_INBOX.web", "shop": "_INBOX"}


async def test_a_page_whose_user_may_change_schedules_can(start_server: StartServer) -> None:
    """With `allow_control` the user of the sidecar has all that changes need, and a dry run promises no more."""
    alone, both = '{"allow": ["nats_scheduler.v1.>"]}', ["nats_scheduler.v1.>", f"{CONTROL_SUBJECTS}.schedules.*"]
    assert accounts().count(alone) == 1
    server = await start_server(V2_11, config=accounts().replace(alone, json.dumps({"allow": both})))
    settings = ConnectionSettings(servers=(url_of(server.url, "scheduler"),), inbox_prefix=INBOX)
    subject = "schedules.orders.1"
    async with (
        started_sidecar(settings, streams_folder=STREAMS, allow_control=True) as running,
        account_on(url_of(server.url, "web"), inbox_prefix="_INBOX.web") as page,
        account_on(url_of(server.url, "shop")) as shop,
    ):
        await running.ready("ORDERS")
        await shop.publish(subject, dict(far("orders.due")))
        for endpoint in ("fire", "edit", "pause", "resume", "remove"):
            for more in ({"dry_run": True}, {}):
                changed = await request(page.connection, endpoint, {"stream": "ORDERS", "subject": subject, **more})
                assert isinstance(changed, dict), (endpoint, changed)
        assert not running.told("permission_denied")


async def test_each_user_can_do_its_work_and_not_that_of_another(start_server: StartServer) -> None:
    """The sidecar makes its stream, fires in it, and lacks nothing; an application cannot be the sidecar."""
    server = await start_server(V2_11, config=accounts())
    settings = ConnectionSettings(servers=(url_of(server.url, "scheduler"),), inbox_prefix=INBOX)
    async with (
        started_sidecar(settings, streams_folder=STREAMS) as running,
        account_on(url_of(server.url, "shop")) as shop,
    ):
        await running.ready("ORDERS")
        schedule = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "orders.due", "Nats-Schedule-Rollup": "sub"}
        await shop.publish("schedules.orders.1", schedule)
        await eventually(lambda: len(running.of("ORDERS", FireStored)) >= 2)
        await shop.api.create_consumer("ORDERS", "mine", {"filter_subject": "orders.due", "ack_policy": "explicit"})
        await shop.api.call("STREAM.PURGE.ORDERS", {"filter": "schedules.orders.1"})
        assert not running.told("permission_denied")
    for user, subjects in DENIED.items():
        async with account_on(url_of(server.url, user), inbox_prefix=INBOXES[user]) as account:
            for subject in subjects:
                with pytest.raises(ForbiddenError):
                    await account.connection.request(subject, b"{}")


async def test_the_container_beside_the_server_serves_its_streams(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11, config=accounts())
    container = beside()
    port = free_port()
    here = {"NATS_URL": server.url, "NATS_SCHEDULER_METRICS_ADDRESS": HOST, "NATS_SCHEDULER_METRICS_PORT": str(port)}
    others = [one for one in container["env"] if one["name"] not in here]
    container["env"] = [*others, *({"name": name, "value": value} for name, value in here.items())]
    container["ports"] = [{"name": "metrics", "containerPort": port}]
    added = [one["value"] for one in nats_values("beside.yaml")["podTemplate"]["patch"]]
    volumes = [one for one in added if "image" not in one]
    files = {path.name: path.read_text("utf-8") for path in STREAMS.iterdir()}
    objects: Objects = {("ConfigMap", "scheduler-streams"): {"data": files}}
    with started(container, {"volumes": volumes}, objects, SECRETS, tmp_path) as process:
        await process.wait_for_line('"ORDERS".*stream_ready')
        await probed(container, "startup")
        await probed(container, "liveness")
        assert await process.terminate() == 0
    assert "permission" not in (process.stdout + process.stderr)


def rendered(*names: str, kubernetes: str = VERSIONS[-1]) -> tuple[str, Objects]:
    """Render the official chart with files of values."""
    files = [word for name in names for word in ("--values", str(NATS_VALUES / name))]
    code, text, err = helm("template", "nats", nats_chart(), "--kube-version", kubernetes, *files)
    assert code == 0, err
    return text, objects_of(text)


def pod(objects: Objects) -> dict[str, Any]:
    """Return the specification of the server's pods."""
    spec: dict[str, Any] = objects["StatefulSet", "nats"]["spec"]["template"]["spec"]
    return spec


@pytest.mark.server
@pytest.mark.parametrize("version", VERSIONS)
def test_the_official_chart_takes_the_values_and_kubernetes_the_objects(version: str, tmp_path: Path) -> None:
    text, objects = rendered("server.yaml", "beside.yaml", kubernetes=version)
    (tmp_path / "objects.yaml").write_text(text, "utf-8")
    code, said = kubeconform(tmp_path, version)
    assert code == 0, said
    assert f"Valid: {len(objects)}, Invalid: 0, Errors: 0, Skipped: 0" in said


@pytest.mark.server
def test_the_sidecar_is_in_the_pod_of_the_server_as_it_is_written() -> None:
    alone, both = pod(rendered("server.yaml")[1]), pod(rendered("server.yaml", "beside.yaml")[1])
    assert [one["name"] for one in both["containers"]] == [*(one["name"] for one in alone["containers"]), "scheduler"]
    assert both["containers"][-1] == beside()
    volumes = {one["name"] for one in both["volumes"]} | {"nats-js"}
    for container in both["containers"]:
        assert {one["name"] for one in container["volumeMounts"]} <= volumes
        assert container["securityContext"] == beside()["securityContext"]
    assert both["securityContext"]["runAsNonRoot"] is True
    assert both["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (both["enableServiceLinks"], both["automountServiceAccountToken"]) == (False, False)
    config = nats_values("server.yaml")["config"]["merge"]
    lame_duck = sum(int(config[f"lame_duck_{part}"].removesuffix("s")) for part in ("grace_period", "duration"))
    assert lame_duck < both["terminationGracePeriodSeconds"]


@pytest.mark.server
def test_a_server_takes_the_configuration_that_the_official_chart_makes_of_the_values(tmp_path: Path) -> None:
    _, objects = rendered("server.yaml")
    text = filled_in(objects["ConfigMap", "nats-config"]["data"]["nats.conf"]).replace("$SERVER_NAME", "nats-0")
    text = text.replace("/var/run/nats", str(tmp_path)).replace('"/data"', json.dumps(str(tmp_path)))
    assert "$" not in re.sub(r'"\$(JS|KV|SRV)\.[^"]*"', "", text), "each variable has a value"
    file = tmp_path / "nats.conf"
    file.write_text(text, "utf-8")
    command = [str(server_binary(V2_11)), "--config", str(file), "-t"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30.0, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.server
def test_the_users_arrive_in_the_configuration_as_they_are_written() -> None:
    text = rendered("server.yaml")[1]["ConfigMap", "nats-config"]["data"]["nats.conf"]
    before, _, _ = text.partition(',\n  "http_port"')
    written = json.loads(re.sub(r": (\$\w+)", r': "\1"', before) + "}")
    assert {one["user"]: one["permissions"] for one in written["accounts"]["SHOP"]["users"]} == users()
    passwords = {one["password"].removeprefix("$") for one in written["accounts"]["SHOP"]["users"]}
    assert passwords == set(variables())
