"""Load one frozen `SidecarSettings` from flags, environment, file and context, with the source of every value.

Rule: for each key the first of these has priority: flags, environment, settings file, context, default.
Credentials are taken as a whole: `--creds` on the command line replaces the user of a context, so that the server does
not get two ways to log in.
Layers are flat mappings from key to value: priority is then one loop, and the source of a value costs nothing.
The file is read strictly (4096 is a number, "4096" is not); text from flags and variables is converted first.
Cost: some milliseconds, once. Limit: nothing is read again while the program runs.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nats_scheduler.settings.contexts import expand_path, load_context
from nats_scheduler.settings.control_rules import ControlRule
from nats_scheduler.settings.fields import SettingField, setting_fields
from nats_scheduler.settings.problems import SettingsError, SettingsProblem, looks_secret, shown
from nats_scheduler.settings.server_addresses import split_servers
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from nats_scheduler.settings.sources import (
    CONTEXT_VARIABLE,
    overwritten_variables,
    read_environment,
    read_settings_file,
    unknown_variables,
)

__all__ = ["ResolvedSettings", "SettingsError", "SettingsProblem", "load_settings", "resolve_settings"]

TRUE, FALSE = ("true", "t", "1", "yes", "on"), ("false", "f", "0", "no", "off")

LOGIN_METHODS = {
    "connection.user": "user",
    "connection.password": "user",
    "connection.creds": "creds",
    "connection.nkey": "nkey",
    "connection.user_jwt": "jwt",
    "connection.user_seed": "jwt",
    "connection.token": "token",
}
"""The settings for logging in, each with the method that it belongs to."""

LOGIN_COMPLEMENTS = ("connection.password", "connection.user_seed")
"""Settings that complete a method of logging in, but do not select one."""

Layer = Mapping[str, tuple[object, str]]
"""Values by key, each with its source."""


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """The effective settings, and where they come from."""

    settings: SidecarSettings
    sources: Mapping[str, str]
    """The source of each key: `--window`, `$NATS_URL`, `file …`, `context …` or `default`."""
    warnings: tuple[str, ...]
    """Reports of ignored values, one sentence each."""


def load_settings(flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None) -> SidecarSettings:
    """Return the effective settings; see `resolve_settings`."""
    return resolve_settings(flags, environ, file).settings


def resolve_settings(flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None) -> ResolvedSettings:
    """Merge the layers, check the result and return it with the source of each value.

    `flags` contains values by the last part of the key (`servers`, `window`), and `context` (a name) and `no_context`
    (true: use none); None and "" count as not set. Raises `SettingsError` with every problem that was found.
    """
    flagged = _flag_layer(flags)
    environment: Layer = read_environment(environ)
    filed: Layer = {} if file is None else read_settings_file(file)
    context_layer, warnings = _context_layer(flags, environ)
    flags_and_variables = _as_the_cli_reads_a_lone_user({**environment, **flagged}, flagged, environment)
    merged = _merge([*flags_and_variables, filed, context_layer])
    ready, problems = _convert(merged, environ)
    problems = [*unknown_variables(environ), *problems]
    settings = _validate(ready, problems)
    sources = {key: merged[key][1] if key in merged else "default" for key in setting_fields()}
    return ResolvedSettings(settings, sources, (*overwritten_variables(environ, merged), *warnings))


def _flag_layer(flags: Mapping[str, object]) -> dict[str, tuple[object, str]]:
    by_name = {field.name: field for field in setting_fields().values()}
    given = {name: value for name, value in flags.items() if value not in (None, "", ())}
    return {
        by_name[name].key: (value, by_name[name].flag)
        for name, value in given.items()
        if name not in ("context", "no_context")
    }


def _context_layer(flags: Mapping[str, object], environ: Mapping[str, str]) -> tuple[Layer, tuple[str, ...]]:
    """Read the context that the flag or the variable names, otherwise the selected one."""
    if flags.get("no_context"):
        return {}, ()
    flag, variable = flags.get("context"), environ.get(CONTEXT_VARIABLE)
    source = "--context" if flag else f"${CONTEXT_VARIABLE}"
    context = load_context(str(flag or variable or "") or None, source, environ)
    if context is None:
        return {}, ()
    values = {key: (value, f"context {context.name}") for key, value in context.values.items()}
    return values, context.warnings


def _as_the_cli_reads_a_lone_user(merged: Layer, *layers: Layer) -> list[Layer]:
    """Turn a user without a password, from a flag or a variable, into a token, as the CLI does."""
    if "connection.user" not in merged or "connection.password" in merged or "connection.token" in merged:
        return list(layers)
    return [
        {("connection.token" if key == "connection.user" else key): value for key, value in layer.items()}
        for layer in layers
    ]


def _merge(layers: Iterable[Layer]) -> dict[str, tuple[object, str]]:
    """Merge layers; the first one has priority."""
    merged: dict[str, tuple[object, str]] = {}
    methods: set[str] = set()
    for layer in layers:
        usable = {
            key: value for key, value in layer.items() if not methods or LOGIN_METHODS.get(key) in {None, *methods}
        }
        methods = methods or {
            LOGIN_METHODS[key] for key in layer if key in LOGIN_METHODS and key not in LOGIN_COMPLEMENTS
        }
        merged = {**usable, **merged}
    return merged


def _convert(merged: Layer, environ: Mapping[str, str]) -> tuple[dict[str, tuple[object, str]], list[SettingsProblem]]:
    """Convert text to the JSON values of the file; report unknown keys and missing files."""
    ready: dict[str, tuple[object, str]] = {}
    problems: list[SettingsProblem] = []
    for key, (value, source) in merged.items():
        field = setting_fields().get(key)
        if field is None:
            problems.append(_unknown_key(key, value, source))
            continue
        if isinstance(value, str) and not value.isprintable():
            problems.append(
                SettingsProblem(key, shown(value, secret=field.kind == "secret"), "text that can be printed", source)
            )
            continue
        converted = _from_text(field, value, is_text=source.startswith(("-", "$")))
        if field.kind == "path" and isinstance(converted, str):
            converted = expand_path(converted, environ)
            problems += _missing(key, converted, source)
        ready[key] = (converted, source)
    return ready, problems


def _from_text(field: SettingField, value: object, *, is_text: bool) -> object:
    """Return the JSON value that a text stands for; otherwise the text itself, which the validation then rejects."""
    if not is_text or not isinstance(value, str):
        return list(value) if isinstance(value, tuple) else value
    if field.kind == "list":
        return list(split_servers(value))
    if field.kind == "boolean":
        known = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}
        return known.get(value.lower(), value)
    if field.kind == "integer" and value.isascii() and value.strip().isdigit():
        return int(value)
    return value


def _unknown_key(key: str, value: object, source: str) -> SettingsProblem:
    similar = get_close_matches(key, setting_fields(), n=1)
    expected = f"a key that is a setting{f', such as {similar[0]}' if similar else ''}"
    return SettingsProblem(key, shown(value, secret=looks_secret(key)), expected, source)


def _missing(key: str, path: str, source: str) -> list[SettingsProblem]:
    """Return a problem if a path does not exist, unless it is that of a folder which the sidecar creates."""
    if path.startswith("op://"):
        return [SettingsProblem(key, shown(path), "a file: references to 1Password are not supported", source)]
    if key == "data":
        return []
    if key == "streams_folder":
        return [] if Path(path).is_dir() else [SettingsProblem(key, shown(path), "a folder that exists", source)]
    return [] if Path(path).is_file() else [SettingsProblem(key, shown(path), "a file that exists", source)]


def _validate(ready: Layer, problems: list[SettingsProblem]) -> SidecarSettings:
    """Build the settings, or raise `SettingsError` with all problems."""
    document: dict[str, Any] = {"connection": {}}
    for key, (value, _) in ready.items():
        parent, _, name = key.rpartition(".")
        (document[parent] if parent else document)[name] = value
    try:
        settings = SidecarSettings.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        found = [_problem(detail, ready) for detail in error.errors(include_url=False)]
        raise SettingsError([*problems, *dict.fromkeys(found)]) from None
    if problems:
        raise SettingsError(problems)
    return settings


def _problem(detail: Any, ready: Layer) -> SettingsProblem:
    """Turn one of pydantic's errors into a `SettingsProblem`."""
    context = detail.get("ctx") or {}
    field = setting_fields().get(str(next(iter(detail["loc"]), "")))
    if field is not None and field.kind == "objects" and len(detail["loc"]) > 1:
        return _problem_inside(detail, ready[field.key][1])
    key = ".".join(str(part) for part in detail["loc"] if isinstance(part, str))
    if "key" in context:
        key = f"{key}.{context['key']}".lstrip(".")
    field = setting_fields()[key]
    value, source = ready.get(key, (None, "default"))
    expected = context["expected"] if "expected" in context and "key" in context else None
    if detail["type"] in ("duration", "server", "rules"):
        expected = context["expected"]
    return SettingsProblem(key, shown(value, secret=field.kind == "secret"), expected or field.expected, source)


def _problem_inside(detail: Any, source: str) -> SettingsProblem:
    """Turn an error inside `control_rules` into a `SettingsProblem`, such as that of `control_rules[1].targets[0]`."""
    loc = detail["loc"]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")
    expected = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        expected = f"one of the keys {', '.join(ControlRule.model_fields)}"
    elif detail["type"] not in ("value_error", "duration") and len(loc) > 2:
        text = ControlRule.model_fields[loc[2]].description or ""
        expected = f"{text[0].lower()}{text[1:].rstrip('.')}"
    return SettingsProblem(key, "nothing" if detail["type"] == "missing" else shown(detail["input"]), expected, source)
