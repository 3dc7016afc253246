"""The real Prometheus and its promtool, for tests of what is written for them.

The rule: both are found on the path (the Debian package is called prometheus), and where they are not, the test is
skipped with that reason. A Prometheus that is started listens on loopback, keeps its data in the test's folder, and is
gone when its `with` block ends.
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from nats_scheduler.runtime.embedded import HOST, free_port
from tests.harness.processes import ChildProcess
from tests.harness.waiting import eventually

TOOL_SECONDS = 120.0
"""Longest run of promtool."""
ANSWER_SECONDS = 30.0
"""Longest wait for one answer of Prometheus."""
START_SECONDS = 60.0
"""Longest wait until it answers at all."""


def program(name: str) -> str:
    """Return the path of a program of Prometheus; skips the test where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on the path; the Debian package prometheus has it")
    return found


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Run promtool, and return its exit code and all that it printed."""
    answer = subprocess.run(
        [program("promtool"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    return answer.returncode, answer.stdout + answer.stderr


def parse_faults(expressions: Sequence[str], folder: Path) -> str:
    """Return what promtool says against some expressions in PromQL, empty if it can parse them all."""
    rules = [{"record": f"expression:{number}", "expr": expr} for number, expr in enumerate(expressions)]
    file = folder / "expressions.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "expressions", "rules": rules}]}), "utf-8")
    code, said = promtool("check", "rules", file)
    return "" if code == 0 else said


class Prometheus:
    """A Prometheus of its own."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Prepare to run it with a configuration; `folder` gets that and its data."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(dict(config)), "utf-8")
        self.url = f"http://{HOST}:{free_port()}"
        command = [program("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
        listens = f"--web.listen-address={self.url.removeprefix('http://')}"
        self._process = ChildProcess([*command, listens, "--log.level=warn"], folder, name="prometheus")

    async def __aenter__(self) -> Self:
        await eventually(self._is_ready, within_seconds=START_SECONDS, describe=lambda: self._process.stderr)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()

    async def query(self, expr: str) -> list[Any]:
        """Return the series of an instant query; raises AssertionError where Prometheus refuses it."""
        status, answer = await self._get(f"/api/v1/query?{urlencode({'query': expr})}")
        assert status == 200, (expr, answer)
        result: list[Any] = json.loads(answer)["data"]["result"]
        return result

    async def get(self, path: str) -> Any:
        """Return the data of another answer of its API."""
        status, answer = await self._get(path)
        assert status == 200, (path, answer)
        return json.loads(answer)["data"]

    async def _is_ready(self) -> bool:
        if self._process.exit_code is not None:
            raise RuntimeError(f"Prometheus ended: {self._process.stderr}")
        status, _answer = await self._get("/-/ready")
        return status == 200

    async def _get(self, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(_answer_of, f"{self.url}{path}")


def _answer_of(url: str) -> tuple[int, str]:
    """Return the status and the text of an answer, 0 where nothing listens."""
    try:
        with urlopen(url, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - an address of ours on loopback
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
    except URLError:
        return 0, ""
