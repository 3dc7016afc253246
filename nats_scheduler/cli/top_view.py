"""What `top` shows at one moment, independent of how it is drawn, and the same as a JSON object.

Rule: what is not known is None (null in the object), and never 0. Times are nanoseconds since the Unix epoch by the
server's clock. The keys of the object are those of the other documents for the same things (`observe.documents`).
Cost: a few objects for each row. The parts are read by `service.overview`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.overview import (
    Activity,
    Due,
    Failure,
    Health,
    Histogram,
    Instance,
    RecentFire,
    Stream,
)

P50, P99 = 0.5, 0.99
LATENESS_MINUTES = 10
"""The minutes over which lateness is computed, the present one included."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream, and its fires if they were asked for."""

    stream: Stream
    activity: Activity | None

    @property
    def overdue(self) -> int | None:
        """How many schedules are overdue; None if the stream is not read to its end."""
        return None if self.stream.schedules is None else self.stream.states.get("overdue", 0)

    @property
    def paused(self) -> int | None:
        """How many of its schedules are paused; None if the stream is not read to its end."""
        return None if self.stream.schedules is None else self.stream.states.get("paused", 0)

    @property
    def next_fire(self) -> int | None:
        """When something fires next."""
        return None if self.stream.next is None else self.stream.next.fire_time

    @property
    def trouble(self) -> int:
        """How much is wrong with it: what is overdue or fails, and a stream that is not read to its end."""
        return (self.overdue or 0) + self.stream.failing + (not self.stream.is_ready)

    @property
    def rate(self) -> float:
        """Fires per second; 0 if they are not known."""
        return 0.0 if self.activity is None else self.activity.rate()


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A sidecar, and its health if it was asked and answered."""

    instance: Instance
    health: Health | None

    @property
    def state(self) -> str:
        """`alive`, `silent` or `gone`, or `not ready` if it is alive and not all of its schedules fire."""
        is_alive = self.instance.state == "alive"
        return "not ready" if is_alive and self.health is not None and not self.health.is_ready else self.instance.state

    @property
    def fault(self) -> str:
        """Why it is not ready, and which streams it cannot serve; "" if nothing is wrong."""
        unable = [f"cannot serve {stream}: {reason}" for stream, reason in self.instance.unable.items()]
        return "; ".join([*unable, *(() if self.health is None else self.health.reasons)])


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown."""

    at: int
    server: str
    """Address, name and version of the server."""
    lost: str = ""
    """Why there is no connection; "" if there is one."""
    age: int = 0
    """How old the answers are (ns)."""
    answered: bool = False
    """Whether any sidecar answered."""
    is_health_known: bool = False
    """Whether any of them said if it is ready."""
    advice: str = ""
    """What to do if none did."""
    reasons: Sequence[str] = ()
    """Why schedules do not all fire."""
    notices: Sequence[str] = ()
    """What is missing from the view, and why."""
    activity: Activity | None = None
    streams: Sequence[StreamRow] = ()
    due: Sequence[Due] | None = None
    fires: Sequence[RecentFire] | None = None
    failures: Sequence[Failure] | None = None
    instances: Sequence[InstanceRow] | None = None

    @property
    def alive(self) -> int:
        """How many sidecars are alive."""
        return sum(one.instance.state == "alive" for one in self.instances or ())


SORTS: Mapping[str, Callable[[StreamRow], tuple[float, ...]]] = {
    "trouble": lambda row: (-row.trouble, -row.rate),
    "name": lambda row: (),
    "fires": lambda row: (-row.rate,),
    "schedules": lambda row: (-(row.stream.schedules or 0),),
    "next fire": lambda row: (row.next_fire is None, row.next_fire or 0),
}
"""The orders of the streams, in which the key `s` goes from one to the next; equal ones are sorted by name."""


def sorted_streams(streams: Sequence[StreamRow], order: str) -> list[StreamRow]:
    """Return the streams in one of the orders."""
    return sorted(streams, key=lambda row: (SORTS[order](row), row.stream.name))


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
        "ready": view.answered and view.is_health_known and not view.lost and not view.reasons,
        "reasons": [*([view.advice] if view.advice else []), *view.reasons],
        "notices": list(view.notices),
        "activity": _activity(view.activity),
        "streams": [_stream(one) for one in view.streams],
        "soonest": None if view.due is None else [_due(one) for one in view.due],
        "fires": None if view.fires is None else [_fire(one) for one in view.fires],
        "failures": None if view.failures is None else [_failure(one) for one in view.failures],
        "instances": None if view.instances is None else [_instance(one) for one in view.instances],
    }


def _activity(activity: Activity | None) -> Document | None:
    """Return the fires of one stream, or of all; null if they are not known."""
    if activity is None:
        return None
    return {
        "fires_per_second": round(activity.rate(), 3),
        "refused": activity.refused(LATENESS_MINUTES),
        "lateness": _lateness(activity.lateness(LATENESS_MINUTES)),
        "minutes": [
            {"from": format_rfc3339(one.start), "fires": one.fires, "lateness": _lateness(one.lateness)}
            for one in activity.minutes
        ],
    }


def _lateness(late: Histogram) -> Document:
    most = late.most if late.total else None
    return {"p50_nanoseconds": late.quantile(P50), "p99_nanoseconds": late.quantile(P99), "max_nanoseconds": most}


def _stream(row: StreamRow) -> Document:
    one = row.stream
    return {
        "stream": one.name,
        "mode": one.mode,
        "ready": one.is_ready,
        "schedules": one.schedules,
        "overdue": row.overdue,
        "paused": row.paused,
        "failing": one.failing,
        "rejected": one.rejected,
        "next_fire": _time(row.next_fire),
        "activity": _activity(row.activity),
    }


def _due(one: Due) -> Document:
    return {
        "stream": one.stream,
        "subject": one.subject,
        "pattern": one.pattern,
        "next_fire": format_rfc3339(one.fire_time),
    }


def _fire(one: RecentFire) -> Document:
    return {
        "stream": one.stream,
        "schedule": one.schedule,
        "target": one.target,
        "stored": format_rfc3339(one.stored_at),
        "lateness_nanoseconds": one.lateness,
    }


def _failure(one: Failure) -> Document:
    return {
        "kind": one.kind,
        "stream": one.stream,
        "schedule": one.schedule,
        "stored": format_rfc3339(one.stored_at),
        "advisory": one.advisory,
    }


def _instance(row: InstanceRow) -> Document:
    one = row.instance
    return {
        "id": one.id,
        "state": one.state,
        "ready": None if row.health is None else row.health.is_ready,
        "since": _time(one.since),
        "streams": len(one.shards),
        "shards": sum(map(len, one.shards.values())),
        "problem": row.fault or None,
    }


def _time(instant: int | None) -> str | None:
    return None if instant is None else format_rfc3339(instant)
