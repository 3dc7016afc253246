"""Views as `top` shows them, for tests: calm ones, crowded ones, and such as a hostile publisher would like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nats_scheduler.cli.top_view import InstanceRow, StreamRow, View
from nats_scheduler.observe.activity import LastMinutes, Minute
from nats_scheduler.observe.documents import FailureDocument, RecentFireDocument, ScheduleDocument
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.schedule.instants import HOUR, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.service.verdict import Level, StatusReason, StatusVerdict

AT = parse_rfc3339("2026-11-22T12:36:05Z")
assert isinstance(AT, int)
NOW: int = AT
PRESENT = NOW - NOW % MINUTE
HOSTILE = "\x1b]0;title\x07\x1b[2J\n\u202e" + "注文" * 100 + "e\u0301\U0001f469\u200d\U0001f680"
SERVER = "nats://127.0.0.1:4222 (n1, 2.11.11)"


def activity(fires: int, refused: int = 0) -> LastMinutes:
    """Return an hour in which `fires` fires were stored in each minute, the half of them within a millisecond."""
    counts = [0] * (len(LATENESS_BUCKETS_SECONDS) + 1)
    counts[LATENESS_BUCKETS_SECONDS.index(0.001)] = fires - fires // 2
    counts[LATENESS_BUCKETS_SECONDS.index(0.005)] = fires // 2
    minutes = [
        Minute(PRESENT - ago * MINUTE, fires, 0, 0, refused, tuple(counts), 5 * MILLISECOND)
        for ago in range(59, -1, -1)
    ]
    return LastMinutes(NOW, minutes)


WELL = StatusVerdict("ok")


def judged(level: Level, *sentences: str, is_blind: bool = False) -> StatusVerdict:
    """Return a verdict with reasons of one level."""
    return StatusVerdict(level, [StatusReason(level, one) for one in sentences], is_blind)


BUSY = activity(385)
"""738 fires in the last minute: 385 since it began, and 55 of 60 parts of those in the minute before."""


def text(seconds: float) -> str:
    """Return the time `seconds` from now."""
    return format_rfc3339(NOW + int(seconds * SECOND))


def due(
    seconds: float, stream: str = "ORDERS", subject: str | None = None, pattern: str = "@every 5m"
) -> ScheduleDocument:
    """Return a schedule that fires in `seconds`."""
    instant = text(seconds)
    return {
        "stream": stream,
        "subject": subject or f"orders.due.{seconds}",
        "sequence": 1,
        "stored": text(-60),
        "pattern": pattern,
        "kind": "every",
        "time_zone": None,
        "target": "orders.out",
        "source": None,
        "ttl": None,
        "rollup": None,
        "dialect": "adr51",
        "policies": {},
        "mode": "emulated",
        "state": "waiting",
        "next_fire": {"utc": instant, "local": instant, "nanoseconds": NOW + int(seconds * SECOND), "sent": None},
        "fired_by": "sidecar",
        "failing": None,
        "ends": None,
        "unfired_since": None,
    }


def stream(name: str, **fields: Any) -> StreamRow:
    """Return a stream in which all is well, but for some fields."""
    activity = fields.pop("activity", BUSY)
    states = {"waiting": 1, "overdue": fields.pop("overdue", 0), "paused": fields.pop("paused", 0)}
    well: Any = {
        "stream": name,
        "mode": "emulated",
        "ready": True,
        "unread": None,
        "schedules": {"total": fields.pop("total", 100_000), "states": states, "kinds": {}},
        "failing": 0,
        "rejected": 0,
        "misnamed": 0,
        "next": due(3),
        "owner": "f6aceb65fa7b",
        "owner_since": text(-60),
        "takeover_reason": "first",
        "standbys": ["e7701473b5eb"],
    }
    return StreamRow(well | fields, activity)


def owned(stream: str) -> dict[str, Any]:
    """Return what an instance says of a stream that it owns."""
    return {"stream": stream, "mode": "emulated", "since": text(-60), "before": "", "reason": "first"}


def instance(name: str, state: str = "alive", reasons: tuple[str, ...] = (), **fields: Any) -> InstanceRow:
    """Return a sidecar that owns a stream and stands by two."""
    well: Any = {
        "id": name,
        "state": state,
        "since": format_rfc3339(NOW - HOUR),
        "last_heartbeat": text(0),
        "age_nanoseconds": 0,
        "serves": None,
        "unable": [],
        "owns": [owned("ORDERS")],
        "stands_by": [{"stream": name, "mode": "emulated"} for name in ("JOBS", "MAILS")],
        "standbys": 1,
    }
    health: Any = {"at": text(0), "instance": name, "ready": not reasons, "reasons": list(reasons)}
    return InstanceRow(well | fields, health)


def fire(number: int, stream: str = "ORDERS", subject: str = "orders.fired") -> RecentFireDocument:
    """Return a fire of `number` seconds ago."""
    return {
        "stream": stream,
        "schedule": f"{subject}.{number}",
        "target": "orders.out",
        "sequence": 1,
        "fire_time": text(-number),
        "stored": text(-number),
        "lateness_nanoseconds": MILLISECOND,
        "overdue": False,
    }


def failure(number: int, reason: str = "insufficient resources") -> FailureDocument:
    """Return a failure of `number` minutes ago."""
    return {
        "kind": "fire_refused",
        "stored": text(-60 * number),
        "sequence": number,
        "stream": "ORDERS",
        "schedule": f"orders.refused.{number}",
        "advisory": {"code": 503, "reason": reason},
    }


def view(**fields: Any) -> View:
    """Return a view in which all is well: one stream, one sidecar."""
    calm = View(
        NOW,
        SERVER,
        WELL,
        activity=BUSY,
        streams=[stream("ORDERS")],
        due=[due(number) for number in range(1, 21)],
        fires=[fire(number) for number in range(50)],
        failures=[],
        instances=[instance("f6aceb65fa7b")],
    )
    return replace(calm, **fields)


def crowded(text: str = "") -> View:
    """Return a view with more of everything than fits, with a text wherever one comes from others."""
    return view(
        server=f"{SERVER}{text}",
        notices=[f"timeline.list: {text}"],
        streams=[stream(f"ORDERS_{text}{n}", overdue=n, failing=2, mode=f"emulated{text[:5]}") for n in range(100)],
        due=[due(60 * number, f"ORDERS_{text}", text, text) for number in range(100)],
        fires=[fire(number, f"ORDERS_{text}", text) for number in range(100)],
        failures=[failure(number, text) for number in range(100)],
        instances=[instance(f"i{text}{number}", f"alive{text[:5]}", (text, "another")) for number in range(100)],
        verdict=judged("bad", f"no contact {text}", "another"),
    )
