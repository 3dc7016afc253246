"""`nats-scheduler completion`: the script with which a shell completes commands, options and names.

Rule: the script asks this program at each press of the key, by click's own mechanism, so that it never is out of date.
Commands are completed from the table in `cli.main`, without importing any.
Names of streams and of calendars, and the subjects of schedules, are asked of the server that the flags, variables and
contexts name, within `STREAMS_DEADLINE_SECONDS`; if it does not answer in time, or for any other reason, none are
offered, and of the subjects those that were read until then.
Cost: the start of Python at each press; for those also the client and one connection.
Limit: the first page of the server's list of streams is offered, and `MAX_SUBJECTS` subjects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from nats_scheduler.jetstream.api import JetStreamApi
    from nats_scheduler.jetstream.connection import Connection
    from nats_scheduler.settings.sidecar import SidecarSettings

PROGRAM = "nats-scheduler"
COMPLETE_VARIABLE = "_NATS_SCHEDULER_COMPLETE"
"""The variable with which the script asks; click derives its name from that of the program."""
SHELLS = ("bash", "zsh", "fish")
FISH_SPLIT = ('string split "," ', 'string split --max 1 "," ')
"""What click writes for fish, and what cuts no name or description at its first comma."""
STREAMS_DEADLINE_SECONDS = 1.0
"""Longest wait for a server while a person waits for the completion."""
MAX_SUBJECTS = 200
"""Most subjects that are offered."""


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that completes commands in bash, zsh or fish.

    For bash: eval "$(nats-scheduler completion bash)" in ~/.bashrc.
    Exit codes: 0 done, 2 wrong use.
    """
    completion = get_completion_class(shell)
    assert completion is not None, f"click knows no completion for {shell}"
    root = click.get_current_context().find_root().command
    script = completion(root, {}, PROGRAM, COMPLETE_VARIABLE)
    click.echo((script.source_template % script.source_vars()).replace(*FISH_SPLIT))


def complete_stream(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of the account's streams that begin with what was typed."""
    return _offered(_stream_names, context, incomplete)


def complete_calendar(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of calendars that begin with what was typed."""
    return _offered(_calendar_names, context, incomplete)


def complete_subject(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the subjects of the schedules in the stream that was typed, paused and invalid ones too."""
    found: set[str] = set()
    with suppress(Exception):  # as for names; what was found until the deadline is offered
        asyncio.run(_find_subjects(context.params, incomplete, found))
    return [CompletionItem(subject) for subject in sorted(found)]


def _offered(
    read: Callable[[dict[str, Any]], Coroutine[Any, Any, list[str]]], context: click.Context, incomplete: str
) -> list[CompletionItem]:
    """Return the names that begin with what was typed; none if they cannot be read."""
    try:
        names = asyncio.run(read(context.params))
    except Exception:  # a prompt is no place for an error, whatever it is
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


async def _find_subjects(parameters: dict[str, Any], incomplete: str, found: set[str]) -> None:
    """Add to `found` the subjects of schedules that begin with what was typed; those that were typed are left out."""
    from nats_scheduler.cli.session import open_session

    stream, typed = parameters["stream"], set(parameters.get("subjects") or ())
    folder = incomplete.rpartition(".")[0]
    async with asyncio.timeout(STREAMS_DEADLINE_SECONDS), open_session(_resolved(parameters)) as session:
        async for message in session.store.schedules(stream, f"{folder}.>" if folder else ">"):
            if message.subject.startswith(incomplete) and message.subject not in typed:
                found.add(message.subject)
            if len(found) == MAX_SUBJECTS:
                return


async def _calendar_names(parameters: dict[str, Any]) -> list[str]:
    from nats_scheduler.jetstream.buckets import CalendarBucket

    resolved = _resolved(parameters)
    async with _asked(resolved) as (connection, api):
        bucket = CalendarBucket(connection, api, resolved.calendars_bucket)
        return [key async for key in bucket.keys_within(">")]


async def _stream_names(parameters: dict[str, Any]) -> list[str]:
    """Ask the server that the flags typed so far, the variables and the contexts name."""
    async with _asked(_resolved(parameters)) as (_connection, api):
        found = (await api.call("STREAM.NAMES")).get("streams")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _resolved(parameters: dict[str, Any]) -> SidecarSettings:
    """Return the settings by the flags typed so far, the variables and the contexts."""
    from nats_scheduler.cli.options import resolve
    from nats_scheduler.settings.fields import setting_fields

    names = {field.name for key, field in setting_fields().items() if "." in key} | {"context", "no_context"}
    flags = {name: value for name, value in parameters.items() if name in names}
    return resolve(flags, parameters.get("settings_file")).settings


@asynccontextmanager
async def _asked(settings: SidecarSettings) -> AsyncIterator[tuple[Connection, JetStreamApi]]:
    """Connect to the server that the settings name, for a moment."""
    from nats_scheduler.jetstream.api import JetStreamApi
    from nats_scheduler.jetstream.dial import Dialer

    chosen = settings.connection
    async with asyncio.timeout(STREAMS_DEADLINE_SECONDS):
        connection = await Dialer(chosen).dial()
        try:
            yield connection, JetStreamApi(connection, chosen.api_prefix, STREAMS_DEADLINE_SECONDS)
        finally:
            await connection.close()
