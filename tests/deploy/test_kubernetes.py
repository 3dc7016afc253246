"""The Kubernetes example: objects that fit each other, containers without rights, secrets by reference only."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nats_scheduler.engine.events import FireStored
from nats_scheduler.jetstream.errors import NotPermittedError
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import StartServer
from tests.deploy.files import EVERY_ADDRESS, KUBERNETES, STREAMS, containers, manifests, rests
from tests.harness.account import WAIT_SECONDS, account_on, started_sidecar
from tests.harness.servers import V2_11, server_binary
from tests.harness.waiting import eventually

NAMES = ("nats", "scheduler")


def pod() -> dict[str, Any]:
    """Give the pod's template."""
    spec: dict[str, Any] = manifests()["StatefulSet", "nats"]["spec"]["template"]["spec"]
    return spec


def server_config() -> str:
    """Give the server's configuration."""
    return str(manifests()["ConfigMap", "nats-config"]["data"]["nats.conf"])


def test_every_file_is_listed() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in KUBERNETES.iterdir()}


@pytest.mark.server
def test_kubectl_puts_the_objects_together() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl to put the kustomization together with")
    answer = subprocess.run(
        [kubectl, "kustomize", str(KUBERNETES)], capture_output=True, text=True, timeout=60.0, check=False
    )
    assert answer.returncode == 0, answer.stderr
    objects = list(yaml.safe_load_all(answer.stdout))
    assert {(one["kind"], one["metadata"]["name"]) for one in objects} == set(manifests())


@pytest.mark.parametrize("name", NAMES)
def test_a_container_meets_the_restricted_standard(name: str) -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert containers()[name]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert ":" in containers()[name]["image"]
    assert containers()[name]["resources"]["requests"]
    assert containers()[name]["livenessProbe"]


def test_the_pod_asks_kubernetes_for_nothing() -> None:
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["enableServiceLinks"] is False


SECRETS = {
    "nats": {"NATS_SCHEDULER_PASSWORD": "nats-scheduler-user", "SHOP_PASSWORD": "nats-shop-user"},
    "scheduler": {"NATS_PASSWORD": "nats-scheduler-user"},
}
"""Which container is given which secret: the sidecar knows its own and no other."""


@pytest.mark.parametrize("name", NAMES)
def test_secrets_are_references_and_the_sidecar_has_only_its_own(name: str) -> None:
    given = {one["name"]: one["valueFrom"] for one in containers()[name]["env"] if "valueFrom" in one}
    given.pop("POD_NAME", None)
    assert {variable: one["secretKeyRef"]["name"] for variable, one in given.items()} == SECRETS[name]
    assert "Secret" not in {kind for kind, _ in manifests()}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_mounted_exists(name: str) -> None:
    claims = manifests()["StatefulSet", "nats"]["spec"]["volumeClaimTemplates"]
    volumes = {one["name"] for one in pod()["volumes"]} | {one["metadata"]["name"] for one in claims}
    assert {one["name"] for one in containers()[name]["volumeMounts"]} <= volumes
    for volume in pod()["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in manifests()


def test_services_find_the_pod_and_its_ports() -> None:
    labels = manifests()["StatefulSet", "nats"]["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"] for container in containers().values() for port in container["ports"]}
    services = [one for (kind, _), one in manifests().items() if kind == "Service"]
    assert len(services) == 2
    for service in services:
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_the_sidecar_is_checked_as_its_image_says_and_never_for_readiness() -> None:
    sidecar = containers()["scheduler"]
    check = sidecar["livenessProbe"]["exec"]["command"]
    assert json.dumps(check) in rests("HEALTHCHECK")[-1]
    assert sidecar["startupProbe"]["exec"]["command"] == check
    assert "readinessProbe" not in sidecar


def test_the_sidecar_gets_the_stream_of_the_example() -> None:
    given = json.loads(manifests()["ConfigMap", "nats-scheduler-streams"]["data"]["orders.json"])
    assert given == json.loads((STREAMS / "orders.json").read_text("utf-8"))
    (mount,) = containers()["scheduler"]["volumeMounts"]
    folder = next(one for one in containers()["scheduler"]["env"] if one["name"].endswith("STREAMS_FOLDER"))
    assert folder["value"] == mount["mountPath"]


@pytest.mark.server
def test_the_server_understands_its_configuration(tmp_path: Path) -> None:
    text = server_config()
    settings = tmp_path / "nats.conf"
    settings.write_text(text.replace("/data", str(tmp_path)).replace("/var/run/nats", str(tmp_path)))
    variables = {"POD_NAME": "nats-0", "NATS_SCHEDULER_PASSWORD": "pa55", "SHOP_PASSWORD": "pa56"}
    answer = subprocess.run(
        [server_binary(V2_11), "--config", settings, "-t"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=10.0,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_metrics_are_served_where_the_service_looks_for_them() -> None:
    given = {one["name"]: one.get("value") for one in containers()["scheduler"]["env"]}
    (port,) = containers()["scheduler"]["ports"]
    assert given["NATS_SCHEDULER_METRICS_ADDRESS"] == EVERY_ADDRESS
    assert given["NATS_SCHEDULER_METRICS_PORT"] == str(port["containerPort"])


def test_the_sidecar_logs_in_as_the_user_that_the_server_knows_for_it() -> None:
    given = {one["name"]: one.get("value") for one in containers()["scheduler"]["env"]}
    assert given["NATS_USER"] == "scheduler"
    assert f'"{given["NATS_SCHEDULER_CONNECTION_INBOX_PREFIX"]}.>"' in server_config()


def accounts() -> str:
    """Give the part of the server's configuration that says who may do what, with passwords."""
    text = server_config()
    text = text[text.index("accounts {") :]
    return text.replace("$NATS_SCHEDULER_PASSWORD", "pa55").replace("$SHOP_PASSWORD", "pa56")


async def test_both_users_can_do_their_work_and_not_each_others(start_server: StartServer) -> None:
    """The sidecar makes the example's stream, fires in it, and lacks nothing; an application cannot be the sidecar."""
    server = await start_server(V2_11, config=accounts())
    as_scheduler = server.url.replace("nats://", "nats://scheduler:pa55@")
    settings = ConnectionSettings(servers=(as_scheduler,), inbox_prefix="_INBOX_nats_scheduler")
    async with (
        started_sidecar(settings, streams_folder=STREAMS) as running,
        account_on(server.url.replace("nats://", "nats://shop:pa56@")) as shop,
    ):
        await running.ready("ORDERS")
        schedule = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "orders.due", "Nats-Schedule-Rollup": "sub"}
        await shop.publish("schedules.orders.1", schedule)
        await shop.wait_for("ORDERS", "orders.due")
        await eventually(lambda: len(running.of("ORDERS", FireStored)) >= 2, within_seconds=WAIT_SECONDS)
        await shop.api.create_consumer("ORDERS", "mine", {"filter_subject": "orders.due", "ack_policy": "explicit"})
        await shop.api.call("STREAM.PURGE.ORDERS", {"filter": "schedules.orders.1"})
        for subject in (
            "$KV.nats_scheduler.stream.ORDERS",
            "$JS.API.STREAM.DELETE.ORDERS",
            "nats_scheduler.advisory.x",
        ):
            with pytest.raises(NotPermittedError):
                await shop.connection.request(subject, b"{}")
        with pytest.raises(NotPermittedError):
            await shop.api.create_consumer("KV_nats_scheduler", "theirs", {})
        assert not running.told("permission_denied")
