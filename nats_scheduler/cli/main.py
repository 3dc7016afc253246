"""The command line: a list of commands, each imported when it is used.

Rule: only click is imported here: `nats-scheduler next` must not spend time on the client, nor `--help` on any command.
The table has the one-line help too, because asking a command for it would import the command; a test keeps both the
same.
Cost: the start of Python and click. Limit: a command that is not in the table does not exist.
"""

import json
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from nats_scheduler.version import VERSION

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("nats_scheduler.cli.run:command", "Serve message schedules beside a NATS server."),
    "dev": ("nats_scheduler.cli.dev:command", "Start a NATS server and the scheduler, to try things out."),
    "stream": ("nats_scheduler.cli.stream_commands:command", "Add streams that carry schedules, and list them."),
    "graduate": ("nats_scheduler.cli.graduate:command", "Hand a stream's schedules over to an upgraded server."),
    "export": (
        "nats_scheduler.cli.apply:export_command",
        "Write the schedules of streams as files for version control.",
    ),
    "diff": ("nats_scheduler.cli.apply:diff_command", "Show what `apply` would do with files of schedules."),
    "apply": ("nats_scheduler.cli.apply:apply_command", "Make the schedules of streams those of files."),
    "files": ("nats_scheduler.cli.schema_commands:files_command", "Show what a file of schedules may contain."),
    "calendar": (
        "nats_scheduler.cli.calendar:command",
        "Edit the calendars of days on which schedules do not fire.",
    ),
    "ls": ("nats_scheduler.cli.ls:command", "List schedules, their next fires, and what is wrong with them."),
    "info": ("nats_scheduler.cli.info:command", "Show all that is known of one schedule."),
    "add": ("nats_scheduler.cli.define:add_command", "Store a schedule, if it is valid."),
    "edit": ("nats_scheduler.cli.define:edit_command", "Change parts of a stored schedule."),
    "pause": ("nats_scheduler.cli.many:pause_command", "Pause schedules: they stay stored, and nothing fires them."),
    "resume": ("nats_scheduler.cli.many:resume_command", "Resume schedules that are paused."),
    "rm": ("nats_scheduler.cli.many:rm_command", "Remove schedules."),
    "fire": ("nats_scheduler.cli.many:fire_command", "Fire a schedule once, now."),
    "backfill": ("nats_scheduler.cli.many:backfill_command", "Store past fires of a schedule that are not stored."),
    "changes": (
        "nats_scheduler.cli.kept_advisories:changes_command",
        "Show who changed what in schedules and why, newest first.",
    ),
    "watch": ("nats_scheduler.cli.watch:command", "Follow fires, and what goes wrong, as it happens."),
    "top": (
        "nats_scheduler.cli.top:command",
        "Show live whether all is well: rates, lateness, failures.",
    ),
    "history": ("nats_scheduler.cli.history:command", "Show the past fires of a schedule, and how late they were."),
    "failures": (
        "nats_scheduler.cli.kept_advisories:failures_command",
        "Show what went wrong with schedules, newest first.",
    ),
    "instances": (
        "nats_scheduler.cli.instances:command",
        "List the sidecars, and the owner and standbys of each stream.",
    ),
    "doctor": (
        "nats_scheduler.cli.doctor:command",
        "Examine an account, and say what to do about what is wrong.",
    ),
    "web": ("nats_scheduler.cli.web:command", "Serve a status page for browsers."),
    "next": ("nats_scheduler.cli.next:command", "Show when a pattern fires, or a schedule that is stored."),
    "explain": ("nats_scheduler.cli.next:explain_command", "Say in plain words when a pattern fires; needs no server."),
    "check": ("nats_scheduler.cli.check:command", "Check a pattern or headers as the server would; needs no server."),
    "settings": ("nats_scheduler.cli.settings:command", "Show the settings in force, or the schema of their file."),
    "completion": (
        "nats_scheduler.cli.completion:command",
        "Print the script that completes commands in bash, zsh or fish.",
    ),
    "service": ("nats_scheduler.cli.schema_commands:service_command", "Show what can be asked of a running sidecar."),
    "advisories": (
        "nats_scheduler.cli.schema_commands:advisories_command",
        "Show what is in the advisories that a sidecar publishes.",
    ),
}
"""Commands by name, in the order of the help: the place of each one, and what it does."""

OTHER_NAMES = {
    "list": "ls",
    "delete": "rm",
    "del": "rm",
    "remove": "rm",
    "cancel": "rm",
    "status": "top",
    "health": "doctor",
    "start": "run",
    "serve": "run",
    "server": "dev",
    "show": "info",
    "get": "info",
    "describe": "info",
    "create": "add",
    "new": "add",
    "schedule": "add",
    "update": "edit",
    "set": "edit",
    "disable": "pause",
    "suspend": "pause",
    "enable": "resume",
    "trigger": "fire",
    "validate": "check",
    "events": "watch",
    "logs": "watch",
    "import": "apply",
    "migrate": "graduate",
    "upgrade": "graduate",
    "streams": "stream ls",
    "version": "--version",
    "help": "--help",
}
"""What people type who know other tools, and what it is here."""

EXIT_INTERRUPTED = 130
"""Ctrl-C: 128 and the number of the signal."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command with this name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name][0]} is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed; one that there is not is an error with what may have been meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            similar = OTHER_NAMES.get(name.lower()) or next(iter(get_close_matches(name.lower(), COMMANDS, 1)), "")
            hint = f": did you mean 'nats-scheduler {similar}'?" if similar else ""
            ctx.fail(f"no such command {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; if it fails with `--json`, print a document with the error on standard output.

        Ctrl-C ends a command that has no way of its own to end with `EXIT_INTERRUPTED`, as a shell expects.
        """
        wants_json = "--json" in ctx.args
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _end_line()
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except click.ClickException as error:
            if wants_json:
                failure = {"message": error.format_message(), "exit_code": error.exit_code}
                click.echo(json.dumps({"error": failure}, indent=2))
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands without importing them, and the options of the program."""
        offered = [(name, summary) for name, (_, summary) in COMMANDS.items() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=summary) for name, summary in offered] + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="nats-scheduler", message="%(prog)s %(version)s")
def main() -> None:
    """Message schedules (ADR-51) for every NATS server.

    It fires them on 2.10 and 2.11; from 2.12 on the server fires, and it shows, changes and watches them.

    Exit codes: 0 done, 1 the outcome is bad, 2 wrong use or settings, 130 Ctrl-C.
    """


def _end_line() -> None:
    """Begin a new line after the `^C` that a terminal shows."""
    if sys.stderr.isatty():
        click.echo(err=True)
