"""A finding, and the report of all of them: worst first, and bounded.

Rule: of one code and stream at most `MAX_LISTED` findings are listed, and the number of the others is given, because a
stream of a million invalid schedules has one cause.
Cost: one sort of what was found.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# What the doctor can find: the code of each finding, its severity, and why it matters.
#
# Rule: each code has a heading of its name in `docs/operating/doctor.md`, and each heading of a finding there is a
# code. The severity belongs to the code, so that a script can name the codes that it accepts. Limit: what exactly is
# wrong, and what to type, depends on the facts; the checks write it.


class Severity(StrEnum):
    """How bad a finding is; the worst comes first."""

    ERROR = "error"
    """Schedules do not fire, fire wrongly, or will be lost."""
    WARNING = "warning"
    """Something is probably not as intended, or will go wrong later."""
    NOTE = "note"
    """To be aware of; nothing has to be done."""


class Code(StrEnum):
    """The name of a finding."""

    NO_SERVER = "no_server"
    SERVER_TOO_OLD = "server_too_old"
    JETSTREAM_UNAVAILABLE = "jetstream_unavailable"
    NO_ANSWER = "no_answer"
    PERMISSION_MISSING = "permission_missing"
    DORMANT = "dormant"
    NO_SIDECAR = "no_sidecar"
    CONSUMER_TAKES_SCHEDULES = "consumer_takes_schedules"
    COPIES_REMOVE_SCHEDULES = "copies_remove_schedules"
    NO_INTEREST = "no_interest"
    EVICTS_SOON = "evicts_soon"
    FIRES_REFUSED = "fires_refused"
    ENDS_BEFORE_FIRE = "ends_before_fire"
    SCHEDULE_INVALID = "schedule_invalid"
    TARGET_WITHOUT_STREAM = "target_without_stream"
    CALENDAR_MISSING = "calendar_missing"
    DEFECT_STREAM_LOST = "defect_stream_lost"
    DEFECT_QUEUE_EMPTIED = "defect_queue_emptied"
    DEFECT_COPIES_STALL = "defect_copies_stall"
    DEFECT_FAR_TIME = "defect_far_time"

    SERVER_UNREACHABLE = "server_unreachable"
    VERSIONS_DIFFER = "versions_differ"
    CLOCK_OFF = "clock_off"
    CLOCKS_DIFFER = "clocks_differ"
    ZONES_DISAGREE = "zones_disagree"
    ZONE_DATA_OLD = "zone_data_old"
    CANNOT_SERVE = "cannot_serve"
    SCHEDULES_WITHOUT_FLAG = "schedules_without_flag"
    SHORT_DUPLICATE_WINDOW = "short_duplicate_window"
    HEADERS_MISNAMED = "headers_misnamed"
    SCHEDULES_EQUAL = "schedules_equal"
    TARGET_UNREAD = "target_unread"
    GRADUATION_BLOCKED = "graduation_blocked"
    POLICIES_IGNORED = "policies_ignored"
    DEFECT_ZONE_GAP = "defect_zone_gap"
    DEFECT_INTERVAL_ROUNDED = "defect_interval_rounded"
    DEFECT_SOURCE_TRANSFORMED = "defect_source_transformed"

    NO_GUARD = "no_guard"
    AT_ONLY = "at_only"
    PERMISSION_OPTIONAL = "permission_optional"
    PERMISSION_UNCLEAR = "permission_unclear"
    COPIED = "copied"
    NOT_EXAMINED = "not_examined"


class Meaning(NamedTuple):
    """What a code stands for."""

    severity: Severity
    why: str
    """Why it matters, in one sentence."""


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

MEANINGS: Mapping[Code, Meaning] = {
    Code.NO_SERVER: Meaning(_E, "nothing fires, and nothing else can be examined"),
    Code.SERVER_TOO_OLD: Meaning(_E, "the sidecar serves nothing there"),
    Code.JETSTREAM_UNAVAILABLE: Meaning(_E, "schedules are JetStream messages: nothing can be stored or fired"),
    Code.NO_ANSWER: Meaning(_E, "a sidecar sends such requests too: what depends on them does not fire"),
    Code.PERMISSION_MISSING: Meaning(_E, "the sidecar does not do its work without it"),
    Code.DORMANT: Meaning(_E, "after the upgrade of the server neither the sidecar nor the server fires Nats-Schedule"),
    Code.NO_SIDECAR: Meaning(_E, "on such a stream only a sidecar fires: nothing fires until one runs"),
    Code.CONSUMER_TAKES_SCHEDULES: Meaning(_E, "each schedule that it acknowledges is removed and never fires"),
    Code.COPIES_REMOVE_SCHEDULES: Meaning(_E, "a copy takes messages from the stream, so schedules end unfired"),
    Code.NO_INTEREST: Meaning(_E, "the server acknowledges what is published there, and does not store it"),
    Code.EVICTS_SOON: Meaning(_E, "a full stream removes its oldest messages, and schedules are the oldest"),
    Code.FIRES_REFUSED: Meaning(_E, "the sidecar retries them, and nothing is stored until the cause is removed"),
    Code.ENDS_BEFORE_FIRE: Meaning(_E, "the stream removes the schedule before it fires"),
    Code.SCHEDULE_INVALID: Meaning(_E, "it stays stored and never fires"),
    Code.TARGET_WITHOUT_STREAM: Meaning(_E, "no fire can be stored there, and the sidecar retries them"),
    Code.CALENDAR_MISSING: Meaning(_E, "nothing fires until the calendar is there, since it could be on a holiday"),
    Code.DEFECT_STREAM_LOST: Meaning(_E, "the server does not load the stream at its next start"),
    Code.DEFECT_QUEUE_EMPTIED: Meaning(_E, "the copy removes pending schedules, also those that it does not copy"),
    Code.DEFECT_COPIES_STALL: Meaning(_E, "the copy stops at the first schedule, without an error"),
    Code.DEFECT_FAR_TIME: Meaning(_E, "the server's clock arithmetic wraps: it fires at once, always or never"),
    Code.SERVER_UNREACHABLE: Meaning(_W, "the next failure may leave no server to connect to"),
    Code.VERSIONS_DIFFER: Meaning(_W, "servers of different versions treat the same schedule differently"),
    Code.CLOCK_OFF: Meaning(_W, "fires are due by the server's clock, and times look wrong beside this machine's"),
    Code.CLOCKS_DIFFER: Meaning(_W, "fires come early or late by as much when another node leads"),
    Code.ZONES_DISAGREE: Meaning(_W, "a server on this machine fires these schedules at other times than a sidecar"),
    Code.ZONE_DATA_OLD: Meaning(_W, "cron schedules fire at the wrong hour where a country has changed its clocks"),
    Code.CANNOT_SERVE: Meaning(_W, "if no other sidecar can, nothing fires there"),
    Code.SCHEDULES_WITHOUT_FLAG: Meaning(_W, "no program fires these headers on this stream"),
    Code.SHORT_DUPLICATE_WINDOW: Meaning(_W, "a fire that is repeated after a fault may be stored twice"),
    Code.HEADERS_MISNAMED: Meaning(_W, "no program reads a header of this name"),
    Code.SCHEDULES_EQUAL: Meaning(_W, "the same message is stored several times at each fire"),
    Code.TARGET_UNREAD: Meaning(_W, "what fires there is stored, and no program receives it"),
    Code.GRADUATION_BLOCKED: Meaning(_W, "`graduate` refuses to hand the schedules over to the server"),
    Code.POLICIES_IGNORED: Meaning(_W, "the server fires the schedule whenever its pattern says, without an end"),
    Code.DEFECT_ZONE_GAP: Meaning(_W, "where the clock skips a midnight the server fires on wrong days, or skips days"),
    Code.DEFECT_INTERVAL_ROUNDED: Meaning(_W, "the server rounds each fire to the second"),
    Code.DEFECT_SOURCE_TRANSFORMED: Meaning(_W, "the server does not find the sample, and fires the schedule's body"),
    Code.NO_GUARD: Meaning(_N, "a schedule that is replaced or removed just before its fire may still fire once"),
    Code.AT_ONLY: Meaning(_N, "the server refuses @every and cron patterns with 10189, and ignores sources"),
    Code.PERMISSION_OPTIONAL: Meaning(_N, "everything still fires without it"),
    Code.PERMISSION_UNCLEAR: Meaning(_N, "a denied publish shows only when a fire is refused"),
    Code.COPIED: Meaning(_N, "the copies of schedules do not fire there"),
    Code.NOT_EXAMINED: Meaning(_N, "something may be wrong there that is not listed here"),
}


MAX_LISTED = 10
"""Most findings of one code and stream that are listed."""

_RANK = {severity: number for number, severity in enumerate(Severity)}
_CODE_RANK = {code: number for number, code in enumerate(Code)}


class Finding(NamedTuple):
    """One thing that is wrong; `stream` and `subject` are None if it is about more than that."""

    code: Code
    what: str
    """What is wrong, with the values that show it."""
    command: str
    """What to type, or to change."""
    stream: str | None = None
    subject: str | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return MEANINGS[self.code].severity

    @property
    def why(self) -> str:
        """Why it matters."""
        return MEANINGS[self.code].why


class Unlisted(NamedTuple):
    """How many more findings there are of one code on one stream."""

    code: Code
    stream: str | None
    number: int


@dataclass(frozen=True, slots=True)
class Report:
    """What the doctor found."""

    findings: Sequence[Finding] = ()
    """Worst first, then by code and stream."""
    unlisted: Sequence[Unlisted] = ()

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding, None if nothing was found."""
        return self.findings[0].severity if self.findings else None

    def count(self, severity: Severity) -> int:
        """Return how many findings have a severity, those that are not listed too."""
        listed = sum(finding.severity is severity for finding in self.findings)
        return listed + sum(more.number for more in self.unlisted if MEANINGS[more.code].severity is severity)


def report_of(findings: Iterable[Finding], more: Iterable[Unlisted] = ()) -> Report:
    """Sort findings, and leave out those beyond `MAX_LISTED` of one code and stream; `more` are left out already."""
    counts: dict[tuple[Code, str | None], int] = {}
    listed = []
    for finding in sorted(findings, key=_place):
        key = finding.code, finding.stream
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= MAX_LISTED:
            listed.append(finding)
    unlisted = {key: count - MAX_LISTED for key, count in counts.items() if count > MAX_LISTED}
    for code, stream, number in more:
        if number > 0:
            unlisted[code, stream] = unlisted.get((code, stream), 0) + number
    return Report(listed, [Unlisted(code, stream, number) for (code, stream), number in unlisted.items()])


def _place(finding: Finding) -> tuple[int, int, str, str]:
    return _RANK[finding.severity], _CODE_RANK[finding.code], finding.stream or "", finding.subject or ""
