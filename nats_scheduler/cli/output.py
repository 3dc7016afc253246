"""What commands print: tables for people, JSON for programs, and one form for all errors.

Rule: answers go to standard output, errors and warnings to standard error. With `--json` standard output has exactly
one document; if the command fails, it has the field `error`.
Texts from messages are printed with their control characters escaped, since a header may contain terminal commands.
Tables are laid out in `cli.tables`.
"""

from __future__ import annotations

import json
import sys
from typing import IO, Any

import click

from nats_scheduler.cli.tables import print_table, printable
from nats_scheduler.message.rejection import Rejection

__all__ = [
    "EXIT_FAILED",
    "EXIT_WRONG_USE",
    "CommandError",
    "print_json",
    "print_table",
    "print_warning",
    "printable",
    "rejection_error",
]

EXIT_FAILED = 1
"""The command ran, and the outcome is bad: an invalid pattern, a server that does not answer."""
EXIT_WRONG_USE = 2
"""The command could not begin: wrong arguments or settings."""


class CommandError(click.ClickException):
    """Ends a command with a message for the operator."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        """Hold the message, and the exit code of the process."""
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it off the instance too

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message on standard error, each line with a prefix."""
        for line in self.message.splitlines():
            click.echo(f"nats-scheduler: error: {line}", file=file or sys.stderr)


def print_warning(text: str) -> None:
    """Print a warning on standard error."""
    click.echo(f"nats-scheduler: warning: {text}", err=True)


def print_json(document: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2))


def rejection_error(rejection: Rejection) -> CommandError:
    """Return the error that ends a command because the server would refuse the message."""
    return CommandError(f"{printable(str(rejection))}\nthe server's error: {rejection.description}")
