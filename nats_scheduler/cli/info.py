"""`nats-scheduler info`: one schedule: what was published, when it fires and who fires it, and what is wrong with it.

Rule: it is read as `ls` reads it, with the same code, and its pattern is explained as by `explain`; nothing is changed.
Cost: the stream's headers are read once, as by `ls`, the past fires are searched as by `history`, and what went wrong
as by `failures`.
Limit: the next fire of a schedule of the server is that of its pattern.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from nats_scheduler.cli.arguments import check_stream, zone_option
from nats_scheduler.cli.completion import complete_stream, complete_subject
from nats_scheduler.cli.contents import header_texts, of_content, print_body
from nats_scheduler.cli.fire_table import print_fires
from nats_scheduler.cli.history import print_past_fires
from nats_scheduler.cli.listing import Listing, end_reason, not_stored_error, read_listing
from nats_scheduler.cli.next import fire_count_option
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import CommandError, json_option, labelled_lines, print_json, print_table, wide_option
from nats_scheduler.cli.session import ServedStream, Session, in_session
from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.control.past import FireQuery
from nats_scheduler.engine.events import HeadersMisnamed
from nats_scheduler.engine.holding.inactive import Rejected
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import FiredBy, ListedSchedule, Query, findings_on
from nats_scheduler.message.findings import Finding
from nats_scheduler.message.subjects import is_literal_subject
from nats_scheduler.observe.documents import (
    FailureDocument,
    PastFireDocument,
    finding_document,
    instant_of,
    marked_fire_documents,
    misnamed_document,
    rejected_document,
    schedule_document,
    skipped_documents,
)
from nats_scheduler.observe.message_contents import ContentDocument
from nats_scheduler.observe.texts import (
    how_to_resume,
    printable,
    schedule_words,
    takeover_text,
    what_happened,
)
from nats_scheduler.observe.times import moment_text, span_text, time_text
from nats_scheduler.runtime.modes import EXPLANATIONS
from nats_scheduler.schedule.clock_changes import NextFire, SkippedTimes, with_clock_changes
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.schemas import OwnershipDocument
from nats_scheduler.service.stored_advisories import AdvisoryQuery
from nats_scheduler.settings.load import ResolvedSettings

MAX_FIRES_SHOWN = 1_000
"""The most fires that one call shows."""

MAX_FAILURES_SHOWN = 5
"""The most failures of it that are shown: `failures` shows the others."""

LABEL_CHARS = 11
DONE = frozenset({State.FIRED, State.CANCELLED, State.ENDED})
"""The states in which a schedule never fires again."""


@dataclass(frozen=True, slots=True)
class Story:
    """All that is known of the schedule on one subject."""

    subject: str
    listing: Listing
    message: ContentDocument | None
    """The message of the schedule, or what is stored instead of one; None if it was removed meanwhile."""
    version: str
    """The version of the server."""
    past: Sequence[PastFireDocument]
    """Its last fires, the newest first."""
    failures: Sequence[FailureDocument]
    """What went wrong with it last, the newest first."""

    @property
    def stream(self) -> ServedStream:
        """The stream that was read."""
        return self.listing.streams[0]

    @property
    def findings(self) -> Sequence[Finding]:
        """What is found about it."""
        listing, rules = self.listing, self.stream.state.rules
        return findings_on(listing.schedule, self.rejected, self.misnamed, rules, listing.server, listing.at)

    @property
    def rejected(self) -> Rejected | None:
        """The message, if it is rejected as a schedule."""
        return next((found for _, found in self.listing.rejected), None)

    @property
    def misnamed(self) -> HeadersMisnamed | None:
        """The message, if it has headers that look like those of a schedule and are none."""
        return next((found for _, found in self.listing.misnamed), None)

    @property
    def ownership(self) -> OwnershipDocument | None:
        """The owner and the standbys of the stream; None if no sidecar has read it, or if none is to fire it."""
        one = self.listing.schedule
        is_for_sidecars = one is None or one.fired_by is FiredBy.SIDECAR
        return self.listing.sidecars.ownership(self.stream) if is_for_sidecars else None

    def next_fires(self, count: int) -> list[NextFire | SkippedTimes]:
        """Return the next fires, and what is skipped between them."""
        one = self.listing.schedule
        if one is None or one.next_fire is None or one.state in DONE:
            return []
        fires: list[int] = []
        fire: int | None = one.next_fire
        while fire is not None and len(fires) < count:
            fires.append(fire)
            fire = one.fire_after(fire)
        return with_clock_changes(one.pattern, min(self.listing.at, one.next_fire), fires)


@click.command("info")
@click.argument("stream", shell_complete=complete_stream)
@click.argument("subject", shell_complete=complete_subject)
@connection_options
@zone_option
@fire_count_option(MAX_FIRES_SHOWN)
@wide_option
@json_option
def command(resolved: ResolvedSettings, stream: str, subject: str, count: int, wide: bool, as_json: bool) -> None:
    """Show all that is known of one schedule.

    It is the schedule on SUBJECT, in STREAM.
    A running sidecar is asked; if none answers, the stream is read.
    Exit codes: 0 shown, 1 there is none, or the server refuses or is not reached, 2 wrong use or settings.
    """
    check_stream(stream)
    if not is_literal_subject(subject):
        raise click.UsageError(f"{subject!r}: expected a subject without wildcards, such as 'orders.reminder'")
    story = in_session(resolved, lambda session: _read(session, resolved, stream, subject, count))
    if as_json:
        print_json(_document(story, count))
    else:
        story.listing.sidecars.print_warnings()
        _print(story, count, wide=wide)


async def _read(session: Session, resolved: ResolvedSettings, stream: str, subject: str, count: int) -> Story:
    listing = await read_listing(session, resolved, stream, Query(subject=subject))
    rows = (listing.schedules, listing.rejected, listing.misnamed)
    sequences = [one.sequence for found in rows for _, one in found]
    failures = await _failures(session, resolved, AdvisoryQuery(stream, subject, MAX_FAILURES_SHOWN))
    if not sequences:
        more = f"; `nats-scheduler failures {stream} {printable(subject)}` says what went wrong" if failures else ""
        raise CommandError(not_stored_error(stream, subject).message + more)
    message = await session.known(lambda known: known.content(stream, subject, sequences[0]))
    past = await session.known(lambda known: known.fires(stream, FireQuery(subject, count)))
    return Story(subject, listing, message, session.server.version, past["fires"], failures)


async def _failures(session: Session, resolved: ResolvedSettings, query: AdvisoryQuery) -> Sequence[FailureDocument]:
    """Return what went wrong, as far as it is kept and may be read."""
    kept_in = resolved.settings.failures_stream
    try:
        return (await session.known(lambda known: known.failures(kept_in, query)))["failures"]
    except (CommandError, SchedulerError):
        return []


# -- for people ------------------------------------------------------------------------------------------------


def _print(story: Story, count: int, *, wide: bool) -> None:
    lines: list[tuple[str, str]] = [("schedule", f"{story.subject} in {story.stream.state.name}")]
    lines += _published_lines(story)
    one = story.listing.schedule
    if one is not None:
        lines += _schedule_lines(story, one)
    lines += [(finding.severity.value, finding.sentence) for finding in story.findings]
    if len(story.listing.schedules) > 1:
        lines.append(("beware", "the message has both spellings of the headers: the server fires it as well"))
    _print_labelled(lines, wide=wide)
    if story.message is not None:
        source = None if one is None else one.terms.source
        print_body(story.message, "Its body", f"; its fires copy the last message on {source}" if source else "")
    entries = story.next_fires(count)
    if one is not None and entries:
        click.echo("\nIts next fires:\n")
        print_fires(one.timetable, entries, wide=wide)
    _print_past(story, wide=wide)


def _print_past(story: Story, *, wide: bool) -> None:
    """Print its last fires, and what went wrong with it."""
    if story.past:
        click.echo("\nIts last fires, newest first:\n")
        print_past_fires(story.past, wide=wide)
    elif story.listing.schedule is not None:
        click.echo("\nNo fire of it is stored.")
    if story.failures:
        click.echo("\nWhat went wrong with it, newest first:\n")
        rows = [
            [moment_text(instant_of(one["stored"])), one["kind"], what_happened(one["advisory"])]
            for one in story.failures
        ]
        print_table(("stored (UTC)", "kind", "what"), rows, wide=wide)


def _schedule_lines(story: Story, one: ListedSchedule) -> list[tuple[str, str]]:
    lines = [("fires", _words(one)), ("state", _state_text(one, story.listing.at))]
    if one.state is State.PAUSED:
        lines.append(("resume", how_to_resume(story.stream.name, story.subject, one.terms.dialect)))
    lines.append(("fired by", _fired_by_text(story, one)))
    lines.append(("removed", _end_text(one)))
    return lines


def _published_lines(story: Story) -> list[tuple[str, str]]:
    message = story.message
    if message is None:
        return [("published", "it was removed while it was read")]
    stored_at, size = instant_of(message["stored"]), message["body_bytes"]
    at = f"{moment_text(stored_at)}, {span_text(max(story.listing.at - stored_at, 0))} ago"
    lines = [("published", f"{at}, as sequence {message['sequence']}, with a body of {size} bytes")]
    return lines + [("", text) for text in header_texts(message)]


def _state_text(one: ListedSchedule, at: int) -> str:
    if one.state is State.PAUSED:
        since = f"{moment_text(one.stored_at)}, {span_text(max(at - one.stored_at, 0))} ago"
        return f"paused since {since}: it fires nothing until it is resumed"
    if one.next_fire is None:
        return one.state.value
    sent = one.sent
    away = (one.next_fire if sent is None else sent) - at
    when = f"in {span_text(away)}" if away > 0 else f"{span_text(-away)} ago"
    word = "was due" if away <= 0 else "next fire"
    delayed = "" if sent is None else f", sent at {time_text(sent)}"
    return f"{one.state.value}, {word} at {time_text(one.next_fire)}{delayed}, {when}"


def _words(one: ListedSchedule) -> str:
    return schedule_words(one.pattern, one.terms.policies, one.stored_at)


def _fired_by_text(story: Story, one: ListedSchedule) -> str:
    """Return who fires a schedule, or why nothing does; of a paused one, who fires it when it is resumed."""
    if one.fired_by is FiredBy.SERVER:
        return f"the server itself (version {story.version})"
    if one.fired_by is FiredBy.NONE:
        return f"nothing: {EXPLANATIONS[story.stream.mode]}"
    if problem := story.listing.sidecars.why_not_served(story.stream):
        return problem.what
    known = story.ownership
    if known is None or known["owner"] is None or known["takeover_reason"] is None:
        return "nothing at the moment: no sidecar that is alive owns the stream"
    standbys, since = known["standbys"], known["owner_since"]
    moment = "" if since is None else f" since {moment_text(instant_of(since))}"
    why = takeover_text(known["takeover_reason"], known["owner_before"])
    stand_by = f"{', '.join(standbys) or 'no other one'} stand{'' if len(standbys) > 1 else 's'} by"
    return f"the sidecar {known['owner']}, which owns the stream{moment} ({why}); {stand_by}"


def _end_text(one: ListedSchedule) -> str:
    """Return when the stream removes a schedule by itself, and whether that is before its next fire."""
    if one.ends is None:
        return "never by the stream: neither max_age nor Nats-TTL ends it"
    place = ""
    if one.state is State.EXPIRING:
        place = ", BEFORE its next fire: it will not fire"
    elif one.next_fire is not None and one.state not in DONE:
        place = ", after its next fire"
    return f"at {moment_text(one.ends)} by {end_reason(one)}{place}"


def _print_labelled(lines: Sequence[tuple[str, str]], *, wide: bool) -> None:
    """Print labels and texts; on a terminal a long text is folded beside its label."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() and not wide else None
    shown = [(label, printable(text)) for label, text in lines]
    click.echo("\n".join(labelled_lines(shown, LABEL_CHARS, room)))


# -- JSON ------------------------------------------------------------------------------------------------------


def _document(story: Story, count: int) -> dict[str, object]:
    name, mode, listing, one = story.stream.state.name, story.stream.mode, story.listing, story.listing.schedule
    entries = story.next_fires(count)
    known = story.ownership
    return {
        "at": format_rfc3339(listing.at),
        "stream": listing.sidecars.stream_document(story.stream),
        "schedule": None if one is None else schedule_document(name, mode, one),
        "rejected": None if story.rejected is None else rejected_document(name, mode, story.rejected),
        "misnamed": None if story.misnamed is None else misnamed_document(name, story.misnamed),
        "findings": [*map(finding_document, story.findings)],
        "message": None if story.message is None else of_content(story.message),
        "words": None if one is None else _words(one),
        "next_fires": [] if one is None else marked_fire_documents(one.timetable, entries),
        "skipped": skipped_documents(entries),
        "fires": list(story.past),
        "failures": list(story.failures),
        "owner": None if known is None else known["owner"],
        "owner_since": None if known is None else known["owner_since"],
        "takeover_reason": None if known is None else known["takeover_reason"],
        "standbys": [] if known is None else known["standbys"],
        **listing.sidecars.document(),
    }
