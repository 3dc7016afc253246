"""The flags that commands share: how to connect, and the settings of the sidecar.

Rule: flags are made from the settings (`settings.fields`): to declare a setting gives it a flag, a variable and a key.
The names are those of the `nats` CLI if it has the same option.
A command below one of the decorators gets one argument `resolved` (`ResolvedSettings`), checked, with the origin of
each value, and none of the flags. All flags are text, so that the settings report errors, in one form.
Cost: pydantic is imported, some 100 ms; `next` and `check` do not need it. Limit: the environment is read when the
command runs, not before.
"""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.output import EXIT_WRONG_USE, Command, CommandError, decorated
from nats_scheduler.settings.fields import FILE_VARIABLE, VARIABLE_PREFIX, SettingField, setting_fields
from nats_scheduler.settings.load import ResolvedSettings, resolve_settings
from nats_scheduler.settings.problems import SettingsError
from nats_scheduler.settings.sources import CONTEXT_VARIABLE

WEB_PREFIX = "web_"
"""The prefix of the names of the status page's settings; no other command has flags for them."""

LOG_SETTINGS = ("log_format", "log_level")

DATA_SETTING = "data"
"""The folder of the sidecar; `dev` has a flag of that name, for a folder in which this one lies too."""

SHORT_FLAGS = {"connection.servers": "-s"}


def connection_options(command: Command) -> Command:
    """Give a command the connection flags of the `nats` CLI: servers and credentials."""
    return _with_flags(command, _connection_fields())


def connection_parameters() -> list[click.Parameter]:
    """Return the connection flags, for a command that adds them only where it needs them."""
    return click.command()(_declared(lambda: None, _connection_fields())).params


def resolve_connection(given: Mapping[str, Any]) -> ResolvedSettings:
    """Return the settings in force for the values of the connection flags; raises as `resolve` does."""
    flags = {name: value for name, value in given.items() if name != "settings_file"}
    return resolve(flags, given["settings_file"])


def settings_options(command: Command) -> Command:
    """Give a command the flags of the connection and those of the sidecar."""
    return _with_flags(command, [field for key, field in setting_fields().items() if not _is_of_web(key)])


def web_options(command: Command) -> Command:
    """Give a command the flags of the connection, of the status page and of the log."""
    fields = [field for key, field in setting_fields().items() if "." in key or _is_of_web(key) or key in LOG_SETTINGS]
    return _with_flags(command, fields)


def sidecar_options(command: Command) -> Command:
    """Give a command the flags of the sidecar alone: the command sets the connection and the folder `data` itself.

    The `nats` CLI's variables and contexts are not read, and a connection in the settings file is ignored.
    """
    fields = [
        field
        for key, field in setting_fields().items()
        if "." not in key and key != DATA_SETTING and not _is_of_web(key)
    ]
    return _with_flags(command, fields, connects=False)


def resolve(
    flags: Mapping[str, object], file: str | None, environ: Mapping[str, str] | None = None
) -> ResolvedSettings:
    """Return the settings in force; end the command with exit code 2 if they cannot be used."""
    try:
        return resolve_settings(flags, os.environ if environ is None else environ, None if file is None else Path(file))
    except SettingsError as error:
        raise CommandError(str(error), EXIT_WRONG_USE) from None


def _is_of_web(key: str) -> bool:
    return key.startswith(WEB_PREFIX)


def _with_flags(command: Command, fields: list[SettingField], *, connects: bool = True) -> Command:
    """Give a command the flags of settings; one that does not connect by them reads no context either."""
    fields = [field for field in fields if field.variables]
    names = [field.name for field in fields] + (["context", "no_context"] if connects else [])

    @wraps(command)
    def run(settings_file: str | None, **arguments: Any) -> Any:
        flags = {name: arguments.pop(name) for name in names}
        if connects:
            return command(resolved=resolve(flags, settings_file), **arguments)
        environ = _without_connection(os.environ)
        return command(resolved=resolve(flags | {"no_context": True}, settings_file, environ), **arguments)

    return _declared(run, fields, connects=connects)


def _connection_fields() -> list[SettingField]:
    return [field for key, field in setting_fields().items() if "." in key]


def _declared(command: Command, fields: list[SettingField], *, connects: bool = True) -> Command:
    """Give a command the flags of the settings, and those that name their sources."""
    sources = [
        click.option("--context", metavar="NAME", help=f"Saved context of the nats CLI. [${CONTEXT_VARIABLE}]"),
        click.option("--no-context", is_flag=True, help="Ignore the selected context."),
    ]
    settings_file = click.option(
        "--settings",
        "settings_file",
        metavar="FILE",
        envvar=FILE_VARIABLE,
        help=f"Settings file (JSON; see `nats-scheduler settings schema`). [${FILE_VARIABLE}]",
    )
    return decorated(command, *map(_option, fields), *(sources if connects else ()), settings_file)


def _option(field: SettingField) -> Callable[[Command], Command]:
    """Return the option of one setting."""
    variables = " or ".join(f"${name}" for name in reversed(field.variables))
    text = f"{field.description} [{variables}]"
    if field.kind == "boolean":
        names = f"{field.flag}/--no-{field.flag.removeprefix('--')}"
        return click.option(names, field.name, default=None, help=text)
    short = [SHORT_FLAGS[field.key]] if field.key in SHORT_FLAGS else []
    return click.option(field.flag, *short, field.name, metavar=_metavar(field), help=text)


def _metavar(field: SettingField) -> str:
    if field.kind == "choice":
        return "|".join(field.schema["enum"])
    by_kind = {"path": "PATH", "integer": "NUMBER", "duration": "DURATION", "list": "A[,B…]"}
    return by_kind.get(field.kind, "TEXT")


def _without_connection(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables of the connection."""
    ours = tuple(
        name
        for name in environ
        if name.startswith(VARIABLE_PREFIX) and not name.startswith(f"{VARIABLE_PREFIX}CONNECTION_")
    )
    return {name: value for name, value in environ.items() if not name.startswith("NATS_") or name in ours}
