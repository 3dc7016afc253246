"""The facts that the checks judge, gathered once.

Rule: facts are values. No check sends a request, and no gatherer decides what is wrong.
What could not be read is a fact too (`Unexamined`): it is reported, and the checks that need it find nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nats_scheduler.control.errors import ForbiddenError, SchedulerError
from nats_scheduler.engine.events import HeadersMisnamed, ScheduleReplacedUnfired
from nats_scheduler.engine.handover import GraduationFinding as GraduationFinding
from nats_scheduler.engine.holding.inactive import Rejected
from nats_scheduler.engine.views.view import ListedSchedule
from nats_scheduler.jetstream.own_streams import Room
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.findings import Code
from nats_scheduler.message.rejection import Failing
from nats_scheduler.observe.documents import FailureDocument
from nats_scheduler.runtime.consumption import Copy, copies_in
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.server_zones import ZoneDifference
from nats_scheduler.schedule.tzif import OffsetTable


class ServerReach(NamedTuple):
    """One attempt to connect to one server."""

    address: str
    """Without a password."""
    version: str = ""
    name: str = ""
    failure: str = ""
    """Why it was not reached, "" if it was."""
    is_configured: bool = True
    """True if the settings name it; the others were named by a server."""


class Need(NamedTuple):
    """A permission that the sidecar's user uses."""

    act: str
    """`publish` or `subscribe`."""
    subject: str
    is_optional: bool
    """True if everything still fires without it."""


class ClockReading(NamedTuple):
    """One answer that contains the time of a server."""

    where: str
    """The stream whose leader answered, or a stream and its consumer."""
    shown: int
    """The server's time (ns since the Unix epoch)."""
    asked_at: int
    """The time of this machine (ns since the Unix epoch) when the request was sent."""
    answered_at: int
    """And when the answer had arrived."""
    node: str = ""
    """The node that answered, "" for a server without a cluster."""


ZoneData = tuple[OffsetTable | None, OffsetTable | None]
"""The offsets of one time zone, as the sidecar reads it and as a server on this machine does."""


class SidecarFacts(NamedTuple):
    """A sidecar that is alive."""

    name: str
    serves: Sequence[str] | None
    """`<mode>.<stream>` of what it serves; None if there is more than fits."""
    unable: Mapping[str, str]
    """The reason for each stream that it cannot serve, by the same key."""


class Unexamined(NamedTuple):
    """Something that could not be read, or not to its end."""

    what: str
    why: str
    stream: str | None = None
    has_failed: bool = False
    """True if a request failed that a sidecar sends too, and not because of a missing permission or of a limit."""


def without_leaders(streams: Iterable[str]) -> list[Unexamined]:
    """Return that these streams could not be read, because their leaders do not answer."""
    return [Unexamined(f"stream {name}", "its leader does not answer", name, has_failed=True) for name in streams]


