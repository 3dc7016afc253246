"""Schedules, fires and rejections as JSON objects: one vocabulary for every command and for the micro service.

Rule: one thing has one key in all documents. An object always has all of its keys; what does not apply is null. Times
are RFC 3339 in UTC with the nanoseconds that are not zero; only the next fire also has the local time, and the number.
The types are what a JSON Schema is made of, so pydantic accepts each of them as it stands.

Cost: some microseconds for each schedule.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from typing_extensions import TypedDict

from nats_scheduler.control.changed_parts import PartsDocument, parts_document
from nats_scheduler.control.changes import Change, Kind
from nats_scheduler.engine.events import FireConfirmed, HeadersMisnamed
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.inactive import Rejected
from nats_scheduler.engine.views.view import Counts, ListedSchedule
from nats_scheduler.message.findings import Finding
from nats_scheduler.message.past_fires import PastFire
from nats_scheduler.message.reading import Reading
from nats_scheduler.message.rejection import Failing, Rejection
from nats_scheduler.message.schedule_form import FormDocument, Terms, form_document
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.times import wall_text
from nats_scheduler.schedule.clock_changes import NextFire, SkippedTimes, with_clock_changes
from nats_scheduler.schedule.patterns import Pattern, kind_of
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339

T = TypeVar("T")


class Within:
    """Limits a value where a document is read: what pydantic is asked for, without an import of it."""

    def __init__(self, **limits: Any) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the schema with the limits."""
        return {**handler(source), **self._limits}


Rows = Annotated[list[T], Within(fail_fast=True)]
"""A list of a document: reading it ends at the first item of another form, so that it does not take long to refuse."""

Number = Annotated[int, Within(ge=-(1 << 63), lt=1 << 64)]
"""A number as a server has it, of 64 bits: JSON has others, and not everything can be done with them."""

Count = Annotated[int, Within(ge=0, lt=1 << 63)]
"""A number that is added up and drawn."""


def instant_of(time: str) -> int:
    """Return a time of a document, in nanoseconds since the Unix epoch; raises `ValueError` for another text."""
    instant = parse_rfc3339(time)
    if not isinstance(instant, int):
        raise ValueError(f"time of {time!r}")
    return instant


class _Checked:
    """Refuses a text that is no time where a document is read, as `Within` does values outside of its limits."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the schema with the check."""
        return {"type": "function-after", "function": {"type": "no-info", "function": _time}, "schema": handler(source)}


def _time(text: str) -> str:
    instant_of(text)
    return text


Time = Annotated[str, _Checked()]
"""A time, RFC 3339."""


class FireDocument(TypedDict):
    """A fire time."""

    utc: Time
    local: str
    """In the time zone of the schedule."""
    nanoseconds: Number
    """Since the Unix epoch."""
    sent: Time | None
    """The time at which it is sent if a jitter delays it; null if that is at the fire time, or not known yet."""


class MarkedFireDocument(FireDocument):
    """A fire time, and what a change of the clock does to it."""

    clock_change: str | None
    """`moved`, `after_gap`, `first_of_two` or `second_of_two`."""
    clock_shift_seconds: Number | None
    """By how much the clock goes forward at that change; negative if it goes back."""


class SkippedDocument(TypedDict):
    """Local times, without an offset, at which nothing fires because the clock skips them."""

    first: str
    last: str
    """The same as `first` if there is only one."""
    clock_from: str
    clock_to: str
    """The time that the clock shows instead of `clock_from`."""


class DefinitionDocument(FormDocument):
    """The headers of a schedule, as they were written."""

    kind: str
    """`at`, `every` or `cron`."""
    dialect: str
    """The spelling of the headers: `adr51` or `portable`."""
    policies: dict[str, str]
    """Its policies by their names without the prefix, such as `X-Start`."""


class ErrorDocument(TypedDict):
    """Why the server refuses, or would refuse: its own error, and the header that is wrong."""

    code: Number
    """The HTTP-like status."""
    err_code: Number
    description: str
    header: str
    value: str
    reason: str


class FailingDocument(TypedDict):
    """Why the server refuses the fires of a schedule, and since when."""

    err_code: Number
    description: str
    since: Time


class EndDocument(TypedDict):
    """The time at which a stream removes a schedule by itself, and the reason: `max_age`, or `expired` for its TTL."""

    utc: Time
    reason: str


class StoredDocument(TypedDict):
    """Where a message is stored, and since when."""

    stream: str
    subject: str
    sequence: Number
    stored: Time


class ScheduleDocument(StoredDocument, DefinitionDocument):
    """A schedule that is valid and the last message on its subject."""

    mode: str
    state: str
    next_fire: FireDocument | None
    fired_by: str
    """`sidecar`, `server` or `none`."""
    failing: FailingDocument | None
    ends: EndDocument | None
    unfired_since: Time | None
    """The fire time that the first of its versions was to have, if each was replaced before it fired by one with the
    same pattern; null for one that has fired, and where the stream alone is read."""


