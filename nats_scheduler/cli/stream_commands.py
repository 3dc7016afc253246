"""`nats-scheduler stream`: add streams that carry schedules, and list them.

Rule: the requested configuration is exactly what is in the files. The rules of the server decide, on every version,
with its codes. If a file cannot be used, the other files still are.
Cost: three requests a stream. Limit: `unchanged` compares what the server returns before and after, so a change by
another client at the same moment counts too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import (
    EXIT_FAILED,
    EXIT_WRONG_USE,
    CommandError,
    json_option,
    print_json,
    print_table,
    wide_option,
)
from nats_scheduler.cli.session import Session, Sidecars, in_session, with_sidecars
from nats_scheduler.cli.without_sidecar import Source
from nats_scheduler.control.errors import RefusedError, RejectedError, SchedulerError
from nats_scheduler.jetstream.api import Config
from nats_scheduler.jetstream.streams import SERVER_METADATA_PREFIX, StreamState
from nats_scheduler.observe.documents import StreamModeDocument, error_document
from nats_scheduler.observe.texts import printable
from nats_scheduler.observe.times import moment_text
from nats_scheduler.runtime.modes import EXPLANATIONS, Mode
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.settings.json_files import read_stream_file
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.problems import SettingsError

NOT_SERVED = "allow_msg_schedules is not set, so its schedules do not fire"


class StreamOutcome(NamedTuple):
    """The outcome for a file: that its stream has its configuration, or why not."""

    document: Mapping[str, object]
    """Its JSON object."""
    message: str
    exit_code: int = 0
    """2 if the file could not be used, 1 if the stream could not be added."""


class ListedStream(NamedTuple):
    """A stream that carries schedules, who fires them, and what was answered of it."""

    name: str
    mode: Mode
    document: StreamModeDocument


@click.group("stream")
def command() -> None:
    """Add streams that carry schedules, and list them."""


@command.command("add")
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@connection_options
@json_option
def add(resolved: ResolvedSettings, files: tuple[str, ...], as_json: bool) -> None:
    """Create or update streams that carry schedules.

    FILE is what `nats stream add --config` takes, with "allow_msg_schedules": true.
    Exit codes: 0 all done, 1 a stream is refused or the server is not reached, 2 a file cannot be used.
    """
    outcomes: list[StreamOutcome] = []
    wanted: list[tuple[str, Config]] = []
    for file in files:
        try:
            wanted.append((file, read_stream_file(Path(file))))
        except SettingsError as error:
            document = {"file": file, "stream": None, "reason": str(error)}
            outcomes.append(StreamOutcome(document, str(error), EXIT_WRONG_USE))
    if not as_json:
        _print_outcomes(outcomes)
    added = in_session(resolved, lambda session: _add_all(session, wanted)) if wanted else []
    outcomes += added
    if as_json:
        streams = [one.document for one in outcomes if not one.exit_code]
        print_json({"streams": streams, "errors": [one.document for one in outcomes if one.exit_code]})
    else:
        _print_outcomes(added)
    raise click.exceptions.Exit(max(one.exit_code for one in outcomes))


@command.command("ls")
@connection_options
@wide_option
@json_option
def ls(resolved: ResolvedSettings, wide: bool, as_json: bool) -> None:
    """List the streams that carry schedules, and what fires them.

    A running sidecar is asked; if none answers, the server is.
    Exit codes: 0 listed, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    found, sidecars = in_session(resolved, lambda session: _list(session, resolved))
    if as_json:
        print_json({"streams": [_listed(stream, sidecars) for stream in found], **sidecars.document()})
        return
    sidecars.print_warnings()
    if not found:
        click.echo("no stream carries schedules: `nats-scheduler stream add FILE` makes one")
        return
    _print_streams(found, sidecars, wide=wide)


def _print_outcomes(outcomes: Sequence[StreamOutcome]) -> None:
    for one in outcomes:
        if one.exit_code:
            CommandError(printable(one.message)).show()
        else:
            click.echo(one.message)


