"""The state before a reader types the first command of a page: a server, a sidecar, streams, schedules, files.

The rule: a scene has what the page takes for granted and nothing that it asks its reader to make.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.harness.servers import V2_11, V2_15
from tests.house.coming_from import STREAM_FILE

ORDERS: Mapping[str, Any] = json.loads(STREAM_FILE)
"""The stream of the README, which most pages begin with."""
EVERY_MORNING = {
    "Nats-Schedule": "0 30 9 * * mon-fri",
    "Nats-Schedule-Time-Zone": "Europe/Berlin",
    "Nats-Schedule-Target": "orders.due",
}
REMINDER = ("orders.schedules.reminder", EVERY_MORNING, "Hello")
MORNING = ("orders.schedules.morning", EVERY_MORNING, "Look at the open orders")


def stream(name: str, *subjects: str, **more: object) -> dict[str, Any]:
    """Return a stream like that of the README with another name and other subjects."""
    return {**ORDERS, "name": name, "subjects": list(subjects), **more}


@dataclass(frozen=True)
class Scene:
    """A server, and what is on it."""

    version: str | None = V2_11
    """None: the page itself starts its server."""
    before: str | None = None
    """The version that the streams and schedules were stored with, if the server was upgraded since."""
    has_sidecar: bool = True
    """False: the server fires, and its streams have the flag from the beginning."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the sidecar."""
    serves_metrics: bool = False
    streams: tuple[Mapping[str, Any], ...] = (ORDERS,)
    schedules: tuple[tuple[str, Mapping[str, str], str], ...] = ()
    consumer: str | None = None
    """The name of a consumer of ORDERS."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Beside `orders.json`, which is always there."""


NOTHING = Scene(version=None)
"""The page itself starts its server."""
EMPTY = Scene(streams=())
FAILURES = stream("nats_scheduler_failures", "nats_scheduler.advisory.>", allow_msg_schedules=False)

UPGRADED = Scene(version=V2_15, before=V2_11, schedules=(MORNING,))

SCENES = {
    "README.md": EMPTY,
    "CONTRIBUTING.md": NOTHING,
    "docs/start.md": NOTHING,
    "docs/start.md ## 2. Look at a server that fires": Scene(version=V2_15, has_sidecar=False, schedules=(MORNING,)),
    "docs/operating/changing.md": Scene(streams=(ORDERS, FAILURES)),
    "docs/operating/graduate.md": UPGRADED,
    "docs/operating/monitoring.md": Scene(
        serves_metrics=True, schedules=(REMINDER,), consumer="worker", settings={"canary_interval": "10s"}
    ),
    "docs/operating/pause.md": Scene(schedules=(MORNING,)),
    "docs/operating/why-not.md": Scene(schedules=(REMINDER,)),
}
"""By page, or by page and section; what has no row begins with the stream of the README, a sidecar and nothing else."""


def part_of(page: str, section: str) -> str:
    """Return the part of a page to which a section belongs: one with a scene of its own, or the rest of the page."""
    own = f"{page} {section}"
    return own if own in SCENES else page


def scene_of(part: str) -> Scene:
    """Return what there is before a part of a page begins."""
    return SCENES.get(part, NOTHING if part.startswith("docs/tutorials/") else Scene())
