"""`nats-scheduler service`: the requests that a running sidecar answers, and its answers.

Rule: the printed schema is made from the models by which the sidecar reads requests and the tests check its answers.
Cost: some 200 ms, to import pydantic. Limit: a sidecar of another version may have other keys.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.output import print_json
from nats_scheduler.service.schema import service_schema


@click.group("service")
def command() -> None:
    """Show what can be asked of a running sidecar."""


@command.command("schema")
def schema() -> None:
    """Print the JSON Schemas of every request and answer."""
    print_json(service_schema())
