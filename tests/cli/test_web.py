"""`nats-scheduler web`: what it needs, and what it refuses, before anything is served."""

import sys

import pytest
from click.testing import CliRunner

from nats_scheduler.cli.main import main


def test_without_the_extra_one_sentence_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = CliRunner().invoke(main, ["web"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the status page needs jinja2: pip install 'nats-scheduler[web]'" in result.stderr


def test_an_address_for_others_needs_a_token() -> None:
    result = CliRunner().invoke(main, ["web", "--no-context", "--web-address", "::"])
    assert result.exit_code == 2
    assert "web_address of :: is not loopback: expected web_token or web_token_file to be set too" in result.stderr


def test_a_short_token_is_refused_and_not_printed() -> None:
    result = CliRunner().invoke(main, ["web", "--no-context", "--web-token", "hunter2"])
    assert result.exit_code == 2
    assert "at least 20 characters" in result.stderr.lower()
    assert "hunter2" not in result.stderr


def test_run_has_no_flags_of_the_page() -> None:
    assert "--web-port" in CliRunner().invoke(main, ["web", "--help"]).stdout
    for command in ("run", "dev"):
        assert "--web-" not in CliRunner().invoke(main, [command, "--help"]).stdout
