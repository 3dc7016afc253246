"""`nats-scheduler graduate`: hand a stream's stored schedules over to the scheduler inside an upgraded server.

Rule: nothing is written before everything that would go wrong was found and reported, and nothing at all if a blocking
finding was not accepted by name.
Cost: the stream's headers are read once. Limit: it is for one stream, and cannot be undone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import click

from nats_scheduler.cli.arguments import check_stream
from nats_scheduler.cli.completion import complete_stream
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
from nats_scheduler.cli.session import Session, Sidecars, in_session, with_sidecars
from nats_scheduler.engine.handover import BLOCKING_KINDS, Cause, GraduationFinding, HandedOver, blocked_by
from nats_scheduler.jetstream.streams import reading_progress
from nats_scheduler.observe.documents import definition_document, next_fire_document, stored_document
from nats_scheduler.observe.times import time_text
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.graduation import Graduated, Graduation
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.settings.load import ResolvedSettings

MAX_ROWS_SHOWN = 10
"""The most schedules, and findings of one kind, that the tables show; JSON has all findings."""

FORCEABLE_FINDINGS = sorted(kind.value for kind in BLOCKING_KINDS - {Cause.REFUSED})
DOUBTFUL_TEXT = "the server was slow to make the update: it may have skipped a fire that was due in that second"


@dataclass(frozen=True, slots=True)
class GraduationOutcome:
    """The result that the command reports."""

    stream: str
    version: str
    outcome: str
    """`graduated`, `native` (it was before), `ready` (a dry run that would graduate) or `blocked`."""
    findings: Sequence[GraduationFinding]
    blocked: Sequence[Cause]
    handed_over: Sequence[HandedOver]
    done: Graduated | None = None


@click.command("graduate")
@click.argument("stream", shell_complete=complete_stream)
@connection_options
@click.option("--dry-run", is_flag=True, help="Only report what would be done, and what would go wrong.")
@click.option(
    "--force",
    metavar="FINDING",
    multiple=True,
    type=click.Choice(FORCEABLE_FINDINGS),
    help=f"Accept the consequences of this finding; may be repeated: {', '.join(FORCEABLE_FINDINGS)}.",
)
@wide_option
@json_option
def command(
    resolved: ResolvedSettings, stream: str, dry_run: bool, force: tuple[str, ...], wide: bool, as_json: bool
) -> None:
    """Hand a stream's schedules over to an upgraded server.

    A sidecar served STREAM, and its server is 2.12 or later now.
    Exit codes: 0 done, 1 blocked, refused or not reached, 2 wrong use or settings.
    """
    check_stream(stream)
    accepted = frozenset(map(Cause, force))
    outcome, sidecars = in_session(
        resolved, lambda session: _begin(session, resolved, stream, accepted, dry_run=dry_run)
    )
    if as_json:
        print_json({**_document(outcome), **sidecars.document()})
    else:
        sidecars.print_warnings()
        _print(outcome, wide=wide)
    raise click.exceptions.Exit(EXIT_FAILED if outcome.blocked else 0)


async def _begin(
    session: Session, resolved: ResolvedSettings, name: str, accepted: frozenset[Cause], *, dry_run: bool
) -> tuple[GraduationOutcome, Sidecars]:
    session, sidecars = await with_sidecars(session, resolved)
    return await _graduate(session, name, accepted, dry_run=dry_run), sidecars


async def _graduate(session: Session, name: str, accepted: frozenset[Cause], *, dry_run: bool) -> GraduationOutcome:
    served = await session.served_stream(name)
    _expect_dormant(session, name, served.mode)
    graduation = Graduation(session.connection, session.api, session.server, served.state, SystemClock().now)
    with progress_bar() as bar:
        restrictions = session.settings.restrictions_on(name)
        await graduation.look(
            session.registry, restrictions, reading_progress(bar.show, name, served.state), session.calendars
        )
    version, findings = session.server.version, graduation.findings
    if served.mode is Mode.NATIVE:
        return GraduationOutcome(name, version, "native", (), (), graduation.handed_over)
    blocked = blocked_by(findings, accepted.__contains__)
    if blocked or dry_run:
        outcome = "blocked" if blocked else "ready"
        return GraduationOutcome(name, version, outcome, findings, blocked, graduation.handed_over)
    done = await graduation.carry_out()
    return GraduationOutcome(name, version, "graduated", findings, (), done.handed_over, done)


def _expect_dormant(session: Session, name: str, mode: Mode) -> None:
    """End the command if there is nothing to graduate, or no native scheduler to hand over to."""
    if mode is Mode.EMULATED:
        version = session.server.version
        raise CommandError(f"stream {name}: the server is {version}, without a scheduler of its own: upgrade it first")
    if mode is Mode.PORTABLE:
        raise CommandError(f"stream {name} has portable headers only: they stay with the sidecar")


# -- for people ------------------------------------------------------------------------------------------------


def _print(outcome: GraduationOutcome, *, wide: bool) -> None:
    if outcome.findings:
        _print_findings(outcome, wide=wide)
    if outcome.handed_over:
        print_table(
            ["subject", "pattern", "target", "next fire (UTC)"],
            [
                (
                    one.held.subject,
                    one.held.pattern.text,
                    one.held.terms.target,
                    "-" if one.next_fire is None else time_text(one.next_fire),
                )
                for one in outcome.handed_over[:MAX_ROWS_SHOWN]
            ],
            optional=["target"],
            wide=wide,
        )
        if len(outcome.handed_over) > MAX_ROWS_SHOWN:
            click.echo(f"and {len(outcome.handed_over) - MAX_ROWS_SHOWN} more")
    click.echo(_summary(outcome))
    if outcome.done is not None and outcome.done.doubtful:
        print_warning(DOUBTFUL_TEXT)
    if outcome.blocked:
        CommandError(f"stream {outcome.stream} was not graduated: {_advice(outcome.blocked)}").show()


def _print_findings(outcome: GraduationOutcome, *, wide: bool) -> None:
    numbers, shown, rows = Counter(finding.kind for finding in outcome.findings), Counter[Cause](), []
    for finding in outcome.findings:
        shown[finding.kind] += 1
        if shown[finding.kind] <= MAX_ROWS_SHOWN:
            mark = "blocks" if finding.kind in outcome.blocked else ""
            rows.append((finding.kind, mark, finding.subject or "", finding.pattern or "", finding.detail))
        elif shown[finding.kind] == MAX_ROWS_SHOWN + 1:
            rows.append((finding.kind, "", f"and {numbers[finding.kind] - MAX_ROWS_SHOWN} more", "", ""))
    columns = ["finding", "", "subject", "pattern", "what it means"]
    print_table(columns, rows, optional=["pattern"], wide=wide)
    click.echo()


def _summary(outcome: GraduationOutcome) -> str:
    number = len(outcome.handed_over)
    if outcome.done is None:
        said = {"native": "is native already: the server holds", "ready": "can graduate: the server would hold"}
        words = said.get(outcome.outcome, "is blocked: the server would hold")
        return f"stream {outcome.stream} {words} {number} schedules"
    done = outcome.done
    return (
        f"stream {outcome.stream} graduated: the server ({outcome.version}) holds {number} schedules; "
        f"{done.removed} messages removed, {done.made_up} fires made up"
    )


def _advice(blocked: Sequence[Cause]) -> str:
    if Cause.REFUSED in blocked:
        return "the server would refuse its configuration"
    forces = " ".join(f"--force {kind}" for kind in blocked)
    return f"{', '.join(blocked)} above would lose or double fires; correct that, or accept it with {forces}"


# -- JSON ------------------------------------------------------------------------------------------------------


def _document(outcome: GraduationOutcome) -> dict[str, object]:
    done = outcome.done
    return {
        "stream": outcome.stream,
        "server": outcome.version,
        "outcome": outcome.outcome,
        "blocked_by": list(outcome.blocked),
        "findings": [{**finding._asdict(), "blocks": finding.kind in BLOCKING_KINDS} for finding in outcome.findings],
        "handed_over": len(outcome.handed_over),
        "next_fires": [_next_fire(outcome.stream, one) for one in outcome.handed_over[:MAX_ROWS_SHOWN]],
        "removed": None if done is None else done.removed,
        "make_up_fires": None if done is None else done.made_up,
        "doubtful": None if done is None else done.doubtful,
    }


def _next_fire(stream: str, one: HandedOver) -> dict[str, object]:
    held = one.held
    return {
        **stored_document(stream, held),
        **definition_document(held.pattern, held.terms),
        "next_fire": next_fire_document(held.pattern, one.next_fire),
    }
