"""`nats-scheduler settings`: the schema of the settings file, and the settings in force.

Rule: `show` resolves settings as `run` does, with the same flags, and prints no secret.
Cost: some 200 ms, to import pydantic. Limit: it shows the settings of this process; with another user's environment
they may differ.
"""

import click

from nats_scheduler.cli.options import settings_options
from nats_scheduler.cli.output import json_option, print_json, print_table, print_warning, wide_option
from nats_scheduler.settings.fields import settings_schema, shown_values
from nats_scheduler.settings.load import ResolvedSettings


@click.group("settings")
def command() -> None:
    """Show the settings in force, or the schema of their file."""


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of the settings file."""
    print_json(settings_schema())


@command.command("show")
@settings_options
@wide_option
@json_option
def show(resolved: ResolvedSettings, wide: bool, as_json: bool) -> None:
    """Print every setting and its source; secrets are masked."""
    values = shown_values(resolved.settings)
    if as_json:
        found = {key: {"value": value, "source": resolved.sources[key]} for key, value in values.items()}
        print_json({"settings": found, "warnings": list(resolved.warnings)})
        return
    print_table(
        ["setting", "value", "source"],
        [(key, _text(value), resolved.sources[key]) for key, value in values.items()],
        wide=wide,
    )
    given = sum(resolved.sources[key] != "default" for key in values)
    click.echo(f"{len(values)} in all: {given} given, {len(values) - given} by default")
    for warning in resolved.warnings:
        print_warning(warning)


def _text(value: object) -> str:
    """Return a value as a table shows it."""
    if isinstance(value, list):
        return ", ".join(str(one["name"] if isinstance(one, dict) else one) for one in value) or "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)
