"""`nats-scheduler advisories`: what is in the messages that the sidecar publishes about what goes wrong.

Rule: the schema that is printed is made from the models that the tests hold the sidecar to.
Cost: some 200 ms, pydantic's. Limit: a sidecar of another version may publish kinds and keys that are not in it.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.output import print_json
from nats_scheduler.observe.advisories import advisories_schema


@click.group("advisories")
def command() -> None:
    """Show what is in the advisories that a sidecar publishes."""


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of every advisory."""
    print_json(advisories_schema())
