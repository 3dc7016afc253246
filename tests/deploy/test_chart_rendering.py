"""The output of the chart: objects that Kubernetes knows and that fit each other, pods without rights, no secrets."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from nats_scheduler.settings.load import load_settings
from tests.deploy.files import CHART, DEPLOY, VOLUME, beside, image_variables
from tests.deploy.rendering import (
    COMPANY,
    NAME,
    NAMESPACE,
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
from tests.deploy.running import HOME
from tests.harness.kubernetes import VERSIONS, helm, kubeconform

pytestmark = pytest.mark.server

HANDOVER_SECONDS = 3
"""The time that a sidecar that drains may take besides `drain_timeout`."""

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
    count = sum(len(rendered_set(name)) for name in SETS)
    assert f"Valid: {count}, Invalid: 0, Errors: 0, Skipped: 0" in said


def test_what_kubernetes_does_not_know_would_be_seen(tmp_path: Path) -> None:
    for kind in ("Deployment", "ServiceMonitor"):
        one = of_kind(rendered_set("everything"), kind)[0]
        file = tmp_path / f"{kind}.yaml"
        file.write_text(yaml.safe_dump({**one, "spec": {**one["spec"], "replica": 2}}), "utf-8")
        code, said = kubeconform(file, VERSIONS[-1])
        assert (code, "replica" in said) == (1, True), said


def test_helm_refuses_a_kubernetes_that_is_too_old_and_what_the_schema_refuses() -> None:
    code, _, err = template({}, kubernetes="1.26.0")
    assert (code, "requires kubeVersion" in err) == (1, True)
    code, _, err = template({"replica": 3})
    assert (code, "additional propert" in err.lower()) == (1, True), err


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


@each_set
def test_the_probes_ask_the_pages_and_leave_time_to_drain(name: str) -> None:
    pod = pod_of(rendered_set(name), "sidecar")
    (container,) = pod["containers"]
    asked = {probe: container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
    assert [asked[probe]["path"] for probe in asked] == ["/healthz", "/healthz", "/readyz"]
    assert {one["port"] for one in asked.values()} <= {port["name"] for port in container["ports"]}
    liveness = container["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 30, "healthz: half a minute"
    drain = SETS[name].get("drainSeconds", 10)
    assert pod["terminationGracePeriodSeconds"] > drain + HANDOVER_SECONDS
    assert settings(rendered_set(name))["drain_timeout"] == f"{drain}s"


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


@each_set
def test_each_sidecar_has_a_folder_that_outlives_its_container_and_no_other_pod_has_one(name: str) -> None:
    objects = rendered_set(name)
    size = SETS[name].get("data", {}).get("size", "4Gi")
    volumes = {
        starter: [one for one in pod["volumes"] if one["name"] == "data"] for starter, pod in pods(objects).items()
    }
    (sidecar,) = [one for one, found in volumes.items() if found]
    (container,) = pods(objects)[sidecar]["containers"]
    assert {"name": "data", "mountPath": VOLUME} in container["volumeMounts"]
    if name != "kept":
        assert volumes[sidecar] == [{"name": "data", "emptyDir": {"sizeLimit": size}}]
        assert of_kind(objects, "StatefulSet") == []


def test_a_claim_of_its_own_outlives_the_pod_of_a_sidecar_and_goes_with_the_release() -> None:
    objects = rendered_set("kept")
    (spec,) = [one["spec"] for one in of_kind(objects, "StatefulSet")]
    assert of_kind(objects, "Deployment") == []
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "data"
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "fast",
    }
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Delete"}
    assert (spec["replicas"], spec["podManagementPolicy"]) == (3, "Parallel")
    service = objects["Service", spec["serviceName"]]["spec"]
    assert service["clusterIP"] == "None"
    assert service["selector"] == spec["selector"]["matchLabels"]
    assert "strategy" not in spec
    (by_default,) = of_kind(rendered({"data": {"persistent": True}}), "StatefulSet")
    assert "storageClassName" not in by_default["spec"]["volumeClaimTemplates"][0]["spec"]


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


def test_streams_and_calendars_arrive_as_they_were_written() -> None:
    objects = rendered_set("everything")
    streams = objects["ConfigMap", f"{NAME}-streams"]["data"]
    assert json.loads(streams["ORDERS.json"]) == ORDERS
    assert json.loads(streams["JOBS.json"]) == {"name": "JOBS", "subjects": ["jobs.>"], "retention": "workqueue"}
    assert objects["ConfigMap", f"{NAME}-calendars"]["data"]["company.txt"] == COMPANY


def test_a_change_of_settings_or_streams_rolls_the_pods_and_nothing_else_does() -> None:
    def annotations(values: Values) -> Any:
        return rendered(values)["Deployment", NAME]["spec"]["template"]["metadata"]["annotations"]

    before = annotations({})
    assert annotations({"replicas": 3, "serviceMonitor": {"enabled": True}}) == before
    assert annotations({"settings": {"window": 8}}) != before
    assert annotations({"streams": {"ORDERS": ORDERS}}) != before


def test_a_job_that_writes_calendars_is_never_changed_and_another_follows() -> None:
    def job(values: Values) -> dict[str, Any]:
        return of_kind(rendered({"calendars": {"days": {"company": COMPANY}}, **values}), "Job")[0]

    jobs = [
        job(over) for over in ({}, {"image": {"tag": "9"}}, {"nats": {"servers": ["nats://other"]}}, {"replicas": 5})
    ]
    assert jobs[0] == jobs[3]
    assert len({one["metadata"]["name"] for one in jobs}) == 3


def test_only_nats_and_dns_are_reached_and_only_what_is_served() -> None:
    objects = rendered_set("everything")
    policies = {
        name.removeprefix(f"{NAME}-"): one["spec"] for (kind, name), one in objects.items() if kind == "NetworkPolicy"
    }
    wanted = SETS["everything"]["networkPolicy"]
    assert set(policies) == {"sidecar", "web", "calendars"}
    for spec in policies.values():
        dns, nats = spec["egress"]
        assert dns == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
        assert nats["ports"] == [{"port": 4222, "protocol": "TCP"}, {"port": 4333, "protocol": "TCP"}]
        assert nats["to"] == wanted["natsPeers"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert policies["sidecar"]["ingress"] == [
        {"ports": [{"port": "metrics", "protocol": "TCP"}], "from": wanted["metricsPeers"]}
    ]
    assert policies["web"]["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}], "from": wanted["webPeers"]}]
    assert "ingress" not in policies["calendars"]


def test_instances_are_kept_apart_and_a_roll_out_has_room() -> None:
    preferred, required = (rendered_set(name) for name in ("defaults", "apart"))
    for objects, when, rolling in (
        (preferred, "preferred", {"maxSurge": 1, "maxUnavailable": 0}),
        (required, "required", {"maxSurge": 0, "maxUnavailable": 1}),
    ):
        (term,) = pod_of(objects, "sidecar")["affinity"]["podAntiAffinity"][
            f"{when}DuringSchedulingIgnoredDuringExecution"
        ]
        term = term.get("podAffinityTerm", term)
        (deployment,) = [one for one in of_kind(objects, "Deployment") if not one["metadata"]["name"].endswith("-web")]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"] == deployment["spec"]["selector"]
        assert deployment["spec"]["strategy"] == {"rollingUpdate": rolling}
    (zones,) = pod_of(preferred, "sidecar")["topologySpreadConstraints"]
    assert zones["labelSelector"] == preferred["Deployment", NAME]["spec"]["selector"]
    assert pod_of(rendered_set("bare"), "sidecar")["affinity"] == SETS["bare"]["affinity"]


def test_each_pod_is_scraped_and_a_job_is_one_release() -> None:
    objects = rendered_set("everything")
    monitor = objects["ServiceMonitor", NAME]
    service = objects["Service", f"{NAME}-metrics"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["publishNotReadyAddresses"] is True
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["relabelings"][0]["replacement"] == f"{NAMESPACE}/{NAME}"
    (container,) = pod_of(objects, "sidecar")["containers"]
    assert container["name"] == beside()["name"], "by which a Prometheus without the operator finds it"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


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
