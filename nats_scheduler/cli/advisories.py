"""`nats-scheduler advisories`: the content of the advisories that a sidecar publishes about problems.

Rule: the printed schema is made from the models against which the tests check the sidecar's advisories.
Cost: some 200 ms, to import pydantic. Limit: a sidecar of another version may publish other kinds and keys.
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
