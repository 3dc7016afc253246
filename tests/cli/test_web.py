"""`nats-scheduler web`: what it needs, and what it refuses, before anything is served."""

import sys
from pathlib import Path

import pytest

from tests.cli.prompt import Cli
from tests.harness.processes import sidecar


def test_without_the_extra_one_sentence_names_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = cli("web")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the status page needs jinja2: pip install '.[web]' in a clone" in result.stderr


def test_a_short_token_is_refused_and_not_printed(cli: Cli) -> None:
    result = cli("web", "--no-context", "--web-token", "hunter2")
    assert result.exit_code == 2
    assert "at least 20 characters" in result.stderr.lower()
    assert "hunter2" not in result.stderr


@pytest.mark.server
@pytest.mark.deep
async def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    with sidecar("web", "--web-port", "0", "--server", "nats://127.0.0.1:1", folder=tmp_path) as process:
        await process.wait_for_line("connect_failed")
        assert await process.interrupt() == 0
