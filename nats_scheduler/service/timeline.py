"""The endpoint about the next minutes: how many fires come due in each of them, and which schedules fire next.

The rule: every instance holds all schedules, so the one that answers asks no other.

Cost: a visit of each schedule, in slices: about half a second for a million (`engine.timeline`), and then not for each
request (`service.reuse`). So the minutes may be some seconds old, and `at` says when they were counted; the schedules
are as they are now. What the server itself fires is read for it (`service.server_schedules`).
Limit: an interval that the server rounds is counted as its pattern says.
"""

import asyncio
from collections.abc import Generator, Sequence

from nats_scheduler.engine.cursor import NO_FIRE
from nats_scheduler.engine.joined_view import JoinedView
from nats_scheduler.engine.timeline import Timeline
from nats_scheduler.engine.view import EngineView
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.observe.documents import ScheduleDocument, schedule_document
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoding import FRAME_BYTES, encode_items, with_items
from nats_scheduler.service.endpoint import Asked, Document, Views
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.now_schemas import MinuteAheadDocument, TimelineRequest
from nats_scheduler.service.server_schedules import READ_WAIT_SECONDS

MAX_SOONEST = 20
"""Schedules that are named."""


Counted = tuple[Timeline, Views]
"""A timeline, and the streams that are counted in it."""


async def list_minutes(asked: Asked, request: TimelineRequest) -> Document:
    """Return how many fires come due in each of the next minutes."""
    deployment = asked.deployment
    names = sorted(deployment.streams()) if request.stream is None else [request.stream]
    if request.stream is not None:
        asked.stream(request.stream)  # raises an error if it cannot be asked

    async def count() -> Counted:
        views = await _views(asked, names)
        timeline = Timeline(deployment.now(), request.minutes, MAX_SOONEST)
        await asked.turns.run(_fill(timeline, views))
        return timeline, views

    timeline, views = await asked.timelines.get((request.stream, request.minutes), count)
    minutes: list[MinuteAheadDocument] = [
        {"from": format_rfc3339(timeline.start + number * MINUTE), "fires": count}
        for number, count in enumerate(timeline.counts)
    ]
    head = {
        "at": format_rfc3339(timeline.now),
        "instance": deployment.instance,
        "minutes": minutes,
        "complete": timeline.is_complete and None not in views.values(),
    }
    room = asked.room - FRAME_BYTES - sum(len(str(one)) for one in minutes)
    soonest = [found for one in timeline.soonest if (found := _schedule(asked, views, *one)) is not None]
    soonest.sort(key=_fire_time)
    return with_items(head, "soonest", await asked.turns.run(encode_items(soonest, lambda one: one, room)))


def _fire_time(schedule: ScheduleDocument) -> tuple[int, str]:
    fire = schedule["next_fire"]
    return NO_FIRE if fire is None else fire["nanoseconds"], schedule["subject"]


async def _views(asked: Asked, names: Sequence[str]) -> Views:
    """Return what is known of these streams; what the server itself fires is read in `READ_WAIT_SECONDS` at most."""
    loop = asyncio.get_running_loop()
    until = loop.time() + READ_WAIT_SECONDS
    found: dict[str, EngineView | JoinedView | None] = {}
    for name in names:
        try:
            found[name] = (await asked.known(name, max(until - loop.time(), 0.0))).view
        except (ServiceError, JetStreamError):
            if name in asked.deployment.streams():
                found[name] = None
    return found


def _fill(timeline: Timeline, views: Views) -> Generator[None, None, None]:
    """Count what is held of the streams."""
    for name, view in views.items():
        if view is not None:
            yield from view.add_to(timeline, name)
        yield
    yield from timeline.finish()


def _schedule(asked: Asked, views: Views, _fire: int, subject: str, name: str) -> ScheduleDocument | None:
    """Return a schedule as it is now; None if it is not held any more, or does not fire any more."""
    stream, view = asked.deployment.streams().get(name), views.get(name)
    listed = None if view is None else view.schedule(subject, asked.deployment.now())
    if stream is None or listed is None or listed.next_fire is None:
        return None
    return schedule_document(name, stream.mode, listed)