def due_of(schedule: ScheduleDocument) -> int | None:
    """Return when a schedule is sent next (ns since the Unix epoch); None if it has no next fire."""
    fire = schedule["next_fire"]
    return None if fire is None else instant_of(fire["sent"] or fire["utc"])


class StreamModeDocument(TypedDict):
    """A stream that carries schedules, and who fires them."""

    stream: str
    mode: str
    """`emulated`, `portable`, `native` or `dormant`."""
    served: str
    """The mode in words."""
    retention: str
    created: str
    since: Time | None
    """Since when it is known to carry schedules; null if that is not recorded."""


class PastFireDocument(TypedDict):
    """A generated message."""

    stream: str
    """The stream that holds it: another one than that of its schedule if the schedule has an `X-Target`."""
    schedule: str
    schedule_sequence: Number | None
    """Null if the server fired it."""
    target: str
    sequence: Number
    """Its own."""
    fire_time: Time | None
    """Null if it is unknown."""
    stored: Time
    lateness_nanoseconds: Number | None
    next_fire: Time | None
    """Null if it was the last fire."""
    fired_by: str
    """`sidecar` or `server`; `request` if it was requested."""


class RecentFireDocument(TypedDict):
    """A fire that an instance has stored since its start, or that the server itself has stored."""

    stream: str
    schedule: str
    target: str
    sequence: Number
    """Of the generated message."""
    fire_time: Time | None
    """When it was due; null if that is not known, as of an `@at` that the server itself fired."""
    stored: Time
    lateness_nanoseconds: Number | None
    overdue: bool
    """True if it was due before the instance could fire it, so that its lateness says nothing."""


class FailureDocument(TypedDict):
    """Something that went wrong."""

    kind: str
    stored: Time
    sequence: Number
    """In the stream that keeps advisories."""
    stream: str
    schedule: str | None
    """Or the subject of a message; null if it is about a stream or an instance."""
    advisory: dict[str, Any]
    """As it was published."""


class FailuresDocument(TypedDict):
    """Failures, newest first."""

    kept_in: str
    """The stream that keeps it."""
    complete: bool
    """True if all failures up to the limit are here."""
    older: Number | None
    """The sequence before which there may be older ones that match; null if there are none."""
    failures: Rows[FailureDocument]


class RejectedDocument(StoredDocument):
    """A message that is rejected as a schedule."""

    pattern: str | None
    target: str | None
    dialect: str
    mode: str
    error: ErrorDocument


class MisnamedHeaderDocument(TypedDict):
    """A header that looks like one of a schedule and is none."""

    header: str
    reason: str


class MisnamedDocument(StoredDocument):
    """A message with such headers."""

    headers: Rows[MisnamedHeaderDocument]


class CountsDocument(TypedDict):
    """The number of schedules, by state and by kind; what there is none of is not named."""

    total: Number
    states: dict[str, Number]
    kinds: dict[str, Number]


class CheckedScheduleDocument(DefinitionDocument):
    """A schedule that is not stored yet."""

    next_fire: MarkedFireDocument | None
    """If it was stored now."""
    skipped: Rows[SkippedDocument]
    """The local times that a change of the clock skips before that."""


class GeneratedDocument(TypedDict):
    """The schedule that a fire came from."""

    schedule: str
    sequence: Number


class CheckedDocument(TypedDict):
    """The meaning of a message, by its headers."""

    message: str
    """`schedule`, `paused`, `cancel`, `generated`, `ordinary` or `invalid`."""
    schedule: CheckedScheduleDocument | None
    """Of a paused schedule: what it would be if it was resumed."""
    cancels: str | None
    """The subject of the schedule that it cancels."""
    generated: GeneratedDocument | None
    error: ErrorDocument | None


def fire_document(pattern: Pattern, fire_time: int, sent: int | None = None) -> FireDocument:
    """Return a fire time (ns) of a schedule with this pattern, and when it is sent if a jitter delays it."""
    return {
        "utc": format_rfc3339(fire_time),
        "local": pattern.format(fire_time),
        "nanoseconds": fire_time,
        "sent": None if sent is None else format_rfc3339(sent),
    }


def marked_fire_documents(timetable: Timetable, entries: Sequence[NextFire | SkippedTimes]) -> list[MarkedFireDocument]:
    """Return the fires among the entries."""
    pattern = timetable.pattern
    return [
        {
            **fire_document(pattern, entry.fire_time, timetable.delayed_to(entry.fire_time)),
            "clock_change": None if entry.change is None else entry.change.value,
            "clock_shift_seconds": None if entry.change is None else entry.shift,
        }
        for entry in entries
        if isinstance(entry, NextFire)
    ]


