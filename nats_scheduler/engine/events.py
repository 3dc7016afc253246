"""The events that are reported: each is counted, most are logged, some become advisories (`nats_scheduler.observe`)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from nats_scheduler.engine.fire import Fire
from nats_scheduler.message.misnamed import Misnamed
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.silence import Silence
from nats_scheduler.schedule.clock_changes import SkippedTimes


class Ending(StrEnum):
    """Why a schedule is not held any more."""

    FIRED = "fired"
    REPLACED = "replaced"
    PAUSED = "paused"
    OVERWRITTEN = "overwritten by a message that is no schedule"
    REMOVED = "deleted or purged"
    EXPIRED = "its TTL ran out"
    MAX_AGE = "the max_age of its stream was over"
    LIMITS = "the max_msgs or max_bytes of its stream: it is gone, and nobody was seen to ask for that"
    CANCELLED = "cancelled"
    MISSED_ITS_TIME = "its time passed, and it is not made up"
    SKIPPED = "its last fire was skipped, because the one before was unfinished"
    EXCEPTED = "its calendars left none of its fire times"
    EXHAUSTED = "no further fire within the horizon of five years"


@dataclass(frozen=True, slots=True)
class StreamReady:
    """The engine is live: everything stored has been read, and due schedules fire from now on."""

    schedules: int
    rejected: int


class ScheduleAccepted(NamedTuple):
    """A schedule is held; `due` is its next fire."""

    schedule: str
    sequence: int
    due: int


@dataclass(frozen=True, slots=True)
class ScheduleRejected:
    """The last message on the subject is an invalid schedule: it stays stored and never fires."""

    schedule: str
    sequence: int
    rejection: Rejection


class ScheduleEnded(NamedTuple):
    """A schedule is not held any more."""

    schedule: str
    sequence: int
    ending: Ending


class HeadersMisnamed(NamedTuple):
    """A message has headers that look like those of a schedule and are none: they have no effect."""

    subject: str
    sequence: int
    stored_at: int
    headers: tuple[Misnamed, ...]


class ScheduleEndsEarly(NamedTuple):
    """A schedule is held that its stream removes at `ends` (ns), before its next fire, which is `due` (ns)."""

    schedule: str
    sequence: int
    due: int
    ends: int
    ending: Ending


class ScheduleEndsByAge(NamedTuple):
    """A schedule is held that fires, and that the `max_age` of its stream removes at `ends` (ns), before its last fire.

    Of a stream the first one is reported: usually its publisher knows, and stores each of them again in time.
    """

    schedule: str
    sequence: int
    ends: int


class ScheduleLost(NamedTuple):
    """A schedule ended, without a request to remove it, before the fire that was `due` (ns) next."""

    schedule: str
    sequence: int
    due: int
    ending: Ending


class ScheduleReplacedUnfired(NamedTuple):
    """A one-shot was replaced before its fire, which was `due` (ns), by another body or by what is no schedule."""

    schedule: str
    sequence: int
    stored_at: int
    due: int
    replaced_by: int
    """The sequence of the message that replaced it."""
    replaced_at: int
    """The instant (ns) at which that was stored."""


NO_VALID_SCHEDULE = "what replaced its schedule is no valid schedule"


class FireLostToReplacement(NamedTuple):
    """A schedule was replaced after it was due (ns) and before that fire was stored, and the fire cannot be kept."""

    schedule: str
    sequence: int
    """That of the version that was replaced."""
    due: int
    reason: str


class ScheduleSilent(NamedTuple):
    """A schedule stores nothing although it is to: the first fire that is not stored is that of `since` (ns)."""

    schedule: str
    sequence: int
    since: int
    cause: Silence
    reason: str
    """The cause, as a sentence."""


class ClockChangeSkipped(NamedTuple):
    """A change of the clock skips local times before the next fire of a schedule, which is `due` (ns)."""

    schedule: str
    sequence: int
    time_zone: str
    skipped: SkippedTimes
    due: int


class ScheduleOnlyDropped(NamedTuple):
    """A policy dropped all fires of a schedule since the one of `since` (ns), `dropped` in number."""

    schedule: str
    sequence: int
    since: int
    dropped: int
    policy: str


class FireStored(NamedTuple):
    """A fire was acknowledged."""

    fire: Fire
    stored_sequence: int
    duplicate: bool


class FireConfirmed(NamedTuple):
    """A generated message was read back from the stream: `stored_at - send_time` is its lateness (ns).

    The owner reports it. Of a large burst nothing is read back: `stored_at` is then when it was acknowledged, by our
    clock, and so later.
    """

    schedule: str
    target: str
    fire_time: int
    send_time: int
    """Its fire time if its schedule is held no longer."""
    stored_at: int
    stored_sequence: int
    overdue: bool = False
    """It came due before this instance could fire it: before its schedule was stored, before it owned the stream, or
    before the fire before it was finished."""
    schedule_stored_at: int = 0
    """The instant (ns) at which its schedule was stored, 0 if that is not known."""
    waited: bool = False
    """It waited until the fire before it was finished."""
    is_time_known: bool = True
    """False if the server fired it, and when it was due is not known; `fire_time` and `send_time` say nothing then."""


@dataclass(frozen=True, slots=True)
class FireUnknown:
    """The outcome of an attempt to store a fire is unknown; the next one comes after `retry_after` ns.

    It has the same identity, unless nothing can be stored under that any more.
    """

    fire: Fire
    reason: str
    retry_after: int


@dataclass(frozen=True, slots=True)
class AttemptRefused:
    """An attempt to store a fire was refused, the first one or a later one; the next comes after `retry_after` ns."""

    fire: Fire
    code: int
    description: str
    retry_after: int


@dataclass(frozen=True, slots=True)
class FireRefused:
    """The server refused a fire; it is retried after at most `retry_after` ns while the schedule is held."""

    fire: Fire
    code: int
    description: str
    retry_after: int


class TargetMapped(NamedTuple):
    """What is published to the target of a schedule goes to another subject, as far as the first fires show."""

    schedule: str
    sequence: int
    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class FireForged:
    """A message on `subject` claims to be a fire of the schedule and cannot be one: it is an ordinary message.

    `stored_sequence` is its own; `subject` is empty if it is gone already.
    """

    schedule: str
    sequence: int
    fire_time: int
    subject: str
    stored_sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class FiresMissed:
    """Fires from `first` to before `made_up` (ns) were not stored; the fire of `made_up` is their make-up fire.

    Without `made_up` nothing is made up for them: their schedule continues with its next fire, or ends.
    """

    schedule: str
    sequence: int
    first: int
    made_up: int | None
    while_running: bool = False
    """True if this process served the stream already when the first of them came due."""
    dropped: int = 0
    """The number of these fires; 0 if they were not counted, because the schedule has no policy that drops them."""
    policy: str = ""
    """The policy that dropped them, such as `X-Missed: skip`; "" if the schedule has none."""


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """Missed fires of `waiting` schedules wait for their turn, of which at most `rate` come in a second.

    It is reported when there are more than that, then from time to time, and once more when none waits any more.
    """

    waiting: int
    rate: int


@dataclass(frozen=True, slots=True)
class FiresSkipped:
    """`count` fires from `first` (ns) on were not sent, because the fire before them was unfinished."""

    schedule: str
    sequence: int
    first: int
    count: int
    overlap: str
    """The value of its `X-Overlap`."""


@dataclass(frozen=True, slots=True)
class FireTimedOut:
    """A fire is unfinished for longer than `X-Timeout`: the next one is sent all the same."""

    schedule: str
    sequence: int
    unfinished: int
    """The stream sequence of the unfinished fire, or of a later message if it is not known."""
    stored_at: int
    """The instant (ns) at which it was stored; its fire time if that is not known."""
    due: int
    """The fire time (ns) of the fire that waited."""
    reason: str = ""
    """Why it could not be found out whether it is finished; "" if it is unfinished."""


@dataclass(frozen=True, slots=True)
class FireNotDone:
    """A fire is unfinished for longer than the `X-Done-Within` of its schedule, which may be gone."""

    schedule: str
    sequence: int
    target: str
    stored_as: int
    fire_time: int
    stored_at: int
    """The instant (ns) at which it was stored."""
    within: int
    """The value (ns) of `X-Done-Within`."""
    reason: str = ""
    """Why no acknowledgement can finish it; "" if one can."""


@dataclass(frozen=True, slots=True)
class FinishUnknown:
    """Nothing can show whether a fire is finished.

    That is the fire before the one that is `due` (ns), which therefore is not sent; or, if it is to be done within a
    time, the one that was `due` itself.
    """

    schedule: str
    sequence: int
    due: int
    reason: str


@dataclass(frozen=True, slots=True)
class FiresDropped:
    """A schedule ended while the server refused its fires: what came due from `first` (ns) on is not stored."""

    schedule: str
    sequence: int
    first: int
    code: int
    description: str


@dataclass(frozen=True, slots=True)
class StillRefused:
    """The server still refuses the fires of `count` schedules with one code; `schedule` is one of them."""

    schedule: str
    sequence: int
    code: int
    description: str
    since: int
    """The instant (ns) at which the fire of `schedule` was first refused."""
    count: int


@dataclass(frozen=True, slots=True)
class SchedulesFailing:
    """`count` schedules have a fire that the server refuses at the moment."""

    count: int


@dataclass(frozen=True, slots=True)
class PurgeFailed:
    """A schedule that fired, or an old version of one, could not be purged; it does not fire again."""

    schedule: str
    through: int
    reason: str
    refused: bool


@dataclass(frozen=True, slots=True)
class CalendarMissing:
    """A calendar that `count` schedules name is not known, for this reason: they wait."""

    calendar: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class CalendarApplied:
    """A calendar that `count` schedules name is known, or has other days: they go on by these."""

    calendar: str
    count: int


@dataclass(frozen=True, slots=True)
class MessagesExpired:
    """`count` messages whose TTL had run out were removed, because the server does not do it."""

    count: int


@dataclass(frozen=True, slots=True)
class ExpiryFailed:
    """A message whose TTL has run out could not be removed; after a refusal (`refused`) none is removed any more."""

    sequence: int
    reason: str
    refused: bool


Event = (
    StreamReady
    | ScheduleAccepted
    | ScheduleRejected
    | ScheduleEnded
    | HeadersMisnamed
    | ScheduleEndsByAge
    | ScheduleEndsEarly
    | ScheduleLost
    | ScheduleReplacedUnfired
    | FireLostToReplacement
    | ScheduleSilent
    | ClockChangeSkipped
    | ScheduleOnlyDropped
    | FireStored
    | FireConfirmed
    | FireUnknown
    | AttemptRefused
    | FireRefused
    | FireForged
    | TargetMapped
    | FiresMissed
    | CatchingUp
    | FiresSkipped
    | FireTimedOut
    | FireNotDone
    | FinishUnknown
    | FiresDropped
    | StillRefused
    | SchedulesFailing
    | PurgeFailed
    | CalendarMissing
    | CalendarApplied
    | MessagesExpired
    | ExpiryFailed
)