async def _add_all(session: Session, wanted: list[tuple[str, Config]]) -> list[StreamOutcome]:
    """Create or update each stream in turn."""
    if not session.server.schedules_natively:
        await session.registry.open()
    return [await _add(session, file, config) for file, config in wanted]


async def _add(session: Session, file: str, config: Config) -> StreamOutcome:
    try:
        return await _added(session, file, config)
    except RejectedError as error:
        return _not_added(file, config, error_document(error.rejection), error)
    except RefusedError as error:
        codes = {"code": error.status, "err_code": error.code, "description": error.description}
        return _not_added(file, config, codes, error)
    except SchedulerError as error:  # the outcome is unknown; to add the stream again is harmless
        return _not_added(file, config, {"reason": str(error)}, error)


async def _added(session: Session, file: str, config: Config) -> StreamOutcome:
    before = await session.api.stream(config["name"])
    known = before is not None and (await session.flagged.recall(StreamState.from_info(before))).remembered is not None
    added, created = await session.flagged.add(config)
    state, mode = await session.with_mode(added)
    was_so = before is not None and _own(before["config"]) == _own(state.config)
    unchanged = was_so and (known or mode is not Mode.EMULATED)
    outcome = "created" if created else "unchanged" if unchanged else "updated"
    served = NOT_SERVED if mode is None else EXPLANATIONS[mode]
    document = {"file": file, "stream": state.name, "outcome": outcome, "mode": mode, "served": served}
    return StreamOutcome(document, f"stream {state.name} {outcome}, {mode or 'not served'}: {served}")


def _not_added(file: str, config: Config, error: Mapping[str, object], reason: Exception) -> StreamOutcome:
    return StreamOutcome({"file": file, "stream": config["name"], **error}, f"{file}: {reason}", EXIT_FAILED)


def _own(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what the server writes into it by itself."""
    metadata = {k: v for k, v in (config.get("metadata") or {}).items() if not k.startswith(SERVER_METADATA_PREFIX)}
    return {**config, "metadata": metadata}


async def _list(session: Session, resolved: ResolvedSettings) -> tuple[list[ListedStream], Sidecars]:
    session, sidecars = await with_sidecars(session, resolved)
    # With warnings, this command may have other settings than the sidecars.
    may_ask = bool(sidecars.alive) and not sidecars.warnings
    return await session.known(_listed_streams, may_ask=may_ask), sidecars


async def _listed_streams(source: Source) -> list[ListedStream]:
    """Return the streams; raises `ValueError` for a mode that a later version has, so that they are read."""
    return [ListedStream(one["stream"], Mode(one["mode"]), one) for one in await source.modes()]


def _print_streams(found: Sequence[ListedStream], sidecars: Sidecars, *, wide: bool) -> None:
    columns: dict[str, list[str]] = {
        "stream": [one.name for one in found],
        "mode": [one.mode for one in found],
    }
    if wide:
        columns["retention"] = [one.document["retention"] for one in found]
        columns["created"] = [_moment(one.document["created"]) for one in found]
        columns["with schedules since"] = [_moment(one.document["since"] or "-") for one in found]
    columns["sidecars"] = [str(sidecars.serving(one)) for one in found]
    problems = [(one, sidecars.why_not_fired(one)) for one in found]
    columns["who fires"] = [EXPLANATIONS[one.mode] if found is None else found.what for one, found in problems]
    print_table(list(columns), list(zip(*columns.values(), strict=True)), wide=wide)
    modes = Counter(str(one.mode) for one in found)
    click.echo(f"{len(found)} in all: {', '.join(f'{n} {mode}' for mode, n in sorted(modes.items()))}")


def _moment(text: str) -> str:
    instant = parse_rfc3339(text)
    return moment_text(instant) if isinstance(instant, int) else text


def _listed(one: ListedStream, sidecars: Sidecars) -> dict[str, object]:
    listed = one.document
    times = {"retention": listed["retention"], "created": listed["created"], "since": listed["since"]}
    return {**sidecars.stream_document(one), **times}
