"""`nats-scheduler files`: what a file of schedules may contain.

Rule: the printed schema is made from the models by which `apply` reads files.
Cost: some 200 ms, to import pydantic. Limit: what a stream accepts is not in it; `diff` finds that.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.output import print_json
from nats_scheduler.files.models import files_schema


@click.group("files")
def command() -> None:
    """Show what a file of schedules may contain."""


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of a document in a file of schedules."""
    print_json(files_schema())
