"""Views as `top` shows them, for tests: calm ones, crowded ones, and such as a hostile publisher would like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nats_scheduler.cli.top_view import InstanceRow, StreamRow, View
from nats_scheduler.schedule.instants import HOUR, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.service.overview import (
    Activity,
    Due,
    Failure,
    Health,
    Histogram,
    Instance,
    MinuteActivity,
    RecentFire,
    Stream,
)

AT = parse_rfc3339("2026-11-22T12:36:05Z")
assert isinstance(AT, int)
NOW: int = AT
PRESENT = NOW - NOW % MINUTE
HOSTILE = "\x1b]0;title\x07\x1b[2J\n\u202e" + "注文" * 100 + "e\u0301\U0001f469\u200d\U0001f680"
SERVER = "nats://127.0.0.1:4222 (n1, 2.11.11)"


def activity(fires: int, refused: int = 0) -> Activity:
    """Return an hour in which so many fires were stored in each minute, the half of them within a millisecond."""
    bounds = (1 * MILLISECOND, 10 * MILLISECOND)
    late = Histogram(bounds, (fires - fires // 2, fires // 2, 0), 5 * MILLISECOND)
    minutes = [MinuteActivity(PRESENT - ago * MINUTE, fires, 0, 0, refused, late) for ago in range(59, -1, -1)]
    return Activity(NOW, minutes, ())


NO_ACTIVITY = Activity(NOW, (), ())
BUSY = activity(385)
"""738 fires in the last minute: 385 since it began, and 55 of 60 parts of those in the minute before."""


def due(number: int, stream: str = "ORDERS", subject: str = "orders.due", pattern: str = "@every 5m") -> Due:
    """Return a schedule that fires in so many seconds."""
    return Due(stream, f"{subject}.{number}", pattern, "orders.out", NOW + number * SECOND, "waiting")


def stream(name: str, **fields: Any) -> StreamRow:
    """Return a stream in which all is well, but for some fields."""
    shown = {"activity": fields.pop("activity", BUSY)}
    states = {"waiting": 1, "overdue": fields.pop("overdue", 0), "paused": fields.pop("paused", 0)}
    well = Stream(name, "emulated", True, 100_000, states, {}, 0, 0, 0, due(3), ("a",))
    return StreamRow(replace(well, **fields), **shown)


def instance(name: str, state: str = "alive", reasons: tuple[str, ...] = (), **fields: Any) -> InstanceRow:
    """Return a sidecar that holds all shards of one stream."""
    well = Instance(name, state, NOW - HOUR, NOW, {"ORDERS": range(64)}, {})
    return InstanceRow(replace(well, **fields), Health(name, not reasons, reasons))


def fire(number: int, stream: str = "ORDERS", subject: str = "orders.fired") -> RecentFire:
    """Return a fire of so many seconds ago."""
    stored = NOW - number * SECOND
    return RecentFire(stream, f"{subject}.{number}", "orders.out", 1, stored, stored, MILLISECOND)


def failure(number: int, reason: str = "insufficient resources") -> Failure:
    """Return a failure of so many minutes ago."""
    advisory = {"code": 503, "reason": reason}
    return Failure("fire_refused", NOW - number * MINUTE, "ORDERS", f"orders.refused.{number}", advisory)


def view(**fields: Any) -> View:
    """Return a view in which all is well: one stream, one sidecar."""
    calm = View(
        NOW,
        SERVER,
        answered=True,
        is_health_known=True,
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
        reasons=[f"no contact {text}", "another"],
    )
