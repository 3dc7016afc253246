"""The catalogue of findings: the code of each, its severity, and why it matters.

Whatever says that something is wrong, or may be meant otherwise, says it as a finding: `check` and what stores a
schedule, the doctor, `ls`, `info`, the status page and `/readyz`. Log lines and
advisories about the same have its name.

Rule: each code has a heading of its name in `docs/operating/doctor.md`, and each heading of a finding there is a
code. The severity belongs to the code, so that a script can name the codes that it accepts. What exactly is wrong, and
what to type, depends on the facts: of one schedule `message.schedule_findings` writes it, of all else the checks of the
doctor.
"""

import shlex
from enum import StrEnum
from typing import NamedTuple, Self


class Severity(StrEnum):
    """The severity of a finding; the worst comes first."""

    ERROR = "error"
    """Schedules do not fire, fire wrongly, or will be lost."""
    WARNING = "warning"
    """Something is probably not as intended, or will go wrong later."""
    NOTE = "note"
    """To be aware of; nothing has to be done."""


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE


class Code(StrEnum):
    """The name of a finding, its severity, and why it matters, in one sentence."""

    severity: Severity
    why: str

    def __new__(cls, value: str, severity: Severity, why: str) -> Self:
        """Make one row of the table below."""
        code = str.__new__(cls, value)
        code._value_, code.severity, code.why = value, severity, why
        return code

    NO_SERVER = "no_server", _E, "nothing fires, and nothing else can be examined"
    SERVER_TOO_OLD = "server_too_old", _E, "the sidecar serves nothing there"
    JETSTREAM_UNAVAILABLE = (
        "jetstream_unavailable",
        _E,
        "schedules are JetStream messages: nothing can be stored or fired",
    )
    NO_ANSWER = "no_answer", _E, "a sidecar sends such requests too: what depends on them does not fire"
    PERMISSION_MISSING = "permission_missing", _E, "the sidecar does not do its work without it"
    BUCKET_DOES_NOT_FIT = "bucket_does_not_fit", _E, "the sidecar cannot create its bucket, and so it does not start"
    BUCKET_FULL = "bucket_full", _E, "a full bucket takes no new streams and instances, and no larger values"
    DORMANT = "dormant", _E, "after the upgrade of the server neither the sidecar nor the server fires Nats-Schedule"
    NO_SIDECAR = "no_sidecar", _E, "only a sidecar fires these schedules: nothing fires them until one runs"
    CONSUMER_TAKES_SCHEDULES = (
        "consumer_takes_schedules",
        _E,
        "each schedule that it acknowledges is removed and never fires",
    )
    COPIES_REMOVE_SCHEDULES = (
        "copies_remove_schedules",
        _E,
        "a copy takes messages from the stream, so schedules end unfired",
    )
    NO_INTEREST = "no_interest", _E, "the server acknowledges what is published there, and does not store it"
    EVICTS_SOON = "evicts_soon", _E, "a full stream removes its oldest messages, and schedules are the oldest"
    FIRE_REFUSED = "fire_refused", _E, "the sidecar retries them, and nothing is stored until the cause is removed"
    SCHEDULE_ENDS_EARLY = "schedule_ends_early", _E, "the stream removes the schedule before it fires"
    SCHEDULE_REJECTED = "schedule_rejected", _E, "it stays stored and never fires"
    TARGET_WITHOUT_STREAM = "target_without_stream", _E, "no fire can be stored there, and the sidecar retries them"
    CALENDAR_MISSING = (
        "calendar_missing",
        _E,
        "nothing fires until the calendar is there, since it could be on a holiday",
    )
    DEFECT_STREAM_LOST = "defect_stream_lost", _E, "the server does not load the stream at its next start"
    DEFECT_QUEUE_EMPTIED = (
        "defect_queue_emptied",
        _E,
        "the copy removes pending schedules, also those that it does not copy",
    )
    DEFECT_COPIES_STALL = "defect_copies_stall", _E, "the copy stops at the first schedule, without an error"
    DEFECT_FAR_TIME = "defect_far_time", _E, "the server's clock arithmetic wraps: it fires at once, always or never"

    SERVER_UNREACHABLE = "server_unreachable", _W, "the next failure may leave no server to connect to"
    VERSIONS_DIFFER = "versions_differ", _W, "servers of different versions treat the same schedule differently"
    CLOCK_OFF = "clock_off", _W, "fires are due by the server's clock, and times look wrong beside this machine's"
    CLOCKS_DIFFER = "clocks_differ", _W, "fires come early or late by as much when another node leads"
    ZONES_DISAGREE = (
        "zones_disagree",
        _W,
        "a server with other zone data fires these schedules at other times than a sidecar",
    )
    ZONE_DATA_OLD = "zone_data_old", _W, "cron schedules fire at the wrong hour where a country has changed its clocks"
    CANNOT_SERVE = "cannot_serve", _W, "if no other sidecar can, nothing fires there"
    SCHEDULES_UNSERVED = "schedules_unserved", _W, "no program fires these headers on this stream"
    SHORT_DUPLICATE_WINDOW = "short_duplicate_window", _W, "a fire that is repeated after a fault may be stored twice"
    SCHEDULE_ENDS_BY_AGE = (
        "schedule_ends_by_age",
        _W,
        "at that age the stream removes the schedule, and it never fires again",
    )
    HEADER_MISNAMED = "header_misnamed", _W, "no program reads a header of this name"
    SCHEDULES_EQUAL = "schedules_equal", _W, "the same message is stored several times at each fire"
    TARGET_UNREAD = "target_unread", _W, "what fires there is stored, and no program receives it"
    SCHEDULE_REPLACED_UNFIRED = (
        "schedule_replaced_unfired",
        _W,
        "the body of the schedule that was replaced is never delivered",
    )
    SCHEDULE_SILENT = "schedule_silent", _W, "what it was to deliver is missing since then"
    SCHEDULE_ONLY_DROPPED = "schedule_only_dropped", _W, "it fires nothing, although nothing fails"
    TARGET_MAPPED = "target_mapped", _W, "its fires are stored on another subject than the target, or not at all"
    TARGET_UNCONSUMED = "target_unconsumed", _W, "what fires there is stored, and nobody works on it"
    GRADUATION_BLOCKED = "graduation_blocked", _W, "`graduate` refuses to hand the schedules over to the server"
    POLICIES_IGNORED = "policies_ignored", _W, "the server fires the schedule whenever its pattern says, without an end"
    POLICY_WITHOUT_EFFECT = "policy_without_effect", _W, "the schedule does not do what its publisher wrote"
    STEP_UNEVEN = "step_uneven", _W, "it does not fire as often as its step says"
    SKIPPED_AT_ONCE = "skipped_at_once", _W, "what it was to deliver is never delivered"
    SCHEDULE_ENDS_WITHIN_JITTER = (
        "schedule_ends_within_jitter",
        _W,
        "how long it is delayed depends on its sequence, so it may end unfired",
    )
    DEFECT_ZONE_GAP = (
        "defect_zone_gap",
        _W,
        "where the clock skips a midnight the server fires on wrong days, or skips days",
    )
    DEFECT_INTERVAL_ROUNDED = "defect_interval_rounded", _W, "the server rounds each fire to the second"
    DEFECT_SOURCE_TRANSFORMED = (
        "defect_source_transformed",
        _W,
        "the server does not find the sample, and fires the schedule's body",
    )

    NO_GUARD = "no_guard", _N, "a schedule that is replaced or removed just before its fire may still fire once"
    AT_ONLY = "at_only", _N, "the server refuses @every and cron patterns with 10189, and ignores sources"
    PERMISSION_OPTIONAL = "permission_optional", _N, "everything still fires without it"
    PERMISSION_UNCLEAR = "permission_unclear", _N, "a denied publish shows only when a fire is refused"
    WEEKDAYS_NUMBERED = "weekdays_numbered", _N, "a pattern that was written for Quartz fires a day too late"
    CALENDAR_UNREAD = "calendar_unread", _N, "without its calendar a schedule waits, and fires nothing"
    TARGET_TO_ALLOW = "target_to_allow", _N, "a sidecar that does not allow the target rejects the schedule"
    CONSUMER_TO_NAME = (
        "consumer_to_name",
        _N,
        "such a stream shows only by a consumer when a fire is finished",
    )
    TIMEOUT_TO_SET = "timeout_to_set", _N, "a fire that nobody finishes keeps the schedule from firing again"
    MAY_BE_EVICTED = "may_be_evicted", _N, "a schedule that waits for long is among the oldest messages"
    STREAM_SOURCE_REFUSED = (
        "stream_source_refused",
        _N,
        "after an upgrade the schedule cannot be stored again",
    )
    COPIED = "copied", _N, "the copies of schedules do not fire there"
    NOT_EXAMINED = "not_examined", _N, "something may be wrong there that is not listed here"


class Finding(NamedTuple):
    """One thing that is wrong; `stream` and `subject` are None if it is about more than that."""

    code: Code
    what: str
    """A description of what is wrong, with the values that show it."""
    command: str
    """The command to type, or the change to make.

    A command stands alone or is followed by a comma and what to know of it. Words in capitals are for the reader to
    choose; where the program asks for more it offers a default. `tests/doctor/test_advice.py` types most of them.
    """
    stream: str | None = None
    subject: str | None = None

    def of(self, stream: str, subject: str) -> Self:
        """Return the finding about the schedule on a subject, which its sentence names; it calls it *it* before."""
        return self._replace(what=f"{subject}: {self.what}", stream=stream, subject=subject)

    @property
    def sentence(self) -> str:
        """What is wrong and what helps, as it is shown beside the schedule; the code leads to the page."""
        return f"{self.what}; {self.command} ({self.code})"

    @property
    def severity(self) -> Severity:
        """The severity of its code."""
        return self.code.severity

    @property
    def why(self) -> str:
        """Why it matters."""
        return self.code.why


def typed(*words: str) -> str:
    """Return a command as it is typed into a shell: subjects may contain characters that mean something there."""
    return shlex.join(words)
