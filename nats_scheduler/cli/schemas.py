"""`nats-scheduler advisories`: the content of the advisories that a sidecar publishes about problems.

Rule: the printed schema is made from the models against which the tests check the sidecar's advisories.
Cost: some 200 ms, to import pydantic. Limit: a sidecar of another version may publish other kinds and keys.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.output import print_json
from nats_scheduler.files.models import files_schema
from nats_scheduler.observe.advisories import advisories_schema
from nats_scheduler.service.service import service_schema


@click.group("advisories")
def advisories_command() -> None:
    """Show what is in the advisories that a sidecar publishes."""


@advisories_command.command("schema")
def print_advisories_schema() -> None:
    """Print the JSON Schema of every advisory."""
    print_json(advisories_schema())


# `nats-scheduler files`: what a file of schedules may contain.
#
# Rule: the printed schema is made from the models by which `apply` reads files.
# Cost: some 200 ms, to import pydantic. Limit: what a stream accepts is not in it; `diff` finds that.


@click.group("files")
def files_command() -> None:
    """Show what a file of schedules may contain."""


@files_command.command("schema")
def print_files_schema() -> None:
    """Print the JSON Schema of a document in a file of schedules."""
    print_json(files_schema())


# `nats-scheduler service`: the requests that a running sidecar answers, and its answers.
#
# Rule: the printed schema is made from the models by which the sidecar reads requests and the tests check its
# answers. Cost: some 200 ms, to import pydantic. Limit: a sidecar of another version may have other keys.


@click.group("service")
def service_command() -> None:
    """Show what can be asked of a running sidecar."""


@service_command.command("schema")
def print_service_schema() -> None:
    """Print the JSON Schemas of every request and answer."""
    print_json(service_schema())