def skipped_documents(entries: Sequence[NextFire | SkippedTimes]) -> list[SkippedDocument]:
    """Return the skipped times among the entries."""
    return [
        {
            "first": wall_text(entry.first),
            "last": wall_text(entry.last),
            "clock_from": wall_text(entry.gap_start),
            "clock_to": wall_text(entry.gap_end),
        }
        for entry in entries
        if isinstance(entry, SkippedTimes)
    ]


def next_fire_document(pattern: Pattern, fire_time: int | None, sent: int | None = None) -> FireDocument | None:
    """Return the next fire (ns) of a schedule, None if it has none."""
    return None if fire_time is None else fire_document(pattern, fire_time, sent)


def definition_document(pattern: Pattern, terms: Terms) -> DefinitionDocument:
    """Return what a schedule defines."""
    return {
        **form_document(pattern, terms),
        "kind": kind_of(pattern).value,
        "dialect": terms.dialect.name,
        "policies": dict(terms.policies.written),
    }


def stored_document(stream: str, stored: Held | ListedSchedule | Rejected | HeadersMisnamed) -> StoredDocument:
    """Return where a message is stored."""
    return {
        "stream": stream,
        "subject": stored.subject,
        "sequence": stored.sequence,
        "stored": format_rfc3339(stored.stored_at),
    }


def schedule_document(stream: str, mode: str, listed: ListedSchedule) -> ScheduleDocument:
    """Return a schedule of a stream that is served in a mode."""
    ends = listed.ends
    return {
        **stored_document(stream, listed),
        **definition_document(listed.pattern, listed.terms),
        "mode": mode,
        "state": listed.state.value,
        "next_fire": next_fire_document(listed.pattern, listed.next_fire, listed.sent),
        "fired_by": listed.fired_by.value,
        "failing": None if listed.failing is None else _failing(listed.failing),
        "ends": None
        if ends is None or listed.ended_by is None
        else {"utc": format_rfc3339(ends), "reason": listed.ended_by.name.lower()},
        "unfired_since": None if listed.unfired_since is None else format_rfc3339(listed.unfired_since),
    }


def past_fire_document(stream: str, fire: PastFire) -> PastFireDocument:
    """Return a fire that is stored in a stream."""
    return {
        "stream": stream,
        "schedule": fire.schedule,
        "schedule_sequence": fire.schedule_sequence,
        "target": fire.target,
        "sequence": fire.sequence,
        "fire_time": None if fire.fire_time is None else format_rfc3339(fire.fire_time),
        "stored": format_rfc3339(fire.stored_at),
        "lateness_nanoseconds": fire.lateness,
        "next_fire": None if fire.next_fire is None else format_rfc3339(fire.next_fire),
        "fired_by": fire.fired_by,
    }


def recent_fire_document(stream: str, fire: FireConfirmed) -> RecentFireDocument:
    """Return a fire of a stream that was read back."""
    return {
        "stream": stream,
        "schedule": fire.schedule,
        "target": fire.target,
        "sequence": fire.stored_sequence,
        "fire_time": format_rfc3339(fire.fire_time) if fire.is_time_known else None,
        "stored": format_rfc3339(fire.stored_at),
        "lateness_nanoseconds": fire.stored_at - fire.send_time if fire.is_time_known else None,
        "overdue": fire.overdue,
    }


def rejected_document(stream: str, mode: str, rejected: Rejected) -> RejectedDocument:
    """Return a rejected message of a stream that is served in a mode."""
    return {
        **stored_document(stream, rejected),
        "pattern": rejected.pattern or None,
        "target": rejected.target or None,
        "dialect": rejected.dialect.name,
        "mode": mode,
        "error": error_document(rejected.rejection),
    }


def misnamed_document(stream: str, noted: HeadersMisnamed) -> MisnamedDocument:
    """Return a message with headers that look like those of a schedule and are none."""
    headers: list[MisnamedHeaderDocument] = [{"header": name, "reason": reason} for name, reason in noted.headers]
    return {**stored_document(stream, noted), "headers": headers}


def checked_document(reading: Reading | None, now: int) -> CheckedDocument:
    """Return what a message that would be stored at `now` (ns) means; None is an ordinary message."""
    if reading is None:
        return {"message": "ordinary", "schedule": None, "cancels": None, "generated": None, "error": None}
    definition, fire, rejection = reading.defined, reading.generated, reading.fault
    schedule: CheckedScheduleDocument | None = None
    if definition is not None:
        pattern, terms = definition
        timetable = definition.timetable(now)
        entries = with_clock_changes(pattern, now, timetable.fires(1))
        next_fire = next(iter(marked_fire_documents(timetable, entries)), None)
        skipped = skipped_documents(entries)
        schedule = {**definition_document(pattern, terms), "next_fire": next_fire, "skipped": skipped}
    return {
        "message": _meaning(reading),
        "schedule": schedule,
        "cancels": reading.cancels,
        "generated": None if fire is None else {"schedule": fire.schedule, "sequence": fire.sequence},
        "error": None if rejection is None else error_document(rejection),
    }


