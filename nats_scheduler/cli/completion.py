"""`nats-scheduler completion`: the script with which a shell completes commands, options and names.

Rule: the script asks this program at each press of the key, by click's own mechanism, so that it never is out of date.
Commands are completed from the table in `cli.main`, without importing any.
Names of streams and of calendars, and the subjects of schedules, are asked of the server that the flags, variables and
contexts name, within `STREAMS_DEADLINE_SECONDS`; if it does not answer in time, or for any other reason, those are
offered that were read until then.
What is offered is pasted into the line of a shell, and a publisher chose its text. So a name that a shell would read as
more than a word, such as `a.$(rm x)`, is not offered.
Cost: the start of Python at each press; for those also the client and one connection.
Limit: the first page of the server's list of streams is offered, and `MAX_SUBJECTS` subjects.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from nats_scheduler.cli.session import Session

PROGRAM = "nats-scheduler"
COMPLETE_VARIABLE = "_NATS_SCHEDULER_COMPLETE"
"""The variable with which the script asks; click derives its name from that of the program."""
SHELLS = ("bash", "zsh", "fish")
FISH_SPLIT = ('string split "," ', 'string split --max 1 "," ')
"""The command that click writes for fish, and its replacement, which cuts no name or description at a comma."""
STREAMS_DEADLINE_SECONDS = 1.0
"""Longest wait for a server while a person waits for the completion."""
MAX_SUBJECTS = 200
"""Most subjects that are offered."""
is_word = re.compile(r"[A-Za-z0-9_./@\u0080-\U0010ffff][A-Za-z0-9_./@:,+%=\u0080-\U0010ffff-]*").fullmatch
"""Whether each shell reads a text as a word of just these characters, that is no option either."""


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


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Read = Callable[["Session", dict[str, Any], str], AsyncIterator[str]]
"""Yields names, given the parameters that were typed before, and what was typed of the name."""


async def _streams(session: "Session", _parameters: dict[str, Any], _incomplete: str) -> AsyncIterator[str]:
    for name in await session.api.stream_names():
        yield name


async def _calendars(session: "Session", _parameters: dict[str, Any], _incomplete: str) -> AsyncIterator[str]:
    async for name in session.calendars.keys_within(">"):
        yield name


async def _subjects(session: "Session", parameters: dict[str, Any], incomplete: str) -> AsyncIterator[str]:
    """Yield the subjects of the schedules in the stream that was typed, but for those that were typed too."""
    typed, offered = set(parameters.get("subjects") or ()), 0
    folder = incomplete.rpartition(".")[0]
    async for message in session.store.schedules(parameters["stream"], f"{folder}.>" if folder else ">"):
        if message.subject.startswith(incomplete) and message.subject not in typed:
            yield message.subject
            offered += 1
        if offered == MAX_SUBJECTS:
            return


def is_offered(name: str) -> bool:
    """Return whether a name can be pasted into the line of a shell as it is."""
    return name.isprintable() and is_word(name) is not None


def _completion(read: Read) -> Complete:
    """Return what offers the names that begin with what was typed, as far as they are read in time."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found: set[str] = set()
        with suppress(Exception):  # a prompt is no place for an error, whatever it is
            asyncio.run(_find(read, context.params, incomplete, found))
        return [CompletionItem(one) for one in sorted(found) if one.startswith(incomplete) and is_offered(one)]

    return complete


complete_stream = _completion(_streams)
complete_calendar = _completion(_calendars)
complete_subject = _completion(_subjects)
"""The subjects of schedules, paused and invalid ones too."""


async def _find(read: Read, parameters: dict[str, Any], incomplete: str, found: set[str]) -> None:
    """Add the names to `found`, as they are read, with the flags typed so far, the variables and the contexts."""
    from nats_scheduler.cli.options import resolve
    from nats_scheduler.cli.session import open_session
    from nats_scheduler.settings.fields import setting_fields

    names = {field.name for key, field in setting_fields().items() if "." in key} | {"context", "no_context"}
    flags = {name: value for name, value in parameters.items() if name in names}
    settings = resolve(flags, parameters.get("settings_file")).settings
    async with asyncio.timeout(STREAMS_DEADLINE_SECONDS), open_session(settings) as session:
        async for name in read(session, parameters, incomplete):
            found.add(name)
