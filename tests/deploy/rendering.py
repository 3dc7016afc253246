"""The chart, rendered by helm with sets of values that switch on what it has.

Its rule: a set is what an operator would write, and all sets together switch on each part of the chart.
Cost: a tenth of a second for each rendering; what is rendered twice in a run is kept.
"""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.files import CHART, STREAMS
from tests.harness.deploy_tools import VERSIONS, helm

RELEASE = "reminders"
NAMESPACE = "shop"
NAME = f"{RELEASE}-nats-scheduler"

Values = dict[str, Any]
Objects = dict[tuple[str, str], dict[str, Any]]

ORDERS = json.loads((STREAMS / "orders.json").read_text("utf-8"))
COMPANY = "# the office is closed\n2026-12-24\n2026-12-27..2027-01-01\n"

SETS: dict[str, Values] = {
    "defaults": {},
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
        "podAnnotations": {"example.com/owner": "orders"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "high",
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
    "apart": {
        "image": {"digest": "sha256:" + "0" * 64},
        "fullnameOverride": "scheduler-of-the-orders-of-a-shop-with-a-very-long-name",
        "replicas": 3,
        "nats": {"tls": {"ca": {"configMapName": "bundle"}}},
        "auth": {"method": "token"},
        "existingStreamsConfigMap": "streams-of-the-shop",
        "calendars": {
            "days": {"company": COMPANY},
            "auth": {"method": "none", "clientCertificate": {"secretName": "c"}},
        },
        "antiAffinity": "required",
        "topologySpreadConstraints": [],
        "podDisruptionBudget": {"maxUnavailable": "34%"},
        "web": {"enabled": True},
    },
    "kept": {
        "replicas": 3,
        "data": {"size": "10Gi", "persistent": True, "storageClassName": "fast"},
    },
    "bare": {
        "auth": {"method": "none"},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "serviceAccount": {"create": False},
        "antiAffinity": "none",
        "affinity": {"nodeAffinity": {}},
        "runAsUser": None,
    },
}


def template(values: Values, *arguments: str, kubernetes: str = VERSIONS[-1]) -> tuple[int, str, str]:
    """Render the chart; returns helm's exit code, the text of all objects, and what it reported."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        yaml.safe_dump(values, file)
        file.flush()
        where = ["--namespace", NAMESPACE, "--kube-version", kubernetes]
        return helm("template", RELEASE, CHART, "--values", Path(file.name), *where, *arguments)


def objects_of(text: str) -> Objects:
    """Return the objects of a text, by kind and name."""
    read = [one for one in yaml.safe_load_all(text) if one]
    found = {(one["kind"], one["metadata"]["name"]): one for one in read}
    assert len(found) == len(read), "no two objects of a kind have one name"
    return found


def rendered(values: Values, *arguments: str) -> Objects:
    """Return the objects that the chart makes of values."""
    code, out, err = template(values, *arguments)
    assert code == 0, err
    return objects_of(out)


@cache
def rendered_set(name: str) -> Objects:
    """Return the objects of a set."""
    return rendered(SETS[name])


STARTS_PODS = ("Deployment", "StatefulSet", "Job")
"""The kinds of what starts pods."""


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    """Return the specifications of all pods, by the name of what starts them; claims are volumes, as in a pod."""
    return {name: _pod(one) for (kind, name), one in objects.items() if kind in STARTS_PODS}


def _pod(starter: dict[str, Any]) -> dict[str, Any]:
    spec = starter["spec"]["template"]["spec"]
    names = [one["metadata"]["name"] for one in starter["spec"].get("volumeClaimTemplates", ())]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}} for name in names]
    return {**spec, "volumes": [*spec["volumes"], *claims]}


def pod_of(objects: Objects, component: str) -> dict[str, Any]:
    """Return the specification of the pods of one component."""
    (found,) = [
        _pod(one)
        for (kind, _), one in objects.items()
        if kind in STARTS_PODS and one["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]
    return found
