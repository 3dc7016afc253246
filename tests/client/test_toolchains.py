"""A tool without a registry skips a test; a program or a lock file with a mistake fails it."""

import json
import shutil
from pathlib import Path

import pytest

from tests.harness.toolchains import PROGRAMS, found, go_binary, npm_packages

pytestmark = [pytest.mark.server, pytest.mark.deep]

NOWHERE = "http://127.0.0.1:1"
CLOSED = {"npm_config_registry": NOWHERE, "npm_config_fetch_retries": "0", "GOPROXY": NOWHERE}


def copy_of(folder: str, tmp_path: Path) -> Path:
    """Copy an example, for a test that damages it."""
    return Path(shutil.copytree(PROGRAMS / folder, tmp_path / folder))


def test_a_registry_that_does_not_answer_skips_what_needs_npm(tmp_path: Path) -> None:
    found("npm")
    with pytest.raises(pytest.skip.Exception, match=r"^npm cannot fetch .*ECONNREFUSED"):
        npm_packages(PROGRAMS / "nats-js", CLOSED, tmp_path / "cache")


def test_a_registry_that_does_not_answer_skips_what_needs_go(tmp_path: Path) -> None:
    found("go")
    with pytest.raises(pytest.skip.Exception, match=r"^go cannot fetch .*(connection refused|go version|requires go)"):
        go_binary(PROGRAMS / "nats-go", CLOSED, tmp_path / "cache")


def test_a_go_that_is_too_old_skips_what_needs_it(tmp_path: Path) -> None:
    found("go")
    source = copy_of("nats-go", tmp_path)
    module = (source / "go.mod").read_text("utf-8")
    (source / "go.mod").write_text(module.replace("go 1.26.0", "go 9.99.0"), "utf-8")
    with pytest.raises(pytest.skip.Exception, match=r"requires go >= 9\.99\.0|invalid go version"):
        go_binary(source)


def test_a_tool_that_is_not_there_skips_what_needs_it() -> None:
    with pytest.raises(pytest.skip.Exception, match="no such-a-tool on the path"):
        found("such-a-tool")


def test_a_lock_file_that_does_not_fit_fails(tmp_path: Path) -> None:
    source = copy_of("nats-js", tmp_path)
    package = json.loads((source / "package.json").read_text("utf-8"))
    package["dependencies"]["@nats-io/jetstream"] = "3.3.1"
    (source / "package.json").write_text(json.dumps(package), "utf-8")
    with pytest.raises(AssertionError, match="EUSAGE"):
        npm_packages(source, cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("file", "text", "instead", "reason"),
    [
        ("main.go", "jetstream.New(nc)", "jetstream.Old(nc)", "undefined: jetstream.Old"),
        ("go.sum", "h1:", "h1:A", "malformed go.sum|checksum mismatch|missing go.sum entry"),
    ],
)
def test_a_go_program_with_a_mistake_fails(tmp_path: Path, file: str, text: str, instead: str, reason: str) -> None:
    source = copy_of("nats-go", tmp_path)
    sources = (source / file).read_text("utf-8")
    (source / file).write_text(sources.replace(text, instead), "utf-8")
    with pytest.raises(AssertionError, match=reason):
        go_binary(source)
