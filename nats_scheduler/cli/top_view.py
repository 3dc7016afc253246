"""The view of `top` at one moment, independent of how it is drawn, and the same as a JSON object.

Rule: what is not known is None (null in the object), and never 0. Times are nanoseconds since the Unix epoch by the
server's clock. The keys of the object are those of the other documents for the same things (`observe.documents`).
Cost: a few objects for each row. The parts are the documents that the sidecars answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nats_scheduler.observe.activity import LastMinutes, Minute
from nats_scheduler.observe.documents import FailureDocument, RecentFireDocument, ScheduleDocument, due_of
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.schemas import HealthAnswer, InstanceDocument, StreamDocument
from nats_scheduler.service.verdict import StatusVerdict

P50, P99 = 0.5, 0.99
LATENESS_MINUTES = 10
"""The minutes over which lateness is computed, the present one included."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream, and its fires if they were asked for."""

    stream: StreamDocument
    activity: LastMinutes | None

    @property
    def schedules(self) -> int | None:
        """The number of its schedules; None if the stream is not read to its end."""
        counts = self.stream["schedules"]
        return None if counts is None else counts["total"]

    def in_state(self, state: str) -> int | None:
        """Return how many schedules are in a state; None if the stream is not read to its end."""
        counts = self.stream["schedules"]
        return None if counts is None else counts["states"].get(state, 0)

    @property
    def next_fire(self) -> int | None:
        """The due time (ns) of its next fire; None if it has none."""
        return None if self.stream["next"] is None else due_of(self.stream["next"])

    @property
    def trouble(self) -> int:
        """The number of its schedules that are overdue or fail, and one more each if it is not read or has no owner."""
        number = (self.in_state("overdue") or 0) + self.stream["failing"]
        return number + (not self.stream["ready"]) + self.is_unowned

    @property
    def is_unowned(self) -> bool:
        """True if it has schedules that only an owner fires, and no owner."""
        return bool(self.schedules) and self.stream["owner"] is None and self.stream["mode"] in ("emulated", "portable")

    @property
    def rate(self) -> float:
        """Fires per second; 0 if they are not known."""
        return 0.0 if self.activity is None else self.activity.rate()


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A sidecar, and its health if it was asked and answered."""

    instance: InstanceDocument
    health: HealthAnswer | None

    @property
    def state(self) -> str:
        """`alive`, `silent` or `gone`, or `not ready` if it is alive and not all of its schedules fire."""
        state = self.instance["state"]
        return "not ready" if state == "alive" and self.health is not None and not self.health["ready"] else state

    @property
    def owns(self) -> int:
        """The number of streams that it owns."""
        return len(self.instance["owns"])

    @property
    def stands_by(self) -> int:
        """The number of streams that it has read and does not own."""
        return len(self.instance["stands_by"])

    @property
    def fault(self) -> str:
        """Why it is not ready, and which streams it cannot serve; "" if nothing is wrong."""
        unable = [f"cannot serve {one['stream']}: {one['reason']}" for one in self.instance["unable"]]
        return "; ".join([*unable, *(() if self.health is None else self.health["reasons"])])


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown."""

    at: int
    server: str
    """Address, name and version of the server."""
    verdict: StatusVerdict
    """Whether all is well, and why not."""
    lost: str = ""
    """Why there is no connection; "" if there is one."""
    age: int = 0
    """The age of the answers (ns)."""
    notices: Sequence[str] = ()
    """The parts that are missing from the view, and why."""
    activity: LastMinutes | None = None
    streams: Sequence[StreamRow] = ()
    due: Sequence[ScheduleDocument] | None = None
    """The schedules that fire next, soonest first; each has a next fire."""
    fires: Sequence[RecentFireDocument] | None = None
    failures: Sequence[FailureDocument] | None = None
    instances: Sequence[InstanceRow] | None = None

    @property
    def answered(self) -> bool:
        """True if a sidecar answered, or a server that fires by itself was read."""
        return not self.verdict.is_blind

    @property
    def alive(self) -> int:
        """The number of sidecars that are alive."""
        return sum(one.instance["state"] == "alive" for one in self.instances or ())


