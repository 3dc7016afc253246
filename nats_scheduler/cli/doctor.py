"""`nats-scheduler doctor`: what is wrong with an account, worst first, why it matters, and what to type.

Rule: it reads and changes nothing; what is examined is in `nats_scheduler.doctor`. A user with few permissions gets a
report too, with notes on what could not be read, so it is best run as the sidecar's own user.
Cost: the headers of the streams are read once or twice. Limit: the report is about one moment.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import click

from nats_scheduler.cli.arguments import check_stream
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import (
    EXIT_FAILED,
    CommandError,
    json_option,
    print_json,
    print_table,
    print_warning,
    wide_option,
)
from nats_scheduler.cli.process import progress_bar
from nats_scheduler.cli.session import Session, open_session, with_sidecars
from nats_scheduler.control.errors import (
    ConnectionLostError,
    DeadlineError,
    ForbiddenError,
    NotConnectedError,
    RefusedError,
    SchedulerError,
)
from nats_scheduler.doctor.examination import examine, report_document
from nats_scheduler.doctor.facts import AccountFacts, Need, ServerReach, SidecarFacts
from nats_scheduler.doctor.gather import Gathering
from nats_scheduler.doctor.report import DoctorReport
from nats_scheduler.doctor.server import is_inbox_denied, reach_servers
from nats_scheduler.jetstream.streams import Progress, absence_of
from nats_scheduler.message.findings import Finding, Severity
from nats_scheduler.message.user_permissions import PUBLISH, SUBSCRIBE
from nats_scheduler.observe.texts import SERVER_ALONE
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.settings.load import ResolvedSettings

EXIT_WARNINGS = 3
"""The worst finding is a warning."""

EXIT_CODES = {Severity.ERROR: EXIT_FAILED, Severity.WARNING: EXIT_WARNINGS, Severity.NOTE: 0, None: 0}

COLUMNS = ("severity", "code", "stream", "what is wrong", "why it matters", "what to type")


@click.command("doctor")
@click.argument("stream", required=False)
@connection_options
@wide_option
@json_option
def command(resolved: ResolvedSettings, stream: str | None, wide: bool, as_json: bool) -> None:
    """Examine an account, and say what to do about what is wrong.

    Examines all streams, or one STREAM. Run it as the sidecar's user, so that its permissions are examined.
    Exit codes: 0 nothing or only notes, 1 an error was found, 2 wrong use or settings, 3 only warnings were found.
    """
    check_stream(stream)
    for warning in resolved.warnings:
        print_warning(warning)
    with progress_bar() as bar:
        try:
            facts = asyncio.run(gather_facts(resolved, stream, SystemClock().now, bar.show))
        except SchedulerError as error:
            raise CommandError(str(error)) from None
    report = examine(facts)
    if as_json:
        print_json(_document(facts, report))
    else:
        _print(facts, report, wide=wide)
    raise click.exceptions.Exit(EXIT_CODES[report.worst])


async def gather_facts(
    resolved: ResolvedSettings, only: str | None, now: Callable[[], int], progress: Progress
) -> AccountFacts:
    """Return the facts of an account; those that end the examination early are facts too.

    Raises `SchedulerError` if the connection is lost, and `CommandError` if the stream `only` does not exist.
    """
    progress("connecting", 0, 1)
    reaches = await reach_servers(resolved.settings.connection)
    if all(reach.failure for reach in reaches if reach.is_configured):
        return AccountFacts(at=now(), reaches=reaches)
    try:
        async with open_session(resolved.settings) as session:
            if only is not None and await _is_absent(session, only):
                raise CommandError(await absence_of(session.api, only))
            known, sidecars = await _sidecars(session, resolved)
            return await Gathering(known, now, progress).gather(reaches, sidecars, only)
    except ForbiddenError as error:
        return AccountFacts(at=now(), reaches=reaches, missing=[Need(PUBLISH, error.subject, is_optional=False)])
    except DeadlineError as error:
        connection = resolved.settings.connection
        if await is_inbox_denied(connection):
            inbox = Need(SUBSCRIBE, f"{connection.inbox_prefix}.>", is_optional=False)
            return AccountFacts(at=now(), reaches=reaches, missing=[inbox])
        return _unusable(reaches, now(), error)
    except (SchedulerError, CommandError) as error:
        return _unusable(reaches, now(), error)


async def _is_absent(session: Session, stream: str) -> bool:
    """Return whether a stream does not exist; one whose leader does not answer does."""
    try:
        return await session.api.stream(stream) is None
    except (DeadlineError, RefusedError):
        return False


def _unusable(reaches: Sequence[ServerReach], at: int, error: SchedulerError | CommandError) -> AccountFacts:
    """Return the facts of servers that are reached and cannot be used; raise the error if it is another one."""
    facts = AccountFacts(at=at, reaches=reaches)
    if isinstance(error, NotConnectedError | ConnectionLostError):
        raise error
    if isinstance(error, SchedulerError):
        return AccountFacts(at=at, reaches=reaches, jetstream_failure=str(error))
    if examine(facts).worst is Severity.ERROR:
        return facts
    raise error


async def _sidecars(session: Session, resolved: ResolvedSettings) -> tuple[Session, list[SidecarFacts] | None]:
    """Return the session with the settings of the running sidecars, and these; None if they may not be read."""
    try:
        session, found = await with_sidecars(session, resolved)
    except ForbiddenError:
        return session, None
    return session, [SidecarFacts(one.name, one.serves, one.unable) for one in found.alive]


# -- for people ------------------------------------------------------------------------------------------------


def _print(facts: AccountFacts, report: DoctorReport, *, wide: bool) -> None:
    if report.findings:
        rows = list(_rows(report))
        print_table(COLUMNS, rows, optional=["why it matters"], wide=wide)
        click.echo()
    click.echo(_summary(facts, report))
    if facts.sidecars is not None and not facts.sidecars and any(one.mode is Mode.NATIVE for one in facts.streams):
        click.echo(SERVER_ALONE)


def _rows(report: DoctorReport) -> Iterator[tuple[str, ...]]:
    """Yield the findings, and after those of one code and stream how many more there are."""
    more = report.unlisted
    for (code, stream), group in groupby(report.findings, key=lambda finding: (finding.code, finding.stream)):
        yield from map(_row, group)
        if (code, stream) in more:
            yield "", code, stream or "", f"and {more[code, stream]} more", "", ""


def _row(finding: Finding) -> tuple[str, ...]:
    return finding.severity, finding.code, finding.stream or "", finding.what, finding.why, finding.command


def _summary(facts: AccountFacts, report: DoctorReport) -> str:
    counts = [(severity, report.number_of(severity)) for severity in Severity]
    found = ", ".join(f"{number} {severity}{'' if number == 1 else 's'}" for severity, number in counts if number)
    served = sum(stream.mode is not None for stream in facts.streams)
    streams = f"{served} of {len(facts.streams)} streams carry schedules"
    return f"{found or 'nothing is wrong'}; {streams}" if facts.server is not None else found


# -- JSON ------------------------------------------------------------------------------------------------------


def _document(facts: AccountFacts, report: DoctorReport) -> dict[str, object]:
    """Return the report as a JSON object."""
    return {
        "server": None if facts.server is None else facts.server.version,
        "api_level": None if facts.server is None else facts.server.api_level,
        **report_document(report),
    }