def unexamined(what: str, error: SchedulerError, stream: str | None = None) -> Unexamined:
    """Return what could not be read because of an error."""
    return Unexamined(what, str(error), stream, has_failed=not isinstance(error, ForbiddenError))


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """One stream, and what it holds."""

    state: StreamState
    mode: Mode | None
    """None if it is not served."""
    is_read: bool = True
    """True if what it holds was read; if not, only who fires it, and what it copies, counts."""
    messages: int = 0
    bytes: int = 0
    at: int = 0
    """The time at which its schedules were read, by the server's clock (ns since the Unix epoch)."""
    schedules: Sequence[ListedSchedule] = ()
    rejected: Sequence[Rejected] = ()
    zone_differences: Sequence[ZoneDifference] = ()
    """The time zones that have another offset on the server, by what it fired."""
    misnamed: Sequence[HeadersMisnamed] = ()
    replaced: Sequence[ScheduleReplacedUnfired] = ()
    """Schedules of the server that a later message replaced before they fired; both are stored."""
    failing: Mapping[int, Failing] = field(default_factory=dict)
    """Why the server refuses fires, by the sequence of the schedule."""
    failing_unlisted: int = 0
    consumers: Mapping[str, Sequence[str]] | None = None
    """Its consumers, other than those of sidecars, with the subjects that each receives; None if not listed."""
    idle_consumers: Collection[str] = ()
    """Those for which messages wait, and that have delivered nothing for a day."""
    consumer_leaders: Mapping[str, str] = field(default_factory=dict)
    """For each node that leads a consumer the name of one."""
    unserved: Sequence[str] = ()
    """The subjects whose last message has schedule headers that no program fires."""
    equal: Sequence[Sequence[ListedSchedule]] = ()
    """Groups of schedules with equal target, source, pattern and body."""
    graduation: Sequence[GraduationFinding] = ()
    """The findings that `graduate` would report."""
    more: Mapping[Code, int] = field(default_factory=dict)
    """The number of further findings of a code, about what is not among the facts."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.state.name

    @property
    def config(self) -> Mapping[str, Any]:
        """Its configuration, as the server returns it."""
        return self.state.config

    @property
    def retention(self) -> str:
        """`limits`, `interest` or `workqueue`."""
        return str(self.config.get("retention", "limits"))

    @property
    def subjects(self) -> Sequence[str]:
        """The subjects that it stores."""
        return self.state.rules.subjects


def targets_here(stream: StreamFacts) -> Sequence[str]:
    """Return the targets in the stream of the schedules itself, in order."""
    terms = (listed.terms for listed in stream.schedules)
    return sorted({one.target for one in terms if one.policies.target_stream is None})


def subjects_of(infos: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the subjects of streams, from the information on them."""
    return [subject for info in infos for subject in StreamState.from_info(info).rules.subjects]


class BucketFacts(NamedTuple):
    """The sidecar's bucket: as it is, or as it would be created."""

    stream: str
    storage: str
    room: Room
    """What the account has left there."""
    size: int
    """Its maximum size in bytes; 0 for none."""
    used: int | None
    """Bytes that it holds; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """One account, as far as it could be read."""

    at: int = 0
    """The time of this machine (ns since the Unix epoch)."""
    reaches: Sequence[ServerReach] = ()
    server: Capabilities | None = None
    """None if JetStream did not answer."""
    jetstream_failure: str = ""
    """Why JetStream did not answer."""
    bucket: BucketFacts | None = None
    """None if it was not examined."""
    missing: Sequence[Need] = ()
    """Permissions that the user lacks."""
    unclear: Sequence[Need] = ()
    """Permissions that could not be examined without publishing."""
    clocks: Sequence[ClockReading] = ()
    zone_versions: Mapping[str, str] = field(default_factory=dict)
    """The version of the zone data, such as `2025b`, by the place where it was found."""
    zones: Mapping[str, ZoneData] = field(default_factory=dict)
    """The zones that schedules use, by name."""
    sidecars: Sequence[SidecarFacts] | None = ()
    """Those that are alive; None if that could not be read."""
    streams: Sequence[StreamFacts] = ()
    """All streams of the account, by name."""
    stored_subjects: Sequence[str] | None = None
    """The subjects of all streams of the account, also of those that are not among these; None if some are unknown."""
    subscriptions: Sequence[str] | None = None
    """The subjects that clients other than sidecars subscribe to; None if they could not be listed."""
    announced: Sequence[FailureDocument] = ()
    """The advisories of the last day whose kinds are findings (`message.stream_findings.ANNOUNCED`), newest first."""
    unexamined: Sequence[Unexamined] = ()
    copies: Mapping[str, Sequence[Copy]] = field(init=False)
    """The streams that copy others, by the names of those that they take from."""

    def __post_init__(self) -> None:
        """Look through the streams once: each of them is asked for its copies."""
        object.__setattr__(self, "copies", copies_in(one.state for one in self.streams))

    @property
    def read(self) -> Sequence[StreamFacts]:
        """The streams that were read."""
        return [stream for stream in self.streams if stream.is_read]
