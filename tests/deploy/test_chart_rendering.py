"""The output of the chart: objects that Kubernetes knows and that fit each other, pods without rights, no secrets."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from nats_scheduler.settings.load import load_settings
from tests.deploy.files import CHART, DEPLOY, VOLUME, image_variables
from tests.deploy.rendering import (
    NAME,
    ORDERS,
    SETS,
    STARTS_PODS,
    Objects,
    Values,
    pod_of,
    pods,
    rendered,
    rendered_set,
    template,
)
from tests.harness.deploy_tools import OF_THE_OPERATOR, VERSIONS, helm, kubeconform

pytestmark = pytest.mark.server

HOME = "/etc/nats-scheduler"
"""Where a container has its files."""

each_set = pytest.mark.parametrize("name", SETS)


def of_kind(objects: Objects, kind: str) -> list[dict[str, Any]]:
    """Return the objects of a kind."""
    return [one for (found, _), one in objects.items() if found == kind]


@each_set
def test_helm_has_nothing_against_it(name: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(SETS[name]), "utf-8")
    code, out, err = helm("lint", "--strict", "--kube-version", VERSIONS[-1], "--values", file, CHART)
    assert code == 0, out + err


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_of_kubernetes_knows_all_that_is_in_the_objects(version: str, tmp_path: Path) -> None:
    """All sets in one run of kubeconform, which takes seconds to read the schemas."""
    for name, values in SETS.items():
        code, text, err = template(values, kubernetes=version)
        assert code == 0, err
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
    code, said = kubeconform(tmp_path, version)
    assert code == 0, said
    count = sum(kind not in OF_THE_OPERATOR.split(",") for name in SETS for kind, _ in rendered_set(name))
    assert f"Valid: {count}, Invalid: 0, Errors: 0" in said


@each_set
def test_all_pods_meet_the_restricted_standard_and_ask_kubernetes_for_nothing(name: str) -> None:
    objects = rendered_set(name)
    made = {found for kind, found in objects if kind == "ConfigMap"} | {"streams-of-the-shop", "bundle"}
    assert pods(objects)
    assert all(len(found) <= 63 for _, found in objects), "names fit"
    for pod in pods(objects).values():
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["securityContext"].get("runAsUser") == SETS[name].get("runAsUser", 10001)
        assert {one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one} <= made
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"]
            assert "cpu" not in container["resources"]["limits"], "a throttled burst is a late burst"
            assert set(image_variables()) <= {one["name"] for one in container["env"]}, "all that the image sets"
            assert {one["name"] for one in container["volumeMounts"] if not one.get("readOnly")} <= {"data"}
            assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}


@each_set
def test_secrets_are_references_and_each_component_has_its_own(name: str) -> None:
    """Those of its user and its token; the certificate of the authority is for all."""
    assert of_kind(rendered_set(name), "Secret") == []
    users: list[set[str]] = []
    for pod in pods(rendered_set(name)).values():
        given = [one["valueFrom"]["secretKeyRef"] for c in pod["containers"] for one in c["env"] if "valueFrom" in one]
        mounted = [one["secret"] for one in pod["volumes"] if "secret" in one and one["name"] != "ca"]
        users.append({one["name"] for one in given} | {one["secretName"] for one in mounted})
    assert all(not one & other for index, one in enumerate(users) for other in users[:index])


@each_set
def test_whatever_selects_pods_selects_those_of_one_component(name: str) -> None:
    objects = rendered_set(name)
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for kind in STARTS_PODS
        for one in of_kind(objects, kind)
    }
    for kind in ("Deployment", "StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"):
        for one in of_kind(objects, kind):
            selector = one["spec"].get("selector") or one["spec"]["podSelector"]
            wanted = selector.get("matchLabels", selector)
            selected = {owner for owner, given in labels.items() if wanted.items() <= given.items()}
            assert len(selected) == 1, (kind, one["metadata"]["name"], selected)


def settings(objects: Objects, component: str = "sidecar") -> dict[str, Any]:
    """Return the settings file of a component."""
    volumes = {one["name"]: one for one in pod_of(objects, component)["volumes"]}
    read = json.loads(objects["ConfigMap", volumes["settings"]["configMap"]["name"]]["data"]["settings.json"])
    return dict(read)


@each_set
def test_the_program_takes_the_settings(name: str, tmp_path: Path) -> None:
    """As it reads them: the file, the files that it names, and the variables of a container over those of the image."""
    objects, values = rendered_set(name), SETS[name]
    workloads = [one for kind in STARTS_PODS for one in of_kind(objects, kind)]
    for component in {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in workloads}:
        pod = pod_of(objects, component)
        mount_empty(pod, tmp_path / component)
        file = tmp_path / component / "settings.json"
        file.write_text(json.dumps(settings(objects, component)).replace(HOME, str(tmp_path / component)), "utf-8")
        variables = [one for container in pod["containers"] for one in container["env"]]
        given = {one["name"]: one.get("value", "from a Secret") for one in variables}
        read = load_settings({"no_context": True}, {**image_variables(), **given}, file)
        servers = values.get("nats", {}).get("servers", ["nats://nats:4222"])
        assert [urlsplit(one).hostname for one in read.connection.servers] == [
            urlsplit(one).hostname for one in servers
        ]
        assert read.log_format == values.get("settings", {}).get("log_format", "json")
        assert read.metrics_port == 9464
        assert str(read.data).startswith(f"{VOLUME}/"), "also where the volume is not mounted"


def mount_empty(pod: dict[str, Any], folder: Path) -> None:
    """Make the folders that are mounted, and the files in them that are named, without content."""
    volumes = {one["name"]: one.get("secret") or one.get("configMap") for one in pod["volumes"]}
    for mount in pod["containers"][0]["volumeMounts"]:
        if volumes[mount["name"]] is None:
            continue
        place = Path(mount["mountPath"].replace(HOME, str(folder)))
        place.mkdir(parents=True)
        for item in volumes[mount["name"]].get("items", ()):
            (place / item["path"]).touch()


def test_a_change_of_settings_or_streams_rolls_the_pods_and_nothing_else_does() -> None:
    def annotations(values: Values) -> Any:
        return rendered(values)["Deployment", NAME]["spec"]["template"]["metadata"]["annotations"]

    before = annotations({})
    assert annotations({"replicas": 3, "serviceMonitor": {"enabled": True}}) == before
    assert annotations({"settings": {"window": 8}}) != before
    assert annotations({"streams": {"ORDERS": ORDERS}}) != before


def test_the_rules_and_the_dashboard_are_those_of_monitoring(tmp_path: Path) -> None:
    """Also in the chart as it is packed, which has no links."""
    code, _, err = helm("package", CHART, "--destination", tmp_path)
    assert code == 0, err
    (packed,) = tmp_path.glob("*.tgz")
    for source in (CHART, packed):
        switched = ["--set", "prometheusRule.enabled=true", "--set", "dashboard.enabled=true"]
        code, text, err = helm("template", "x", source, "--kube-version", VERSIONS[-1], *switched)
        assert code == 0, err
        objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}
        rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8"))
        assert objects["PrometheusRule", "x-nats-scheduler"]["spec"] == rules
        board = objects["ConfigMap", "x-nats-scheduler-dashboard"]["data"]["nats-scheduler.json"]
        assert board == (DEPLOY / "grafana" / "nats-scheduler.json").read_text("utf-8")
