"""Saved contexts of the `nats` CLI (ADR-21): which one is used, where its file is, and its settings.

Every field of a context is used or reported. A field that changes the servers or the credentials, and that the client
does not support, is an error; a field that only the CLI itself uses is ignored, or reported in a warning.
Files: `$XDG_CONFIG_HOME/nats/context/<name>.json` (otherwise `~/.config/…`); `context.txt` in the parent folder names
the selected one. Source: ADR-21, and the files that the CLI 0.4.0 writes.

Limit: `nsc://` look-ups and 1Password references (`op://`) need other programs.
"""

import json
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from os import getuid
from pathlib import Path

from nats_scheduler.settings.json_files import read_bounded
from nats_scheduler.settings.problems import SettingsError, SettingsProblem, looks_secret, shown
from nats_scheduler.settings.server_addresses import split_servers

CONTEXT_KEYS = {
    "url": "connection.servers",
    "token": "connection.token",
    "user": "connection.user",
    "password": "connection.password",
    "creds": "connection.creds",
    "nkey": "connection.nkey",
    "cert": "connection.tls_cert",
    "key": "connection.tls_key",
    "ca": "connection.tls_ca",
    "tls_first": "connection.tls_first",
    "jetstream_domain": "connection.js_domain",
    "jetstream_api_prefix": "connection.js_api_prefix",
    "inbox_prefix": "connection.inbox_prefix",
    "user_jwt": "connection.user_jwt",
    "user_seed": "connection.user_seed",
}
"""The supported fields, with the setting that each one is."""

UNSUPPORTED_FIELDS = {
    "socks_proxy": "no proxy: the client does not support SOCKS",
    "nsc": "no look-up in nsc: write the credentials to a file and name it in creds",
    "windows_cert_store": "no Windows certificate store: name files in cert, key and ca",
    "windows_cert_match": "no Windows certificate store: name files in cert, key and ca",
    "windows_ca_certs_match": "no Windows certificate store: name files in cert, key and ca",
}
"""Fields that change the servers or the credentials and are not supported; with a value they are errors."""

UNUSED_FIELDS = {"jetstream_event_prefix": "advisories are not read through a prefix"}
"""Fields that are reported in a warning if they have a value."""

CLI_ONLY_FIELDS = ("name", "description", "color_scheme", "windows_cert_match_by")
"""Fields that do not concern the connection."""


@dataclass(frozen=True, slots=True)
class Context:
    """A context that was read from its file."""

    name: str
    values: Mapping[str, object]
    """Settings by key; only those that have a value."""
    warnings: tuple[str, ...] = ()


def load_context(name: str | None, source: str, environ: Mapping[str, str]) -> Context | None:
    """Return the context `name`, or the selected one if `name` is None; None if there is none.

    As in the CLI, a name that ends in `.json` and is the path of a file means that file. Raises `SettingsError`.
    """
    folder = _config_folder(environ)
    chosen = name or _selected(folder)
    if not chosen:
        return None
    where = source if name else "selected in context.txt"
    if chosen.endswith(".json") and Path(chosen).is_file():
        return _read_context(Path(chosen).stem, Path(chosen), where)
    if ".." in chosen or "/" in chosen or "\\" in chosen:
        raise SettingsError([SettingsProblem("context", shown(chosen), "a name without '..', '/' and '\\'", where)])
    return _read_context(chosen, folder / "context" / f"{chosen}.json", where)


def expand_path(text: str, environ: Mapping[str, str]) -> str:
    """Fill in `$NAME`, `${NAME}` and a leading `~`, as the CLI does; an unknown variable is empty."""
    filled = re.sub(r"\$(\w+|\{\w+\})", lambda match: environ.get(match[1].strip("{}"), ""), text)
    return filled.replace("~", str(_home(environ)), 1) if filled.startswith("~") else filled


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or pwd.getpwuid(getuid()).pw_dir)


def _config_folder(environ: Mapping[str, str]) -> Path:
    parent = environ.get("XDG_CONFIG_HOME")
    return (Path(parent) if parent else _home(environ) / ".config") / "nats"


def _selected(folder: Path) -> str:
    try:
        return read_bounded(folder / "context.txt").decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _read_context(name: str, path: Path, where: str) -> Context:
    """Read one file; raises `SettingsError` with all its problems."""
    try:
        content = json.loads(read_bounded(path))
    except OSError as error:
        expected = f"a saved context, such as `nats context save {name}` writes to {path} ({error.strerror or error})"
        raise SettingsError([SettingsProblem("context", shown(name), expected, where)]) from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        expected = f"a JSON object in {path}"
        raise SettingsError([SettingsProblem("context", shown(name), expected, where)])
    return _translate(name, content)


def _translate(name: str, content: Mapping[str, object]) -> Context:
    """Turn the CLI's fields into settings; an empty field counts as not set."""
    given = {field: value for field, value in content.items() if value not in ("", None, False, [])}
    problems = [
        SettingsProblem(field, shown(given[field], secret=looks_secret(field)), expected, f"context {name}")
        for field, expected in UNSUPPORTED_FIELDS.items()
        if field in given
    ]
    if problems:
        raise SettingsError(problems)
    known = {*CONTEXT_KEYS, *CLI_ONLY_FIELDS}
    warnings = tuple(
        f"context {name}: {field} is not used: {UNUSED_FIELDS.get(field, 'it is not a field of a context')}"
        for field in given
        if field not in known
    )
    values = {CONTEXT_KEYS[field]: value for field, value in given.items() if field in CONTEXT_KEYS}
    if isinstance(given.get("url"), str):
        values["connection.servers"] = list(split_servers(str(given["url"])))
    return Context(name, values, warnings)
