"""What commands check of their arguments before they connect: names of streams, and filters.

Rule: an argument that no server could accept ends the command with 2, and the error shows the value.
"""

from __future__ import annotations

import click

from nats_scheduler.message.subjects import is_valid_subject
from nats_scheduler.settings.stream_files import is_stream_name


def check_stream(name: str | None) -> None:
    """End the command with 2 if no stream can have this name; None is none that was given."""
    if name is not None and not is_stream_name(name):
        raise click.UsageError(f"{name!r}: expected the name of a stream")


def check_filter(option: str, subject: str | None) -> None:
    """End the command with 2 if the value of an option is no subject, with wildcards or without; None is not given."""
    if subject is not None and not is_valid_subject(subject):
        raise click.UsageError(f"{option} of {subject!r}: expected a subject such as 'orders.>'")
