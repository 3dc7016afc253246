"""Where settings come from, beside flags: the settings file, the environment, and saved contexts of the `nats` CLI.

Rule: everything in the settings file is used or rejected, and nothing is ignored: no unknown keys, no key twice, no
trailing text.
It is JSON and not TOML or YAML, because a command prints its schema, and editors check the file against it.
Cost: some small reads at start. Limit: 1 MiB a file (`settings.json_files`).
"""

import json
import pwd
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from os import getuid
from pathlib import Path

from nats_scheduler.settings.connection import split_servers
from nats_scheduler.settings.fields import FILE_VARIABLE, VARIABLE_PREFIX, setting_fields
from nats_scheduler.settings.json_files import read_bounded
from nats_scheduler.settings.problems import SettingsError, SettingsProblem, looks_secret, shown


def read_settings_file(path: Path) -> dict[str, tuple[object, str]]:
    """Return the values by key, each with its source; raises `SettingsError`.

    `$schema` is ignored: it contains the address of the schema for editors.
    """
    source = f"file {path}"
    content = _parse(path, source)
    content.pop("$schema", None)
    connection = content.pop("connection", {})
    if not isinstance(connection, dict):
        raise SettingsError([SettingsProblem("connection", shown(connection), "an object", source)])
    flat = {**content, **{f"connection.{name}": value for name, value in connection.items()}}
    return {key: (value, source) for key, value in flat.items() if not _is_absent(key, value)}


def _is_absent(key: str, value: object) -> bool:
    """Return whether null means "not set", which it does if the setting has no default."""
    field = setting_fields().get(key)
    return value is None and field is not None and field.default is None


def _parse(path: Path, source: str) -> dict[str, object]:
    try:
        content = json.loads(read_bounded(path), object_pairs_hook=_without_duplicate_keys)
    except OSError as error:
        expected = f"a file that can be read ({error.strerror or error})"
        raise SettingsError([SettingsProblem("settings", shown(str(path)), expected, "--settings")]) from None
    except _DuplicateKeyError as error:
        raise SettingsError([SettingsProblem(str(error), "two values", "each key once", source)]) from None
    except json.JSONDecodeError as error:
        expected = f"JSON ({error.msg.lower()}, line {error.lineno}, column {error.colno})"
        raise SettingsError([SettingsProblem("settings", shown(str(path)), expected, source)]) from None
    except (ValueError, RecursionError):  # not UTF-8, or a number of thousands of digits
        raise SettingsError([SettingsProblem("settings", shown(str(path)), "JSON in UTF-8", source)]) from None
    if not isinstance(content, dict):
        raise SettingsError([SettingsProblem("settings", shown(str(path)), "a JSON object", source)])
    return content


class _DuplicateKeyError(Exception):
    """An object has the same key twice."""


def _without_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise _DuplicateKeyError(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return content


# Settings from environment variables: `NATS_SCHEDULER_*` for every setting, and the variables of the `nats` CLI.
#
# Rule: a variable with the prefix `NATS_SCHEDULER_` that is no setting is an error, so that a typing error is
# reported. The exception: variables that Kubernetes sets in every container for a Service called nats-scheduler are
# ignored. As in the CLI, an empty variable counts as not set. Cost: one check for each name. Limit: no JSON inside
# variables; lists are separated by commas.

CONTEXT_VARIABLE = "NATS_CONTEXT"
PROXY_VARIABLE = "NATS_SOCKS_PROXY"

_SERVICE_LINK_NAME = re.compile(
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$"
)
_SERVICE_LINK_VALUE = re.compile(r"^(tcp|udp|sctp)://\S+:[0-9]+$")


def read_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the text and the source (`$NAME`) of every setting that has a variable."""
    found = {}
    for key, field in setting_fields().items():
        for variable in reversed(field.variables):
            text = environ.get(variable, "")
            if text and not is_service_link(variable, text):
                found[key] = (text, f"${variable}")
    return found


def unknown_variables(environ: Mapping[str, str]) -> list[SettingsProblem]:
    """Return a problem for each variable that looks like a setting but is not one, or that is not supported."""
    known = {FILE_VARIABLE, *(name for field in setting_fields().values() for name in field.variables)}
    problems = []
    for name, value in environ.items():
        if not name.startswith(VARIABLE_PREFIX) or name in known or is_service_link(name, value):
            continue
        similar = get_close_matches(name, known, n=1)
        expected = f"a variable that is a setting, such as {similar[0] if similar else VARIABLE_PREFIX + 'WINDOW'}"
        problems.append(SettingsProblem(name, shown(value, secret=looks_secret(name)), expected, "environment"))
    if environ.get(PROXY_VARIABLE):
        proxy = shown(environ[PROXY_VARIABLE])
        problems.append(
            SettingsProblem(PROXY_VARIABLE, proxy, "no proxy: the client does not support SOCKS", "environment")
        )
    return problems


def overwritten_variables(environ: Mapping[str, str], given: Collection[str]) -> tuple[str, ...]:
    """Return a warning for each setting that is not `given`, and whose variable Kubernetes may have overwritten."""
    fields = [field for field in setting_fields().values() if field.key not in given]
    return tuple(
        f"{name} of {shown(environ[name])} is an address that Kubernetes sets for a Service, and is ignored; "
        "set the variable in the pod, or enableServiceLinks to false"
        for field in fields
        for name in field.variables
        if is_service_link(name, environ.get(name, ""))
    )


def is_service_link(name: str, value: str) -> bool:
    """Return whether Kubernetes has set this variable for a Service called nats-scheduler(-something).

    `NATS_SCHEDULER_METRICS_PORT=tcp://10.0.0.7:9090` is one, although its name is that of a setting.
    """
    if not name.startswith(VARIABLE_PREFIX):
        return False
    is_port = name.endswith("PORT") and _SERVICE_LINK_VALUE.match(value) is not None
    return is_port or _SERVICE_LINK_NAME.search(name) is not None


# Saved contexts of the `nats` CLI (ADR-21): which one is used, where its file is, and its settings.
#
# Rule: every field of a context is used or reported. A field that changes the servers or the credentials, and that the
# client does not support, is an error; a field that only the CLI itself uses is ignored, or reported in a warning.
# Files: `$XDG_CONFIG_HOME/nats/context/<name>.json` (otherwise `~/.config/…`); `context.txt` in the parent folder names
# the selected one. Source: ADR-21, and the files that the CLI 0.4.0 writes.
# Limit: `nsc://` look-ups and 1Password references (`op://`) need other programs.

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
