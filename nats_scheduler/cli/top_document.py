"""What `top` shows as a JSON object.

Rule: the keys are those of the other documents for the same things (`observe.documents`); what is not known is null.
Cost: some microseconds for each row.
"""

from __future__ import annotations

from nats_scheduler.cli.top_layout import P50
from nats_scheduler.cli.top_tables import P99
from nats_scheduler.cli.top_view import LATENESS_MINUTES, InstanceRow, StreamRow, View
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.overview import Activity, Due, Failure, Histogram, RecentFire

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
        "activity": activity_document(view.activity),
        "streams": [_stream(one) for one in view.streams],
        "soonest": None if view.due is None else [_due(one) for one in view.due],
        "fires": None if view.fires is None else [_fire(one) for one in view.fires],
        "failures": None if view.failures is None else [_failure(one) for one in view.failures],
        "instances": None if view.instances is None else [_instance(one) for one in view.instances],
    }


def activity_document(activity: Activity | None) -> Document | None:
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
        "activity": activity_document(row.activity),
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
