"""The endpoint about the next minutes: how many fires come due in each of them, and which schedules fire next.

The rule: every instance holds all schedules, so the one that answers asks no other.

Cost: a visit of each schedule, in slices: about half a second for a million (`engine.timeline`), and then not for each
request (`service.reuse`). So the minutes may be some seconds old, and `at` says when they were counted; the schedules
are as they are now.
"""

from collections.abc import Generator

from nats_scheduler.engine.timeline import Timeline
from nats_scheduler.engine.view import NO_FIRE
from nats_scheduler.observe.documents import ScheduleDocument, schedule_document
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoding import FRAME_BYTES, encode_items, with_items
from nats_scheduler.service.endpoint import Asked, Document
from nats_scheduler.service.now_schemas import MinuteAheadDocument, TimelineRequest

MAX_SOONEST = 20
"""Schedules that are named."""


Counted = tuple[Timeline, bool]
"""A timeline, and whether all of its streams were ready."""


async def list_minutes(asked: Asked, request: TimelineRequest) -> Document:
    """Return how many fires come due in each of the next minutes."""
    deployment = asked.deployment
    names = sorted(deployment.streams()) if request.stream is None else [request.stream]
    if request.stream is not None:
        asked.stream(request.stream)  # raises an error if it cannot be asked

    async def count() -> Counted:
        timeline = Timeline(deployment.now(), request.minutes, MAX_SOONEST)
        return timeline, await asked.turns.run(_fill(asked, timeline, names))

    timeline, is_complete = await asked.timelines.get((request.stream, request.minutes), count)
    minutes: list[MinuteAheadDocument] = [
        {"from": format_rfc3339(timeline.start + number * MINUTE), "fires": count}
        for number, count in enumerate(timeline.counts)
    ]
    head = {
        "at": format_rfc3339(timeline.now),
        "instance": deployment.instance,
        "minutes": minutes,
        "complete": is_complete and timeline.is_complete,
    }
    room = asked.room - FRAME_BYTES - sum(len(str(one)) for one in minutes)
    soonest = [found for one in timeline.soonest if (found := _schedule(asked, *one)) is not None]
    soonest.sort(key=_fire_time)
    return with_items(head, "soonest", await asked.turns.run(encode_items(soonest, lambda one: one, room)))


def _fire_time(schedule: ScheduleDocument) -> tuple[int, str]:
    fire = schedule["next_fire"]
    return NO_FIRE if fire is None else fire["nanoseconds"], schedule["subject"]


def _fill(asked: Asked, timeline: Timeline, names: list[str]) -> Generator[None, None, bool]:
    """Count what these streams hold; return whether all of them are read to their ends."""
    are_ready = True
    for name in names:
        stream = asked.deployment.streams().get(name)
        if stream is None:
            continue  # not served any more
        if not stream.is_ready:
            are_ready = False
            continue
        yield from stream.view.add_to(timeline, name)
        yield
    yield from timeline.finish()
    return are_ready


def _schedule(asked: Asked, _fire: int, subject: str, name: str) -> ScheduleDocument | None:
    """Return a schedule as it is now; None if it is not held any more, or does not fire any more."""
    stream = asked.deployment.streams().get(name)
    listed = None if stream is None else stream.view.schedule(subject, asked.deployment.now())
    if stream is None or listed is None or listed.next_fire is None:
        return None
    return schedule_document(name, stream.mode, listed)
