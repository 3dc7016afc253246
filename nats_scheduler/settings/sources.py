"""Where settings come from, beside flags and contexts: the settings file and the environment.

The rules:

- Everything in the settings file is used or rejected, and nothing is ignored: no unknown keys, no key twice, no
  trailing text. It is JSON and not TOML or YAML, because a command prints its schema, and editors check the file
  against it.
- A variable with the prefix `NATS_SCHEDULER_` that is no setting is an error, so that a typing error is reported. The
  exception: variables that Kubernetes sets in every container for a Service called nats-scheduler are ignored.
- As in the CLI, an empty variable counts as not set. There is no JSON inside variables; lists are separated by commas.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path

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
        content = json.loads(read_bounded(path), object_pairs_hook=partial(_without_duplicate_keys, source))
    except OSError as error:
        expected = f"a file that can be read ({error.strerror or error})"
        raise SettingsError([SettingsProblem("settings", shown(str(path)), expected, "--settings")]) from None
    except json.JSONDecodeError as error:
        expected = f"JSON ({error.msg.lower()}, line {error.lineno}, column {error.colno})"
        raise SettingsError([SettingsProblem("settings", shown(str(path)), expected, source)]) from None
    except (ValueError, RecursionError):  # not UTF-8, or a number of thousands of digits
        raise SettingsError([SettingsProblem("settings", shown(str(path)), "JSON in UTF-8", source)]) from None
    if not isinstance(content, dict):
        raise SettingsError([SettingsProblem("settings", shown(str(path)), "a JSON object", source)])
    return content


def _without_duplicate_keys(source: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise SettingsError([SettingsProblem(twice, "two values", "each key once", source)])
    return content


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