def _meaning(reading: Reading) -> str:
    if reading.rejection is not None:
        return "invalid"
    if reading.generated is not None:
        return "generated"
    if reading.paused is not None:
        return "paused"
    return "cancel" if reading.definition is None else "schedule"


def error_document(rejection: Rejection) -> ErrorDocument:
    """Return why a message or a stream configuration is rejected."""
    return {
        "code": rejection.status,
        "err_code": rejection.code,
        "description": rejection.description,
        "header": rejection.header,
        "value": rejection.value,
        "reason": rejection.reason,
    }


def counts_document(counts: Counts) -> CountsDocument:
    """Return how many schedules there are."""
    return {
        "total": counts.total,
        "states": {state.value: number for state, number in sorted(counts.states.items())},
        "kinds": {kind.value: number for kind, number in sorted(counts.kinds.items())},
    }


def _failing(failing: Failing) -> FailingDocument:
    return {"err_code": failing.code, "description": failing.description, "since": format_rfc3339(failing.since)}


# -- findings, for the commands and the micro service ----------------------------------------------------------------


class FindingDocument(TypedDict):
    """One thing that is wrong, or may be meant otherwise."""

    severity: str
    """`error`, `warning` or `note`."""
    code: str
    """A heading of `docs/operating/doctor.md`."""
    stream: str | None
    subject: str | None
    """Null too where the schedule is the one that was asked about."""
    what: str
    """The fault, with the values that show it."""
    why: str
    """Why it matters."""
    command: str
    """The command to type, or the change to make."""


def finding_document(finding: Finding) -> FindingDocument:
    """Return one thing that is wrong."""
    return {
        "severity": finding.severity.value,
        "code": finding.code.value,
        "stream": finding.stream,
        "subject": finding.subject,
        "what": finding.what,
        "why": finding.why,
        "command": finding.command,
    }


# -- changes of schedules, for the commands and the micro service ----------------------------------------------------


class ChangeDocument(TypedDict):
    """A change that was made to a schedule, or that would be made if it was not a dry run."""

    change: str
    """The kind of the change, as `control/changes.py: Kind` lists them."""
    stream: str
    subject: str
    """Of the schedule."""
    sequence_before: Number | None
    """Of the schedule message before; null if there was none."""
    sequence: Number | None
    """Of the schedule message now; null if there is none."""
    changed: Time | None
    """The time at which it was done, by the server's clock; null if nothing was done."""
    author: str
    """As the requester names it: nothing vouches for it."""
    reason: str
    fires: Rows[str]
    """The fire times of the fires that were stored."""
    parts: PartsDocument
    """What it makes of the schedule that was there before."""
    notes: Rows[str]
    """Notes for the requester, one sentence each."""


def change_document(change: Change, *, dry_run: bool = False) -> ChangeDocument:
    """Describe a change that was made, or would be."""
    return {
        "change": change.kind,
        "stream": change.stream,
        "subject": change.subject,
        "sequence_before": change.before,
        "sequence": change.after,
        "changed": None if dry_run or change.kind is Kind.UNCHANGED else format_rfc3339(change.at),
        "author": change.author.name,
        "reason": change.author.reason,
        "fires": [format_rfc3339(fire) for fire in change.fires],
        "parts": parts_document(change.parts),
        "notes": list(change.notes),
    }


class MadeChangeDocument(ChangeDocument):
    """A change, and what is found about the schedule after it."""

    findings: Rows[FindingDocument]


def made_change_document(change: Change, *, dry_run: bool = False) -> MadeChangeDocument:
    """Describe a change that was made now, or would be."""
    return {**change_document(change, dry_run=dry_run), "findings": [*map(finding_document, change.findings)]}


# -- the report of the doctor ----------------------------------------------------------------------------------------


class UnlistedDocument(TypedDict):
    """The number of further findings of one code on one stream."""

    code: str
    stream: str | None
    number: Number


class UnexaminedDocument(TypedDict):
    """Something that was not examined."""

    what: str
    why: str
    stream: str | None


class ReportDocument(TypedDict):
    """The findings, worst first."""

    worst: str | None
    """The severity of the worst finding; null if nothing was found."""
    findings: Rows[FindingDocument]
    unlisted: Rows[UnlistedDocument]
    """Findings beyond ten of one code on one stream."""
    counts: dict[str, Number]
    """The number of findings of each severity, those that are not listed too."""