SORTS: Mapping[str, Callable[[StreamRow], tuple[float, ...]]] = {
    "trouble": lambda row: (-row.trouble, -row.rate),
    "name": lambda row: (),
    "fires": lambda row: (-row.rate,),
    "schedules": lambda row: (-(row.schedules or 0),),
    "next fire": lambda row: (row.next_fire is None, row.next_fire or 0),
}
"""The orders of the streams, in which the key `s` goes from one to the next; equal ones are sorted by name."""


def sorted_streams(streams: Sequence[StreamRow], order: str) -> list[StreamRow]:
    """Return the streams in one of the orders."""
    return sorted(streams, key=lambda row: (SORTS[order](row), row.stream["stream"]))


# -- as JSON -----------------------------------------------------------------------------------------------------------

Document = dict[str, object]


def view_document(view: View) -> Document:
    """Return all that is known at a moment."""
    return {
        "at": format_rfc3339(view.at),
        "server": view.server,
        "connection_lost": view.lost or None,
        "age_nanoseconds": view.age,
        "answered": view.answered,
        "verdict": view.verdict.level,
        "reasons": [{"level": one.level, "sentence": one.sentence} for one in view.verdict.reasons],
        "notices": list(view.notices),
        "activity": _activity(view.activity),
        "streams": [_stream(one) for one in view.streams],
        "soonest": None if view.due is None else [_due(one) for one in view.due],
        "fires": None if view.fires is None else [_fire(one) for one in view.fires],
        "failures": None if view.failures is None else [_picked(one, FAILURE_KEYS) for one in view.failures],
        "instances": None if view.instances is None else [_instance(one) for one in view.instances],
    }


FAILURE_KEYS = ("kind", "stream", "schedule", "stored", "advisory")


def _picked(document: Mapping[str, object], keys: Sequence[str]) -> Document:
    return {key: document[key] for key in keys}


def _activity(activity: LastMinutes | None) -> Document | None:
    """Return the fires of one stream, or of all; null if they are not known."""
    if activity is None:
        return None
    recent = activity.last(LATENESS_MINUTES)
    return {
        "fires_per_second": round(activity.rate(), 3),
        "refused": recent.refused,
        "since": _time(activity.since or None),
        "lateness": _lateness(recent),
        "minutes": [
            {"from": format_rfc3339(one.start), "fires": one.fires, "lateness": _lateness(one)}
            for one in activity.minutes
        ],
    }


def _lateness(minute: Minute) -> Document:
    p50, p99 = minute.quantile(P50), minute.quantile(P99)
    most = minute.lateness_max or (None if p50 is None else 0)
    return {"p50_nanoseconds": p50, "p99_nanoseconds": p99, "max_nanoseconds": most}


def _stream(row: StreamRow) -> Document:
    return {
        **_picked(row.stream, ("stream", "mode", "ready", "owner", "owner_since", "takeover_reason", "standbys")),
        "schedules": row.schedules,
        "overdue": row.in_state("overdue"),
        "paused": row.in_state("paused"),
        **_picked(row.stream, ("failing", "rejected")),
        "next_fire": _time(row.next_fire),
        "activity": _activity(row.activity),
    }


def _due(one: ScheduleDocument) -> Document:
    return {**_picked(one, ("stream", "subject", "pattern")), "next_fire": _time(due_of(one))}


def _fire(one: RecentFireDocument) -> Document:
    return _picked(one, ("stream", "schedule", "target", "stored", "lateness_nanoseconds", "overdue"))


def _instance(row: InstanceRow) -> Document:
    return {
        **_picked(row.instance, ("id", "state")),
        "ready": None if row.health is None else row.health["ready"],
        "since": row.instance["since"],
        "owns": row.owns,
        "stands_by": row.stands_by,
        "problem": row.fault or None,
    }


def _time(instant: int | None) -> str | None:
    return None if instant is None else format_rfc3339(instant)
