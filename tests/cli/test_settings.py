"""`nats-scheduler settings`: the settings in force, without their secrets."""

from __future__ import annotations

import json
from pathlib import Path

from nats_scheduler.settings.fields import setting_fields
from tests.cli.prompt import Cli

HIDDEN = "hunter2"


def test_show_names_every_setting_with_value_and_origin(cli: Cli) -> None:
    shown = cli("settings", "show", "-s", "n1,n2", "--tlsfirst", "--window", "8", env={"NATS_TIMEOUT": "1s"})
    assert shown.exit_code == 0
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert rows[0] == ["setting", "value", "source"]
    assert [row[0] for row in rows[1:-1]] == list(setting_fields())
    assert ["connection.servers", "nats://n1:4222,", "nats://n2:4222", "--server"] in rows
    assert " ".join(rows[-1]).startswith(f"{len(setting_fields())} in all: 4 given")
    assert ["connection.tls_first", "true", "--tlsfirst"] in rows
    assert ["connection.request_timeout", "1s", "$NATS_TIMEOUT"] in rows
    assert ["window", "8", "--window"] in rows
    assert ["metrics_port", "-", "default"] in rows


def test_show_prints_no_secret(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"connection": {"token": HIDDEN}}))
    env = {
        "NATS_URL": f"nats://bob:{HIDDEN}@n1",
        "NATS_USER": "bob",
        "NATS_PASSWORD": HIDDEN,
        "NATS_SCHEDULER_SETTINGS": str(file),
    }
    for arguments in (["settings", "show"], ["settings", "show", "--json"]):
        shown = cli(*arguments, env=env)
        assert shown.exit_code == 0
        assert HIDDEN not in shown.output
        assert "$NATS_PASSWORD" in shown.output
        assert "nats://bob:***@n1:4222" in shown.output
