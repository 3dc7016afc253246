"""Contexts of the nats CLI: they are found where the CLI saves them, and every field is used or reported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.settings.contexts import load_context
from nats_scheduler.settings.load import load_settings, resolve_settings
from nats_scheduler.settings.problems import SettingsError

HIDDEN = "hunter2"
NATS_CLI = os.environ.get("NATS_CLI") or shutil.which("nats")


def save(home: Path, name: str, *, select: bool = False, **fields: object) -> dict[str, str]:
    """Write a context as the CLI does and return an environment in which it is found."""
    folder = home / "nats" / "context"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"description": "", "url": "", **fields}))
    if select:
        (home / "nats" / "context.txt").write_text(name + "\n")
    return {"XDG_CONFIG_HOME": str(home)}


def servers(flags: dict[str, object], environ: dict[str, str]) -> str:
    return ",".join(load_settings(flags, environ, None).connection.servers)


def test_the_selected_context_is_used_unless_one_is_named(tmp_path: Path) -> None:
    assert load_context(None, "", {"XDG_CONFIG_HOME": str(tmp_path)}) is None, "there need not be a context"
    more = {"user": "bob", "password": HIDDEN, "tls_first": True}
    environ = save(tmp_path, "a", select=True, url="nats://n1,nats://n2", **more)
    resolved = resolve_settings({}, environ, None)
    connection = resolved.settings.connection
    assert connection.servers == ("nats://n1:4222", "nats://n2:4222")
    assert (connection.user, connection.tls_first) == ("bob", True)
    assert resolved.sources["connection.servers"] == "context a"
    save(tmp_path, "b", url="nats://b")
    environ = save(tmp_path, "c", url="nats://c") | {"NATS_CONTEXT": "b"}
    assert servers({}, environ) == "nats://b:4222"
    assert servers({"context": "c"}, environ) == "nats://c:4222", "a flag wins over a variable"
    assert servers({"no_context": True}, environ) == "nats://127.0.0.1:4222"


def test_a_context_is_below_the_home_directory_or_a_file(tmp_path: Path) -> None:
    save(tmp_path / ".config", "home", select=True, url="nats://home")
    assert servers({}, {"HOME": str(tmp_path)}) == "nats://home:4222"
    path = tmp_path / "elsewhere.json"
    path.write_text('{"url": "nats://file"}')
    assert servers({"context": str(path)}, {}) == "nats://file:4222"


def test_a_context_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    for name in ("missing", "../up", "a/b", "a\\b"):
        with pytest.raises(SettingsError, match="--context") as caught:
            load_settings({"context": name}, {"XDG_CONFIG_HOME": str(tmp_path)}, None)
        assert caught.value.problems[0].key == "context"
    environ = save(tmp_path, "broken")
    (tmp_path / "nats/context/broken.json").write_text('{"password": "hunter2"')
    with pytest.raises(SettingsError, match="JSON object") as caught:
        load_settings({"context": "broken"}, environ, None)
    assert "hunter2" not in str(caught.value)
    fields = {"socks_proxy": "socks5://bob:hunter2@p", "nsc": "nsc://o/a/u", "windows_cert_store": "user"}
    for field, value in (fields | {"creds": "op://vault/item"}).items():
        given: dict[str, Any] = {field: value}
        with pytest.raises(SettingsError, match=field) as caught:
            load_settings({"context": "x"}, save(tmp_path, "x", **given), None)
        assert "hunter2" not in str(caught.value)


def test_what_is_not_used_is_named_in_a_warning(tmp_path: Path) -> None:
    environ = save(tmp_path, "x", jetstream_event_prefix="E", color_scheme="red", sparkle=True)
    warnings = resolve_settings({"context": "x"}, environ, None).warnings
    assert [warning.split(" ")[2] for warning in warnings] == ["jetstream_event_prefix", "sparkle"]


@pytest.mark.server
@pytest.mark.deep
@pytest.mark.skipif(NATS_CLI is None, reason="no nats CLI: name it in NATS_CLI or put it on the path")
def test_a_context_that_the_real_cli_saved_is_read(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca", "x.creds"):
        (tmp_path / name).write_text("")
    options = [
        f"--server=nats://n1:1,tls://n2 --creds={tmp_path}/x.creds --tlscert={tmp_path}/cert --tlskey={tmp_path}/key",
        f"--tlsca={tmp_path}/ca --tlsfirst --js-domain=hub --inbox-prefix=_MINE --js-api-prefix=JS.acme --select",
    ]
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    arguments = [str(NATS_CLI), "context", "save", "real", *" ".join(options).split()]
    subprocess.run(arguments, env=environ, check=True, capture_output=True, timeout=30)
    connection = load_settings({}, environ, None).connection
    assert connection.servers == ("nats://n1:1", "tls://n2:4222")
    assert connection.creds == tmp_path / "x.creds"
    assert (connection.tls_cert, connection.tls_key) == (tmp_path / "cert", tmp_path / "key")
    assert (connection.tls_ca, connection.tls_first) == (tmp_path / "ca", True)
    assert (connection.js_domain, connection.inbox_prefix) == ("hub", "_MINE")
    assert connection.js_api_prefix == "JS.acme"
