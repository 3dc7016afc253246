"""`nats-scheduler advisories`, `files` and `service`: what these documents may contain, as JSON Schemas.

Rule: each schema is made from the models by which the documents are read, or the tests check them.
Cost: some 200 ms, to import pydantic. Limit: a sidecar of another version may have other keys, and what a stream
accepts of a file is not in its schema; `diff` finds that.
"""

from collections.abc import Callable

import click

from nats_scheduler.cli.output import print_json
from nats_scheduler.files.models import files_schema
from nats_scheduler.observe.advisories import advisories_schema
from nats_scheduler.service.endpoints import service_schema


def _group(name: str, about: str, what: str, schema: Callable[[], object]) -> click.Group:
    """Return a group with the command `schema`, which prints one."""
    group = click.Group(name, help=about)

    @group.command("schema", help=what)
    def print_schema() -> None:
        print_json(schema())

    return group


advisories_command = _group(
    "advisories",
    "Show what is in the advisories that a sidecar publishes.",
    "Print the JSON Schema of every advisory.",
    advisories_schema,
)
files_command = _group(
    "files",
    "Show what a file of schedules may contain.",
    "Print the JSON Schema of a document in a file of schedules.",
    files_schema,
)
service_command = _group(
    "service",
    "Show what can be asked of a running sidecar.",
    "Print the JSON Schemas of every request and answer.",
    service_schema,
)
