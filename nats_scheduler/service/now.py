"""The endpoints about now: what fired in each minute of the last hour, what fired last, and what comes due next.

The rules:

- A fire is counted by the instance that fired it, so the counts of all instances add up. The last fires are those that
  each instance read back, of all streams together, so that a page can show what fires right now without reading any
  stream. A restart loses both.
- What the server itself fires no instance counts: the one that answers reads it with the server's schedules
  (`service.watched_streams`), the fires of schedules that are stored.
- The owner and the standbys of a stream hold all its schedules, so one that answers what comes due asks no other.

Cost: a sample of the counts, about a microsecond for each stream; a look at the last `MAX_RECENT_FIRES` fires, about a
millisecond; one request to each other instance. What comes due takes a visit of each schedule, in slices: about half a
second for a million (`engine.views.figures`), and then not for each request (`service.turns`).
Limit: a busy stream takes the place of others among the last fires. The minutes that come may be some seconds old, and
`at` says when they were counted; an interval that the server rounds is counted as its pattern says.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Annotated

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.events import FireConfirmed
from nats_scheduler.engine.views.cursors import NO_FIRE
from nats_scheduler.engine.views.timeline import Timeline
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.jetstream.single_flight import loop_time
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.observe.activity import MINUTES_KEPT, LastMinutes, Minute, ReadFires, total_of
from nats_scheduler.observe.documents import (
    Count,
    RecentFireDocument,
    Rows,
    ScheduleDocument,
    Time,
    Within,
    instant_of,
    recent_fire_document,
    schedule_document,
)
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoded_items import with_items
from nats_scheduler.service.endpoint import Asked, Document, Views, ask_each, ask_owners, not_served
from nats_scheduler.service.micro import NOT_FOUND, ServiceError
from nats_scheduler.service.schemas import Answer, OptionalStreamRequest, StreamNames, SubjectFilter
from nats_scheduler.service.turns import reusable
from nats_scheduler.service.watched_streams import MAX_STREAMS, READ_WAIT_SECONDS

DEFAULT_RECENT_FIRES = 50
MAX_RECENT_FIRES_LISTED = 200
"""Recent fires in one answer."""

DEFAULT_MINUTES_AHEAD = 60
MAX_MINUTES_AHEAD = 120


class ActivityRequest(OptionalStreamRequest):
    """A request for what was fired in the last minutes."""

    minutes: Annotated[int, Field(ge=1, le=MINUTES_KEPT, description="How many minutes, the present one included.")] = (
        MINUTES_KEPT
    )


class RecentFiresRequest(OptionalStreamRequest):
    """A request for the last fires, newest first."""

    filter: SubjectFilter = None
    limit: Annotated[int, Field(ge=1, le=MAX_RECENT_FIRES_LISTED, description="The most fires.")] = DEFAULT_RECENT_FIRES


class TimelineRequest(OptionalStreamRequest):
    """A request for the fires that come due in the next minutes."""

    minutes: Annotated[
        int,
        Field(ge=1, le=MAX_MINUTES_AHEAD, description="How many minutes; the first is the rest of the present one."),
    ] = DEFAULT_MINUTES_AHEAD
    streams: StreamNames = None


_BUCKETS = len(LATENESS_BUCKETS_SECONDS) + 1


def _check_bounds(bounds: list[float]) -> list[float]:
    """Refuse the bounds of a version that counts otherwise: what it counted cannot be added up or shown."""
    if bounds != list(LATENESS_BUCKETS_SECONDS):
        raise ValueError("other bounds are expected")
    return bounds


MinuteDocument = TypedDict(
    "MinuteDocument",
    {
        "from": Time,
        "fires": Count,
        "duplicates": Count,
        "overdue": Count,
        "refused": Count,
        "lateness": Annotated[Rows[Count], Within(min_length=_BUCKETS, max_length=_BUCKETS)],
        "lateness_max_nanoseconds": Count,
    },
)
"""The fires of one minute: `lateness` counts them by `bounds_seconds`, with one more for what is above."""


class ActivityAnswer(Answer):
    """The fires of the last minutes, oldest first; the last one is the present one."""

    unanswered: Rows[str]
    """The instances that did not answer: what they fired is missing."""
    since: Time
    """From when on all fires are counted, by each instance that answered; of minutes before it some may be missing."""
    bounds_seconds: Annotated[Rows[float], AfterValidator(_check_bounds)]
    """The upper bounds of the lateness that is counted together."""
    minutes: Rows[MinuteDocument]


class RecentFiresAnswer(Answer):
    """The last fires, newest first."""

    unanswered: Rows[str]
    """The instances that did not answer: what they fired is missing."""
    fires: Rows[RecentFireDocument]


MinuteAheadDocument = TypedDict("MinuteAheadDocument", {"from": Time, "fires": Count})
"""The number of fires that come due in one minute."""


class TimelineAnswer(Answer):
    """The fires that come due in the next minutes; in the first one, those of what is left of it."""

    minutes: Rows[MinuteAheadDocument]
    complete: bool
    """True if all schedules were counted: their streams are read, and their patterns were not too many."""
    soonest: Rows[ScheduleDocument]
    """The schedules that fire next."""


async def list_activity(asked: Asked, request: ActivityRequest) -> Document:
    """Return what all instances fired in the last minutes."""
    _check_stream(asked, request.stream)
    others = asked.owners.others
    answers, unanswered = await ask_each(asked, others, "activity.list", ActivityAnswer, request.model_dump())
    minutes = await _own(asked, request)
    since = max([asked.activity.since or 0, *(instant_of(answer["since"]) for answer in answers)])
    read = (fires.hour.last(asked.now(), request.minutes) for fires in (await _of_server(asked, request)).values())
    for others_minutes in (*(read_activity(answer).minutes for answer in answers), *read):
        theirs = {one.start: one for one in others_minutes}
        minutes = [total_of([theirs[one.start], one]) if one.start in theirs else one for one in minutes]
    return await _activity_answer(asked, minutes, unanswered, since)


def _check_stream(asked: Asked, stream: str | None) -> None:
    if stream is None or asked.known_stream(stream) is not None or asked.activity.is_known(stream):
        return
    raise ServiceError(NOT_FOUND, not_served(stream))


async def _own(asked: Asked, request: ActivityRequest) -> list[Minute]:
    activity = asked.activity
    await asked.turns.run(activity.sample(asked.now))
    return activity.minutes(asked.now(), request.minutes, request.stream)


async def _of_server(asked: Asked, request: ActivityRequest | RecentFiresRequest) -> dict[str, ReadFires]:
    """Return what the server itself has fired on the streams that are wanted, the first `MAX_STREAMS` of them by name.

    Only who answers reads it, and in `READ_WAIT_SECONDS` at most; what cannot be read is `unread` in `streams.list`.
    """
    until = asyncio.get_running_loop().time() + READ_WAIT_SECONDS
    known = {**asked.left, **asked.streams}
    wanted = known if request.stream is None else {request.stream} & known.keys()
    names = [name for name in sorted(wanted) if known[name].others_fired_by is FiredBy.SERVER]
    found: dict[str, ReadFires] = {}
    for name in names[:MAX_STREAMS] if asked.asks_others else ():
        with suppress(SchedulerError):
            left = max(until - asyncio.get_running_loop().time(), 0.0)
            found[name] = await asked.watched_streams.fires(name, left)
    return found


async def _activity_answer(asked: Asked, minutes: Sequence[Minute], unanswered: Sequence[str], since: int) -> Document:
    """Return the answer; if it would be too long, the oldest minutes are missing."""
    head = {
        **asked.head(),
        "unanswered": unanswered,
        "since": format_rfc3339(since),
        "bounds_seconds": LATENESS_BUCKETS_SECONDS,
    }
    items = await asked.encoded(reversed(minutes), minute_document)
    return with_items(head, "minutes", reversed(items))


def minute_document(minute: Minute) -> MinuteDocument:
    """Return what happened in a minute."""
    return {
        "from": format_rfc3339(minute.start),
        "fires": minute.fires,
        "duplicates": minute.duplicates,
        "overdue": minute.overdue,
        "refused": minute.refused,
        "lateness": list(minute.lateness),
        "lateness_max_nanoseconds": minute.lateness_max,
    }


def read_activity(answer: ActivityAnswer) -> LastMinutes:
    """Return what an instance, or all of them, fired in the last minutes."""
    minutes = [
        Minute(
            instant_of(one["from"]),
            one["fires"],
            one["duplicates"],
            one["overdue"],
            one["refused"],
            tuple(one["lateness"]),
            one["lateness_max_nanoseconds"],
        )
        for one in answer["minutes"]
    ]
    return LastMinutes(
        instant_of(answer["at"]), sorted(minutes, key=lambda one: one.start), instant_of(answer["since"])
    )


# -- the last fires -------------------------------------------------------------------------------------------------


async def list_recent(asked: Asked, request: RecentFiresRequest) -> Document:
    """Return the last fires of all instances, newest first."""
    others = asked.owners.others
    answers, unanswered = await ask_each(asked, others, "fires.recent", RecentFiresAnswer, request.model_dump())
    own = newest(asked.activity.recent, request)
    read = await _of_server(asked, request)
    of_server = newest(((name, fire) for name, fires in read.items() for fire in fires.recent), request)
    of_all = merged([own, of_server, *(answer["fires"] for answer in answers)])
    return await _recent_answer(asked, of_all[: request.limit], unanswered)


def newest(read_back: Iterable[tuple[str, FireConfirmed]], request: RecentFiresRequest) -> list[RecentFireDocument]:
    """Return those of the last fires and their streams that are wanted, newest first.

    They were read back in nearly this order: what another instance stored may be read back before ours.
    """
    wanted = [
        (stream, fire)
        for stream, fire in read_back
        if request.stream in (None, stream) and (request.filter is None or is_covered(fire.schedule, (request.filter,)))
    ]
    wanted.sort(key=_stored, reverse=True)
    return [recent_fire_document(stream, fire) for stream, fire in wanted[: request.limit]]


def _stored(read_back: tuple[str, FireConfirmed]) -> tuple[int, int]:
    _stream, fire = read_back
    return fire.stored_at, fire.stored_sequence


def merged(parts: Iterable[Iterable[RecentFireDocument]]) -> list[RecentFireDocument]:
    """Return the fires of several instances, newest first, each once."""
    found = {_identity(one): one for part in parts for one in part}
    return sorted(found.values(), key=_age)


async def _recent_answer(asked: Asked, fires: list[RecentFireDocument], unanswered: list[str]) -> Document:
    head = {
        **asked.head(),
        "unanswered": unanswered,
    }
    return with_items(head, "fires", await asked.encoded(fires, dict))


def _identity(fire: RecentFireDocument) -> tuple[str, int]:
    """Return what two instances have in common that both read back a fire while its stream got another owner."""
    return fire["stream"], fire["sequence"]


def _age(fire: RecentFireDocument) -> tuple[int, int]:
    return -instant_of(fire["stored"]), -fire["sequence"]


# -- the next minutes -----------------------------------------------------------------------------------------------

MAX_SOONEST = 20
"""Schedules that are named."""


Counted = tuple[Timeline, Views]
"""A timeline, and the streams that are counted in it."""


async def list_timeline(asked: Asked, request: TimelineRequest) -> Document:
    """Return how many fires come due in each of the next minutes."""
    names = asked.names(request.streams) if request.stream is None else [request.stream]
    if request.stream is not None:
        asked.stream(request.stream)  # raises an error if it cannot be asked

    async def count() -> Counted:
        views = await _views(asked, [name for name in names if name not in asked.left])
        timeline = Timeline(asked.now(), request.minutes, MAX_SOONEST)
        for name, view in views.items():
            if view is not None:
                await asked.turns.ask(view.add_to(timeline, name))
        await asked.turns.run(timeline.finish())
        return timeline, views

    (timeline, views), (answers, unanswered) = await asyncio.gather(
        asked.timelines.of((tuple(names), request.minutes)).get(lambda: reusable(count()), since=loop_time()),
        ask_owners(asked, asked.left.keys() & names, "timeline.list", TimelineAnswer, {"minutes": request.minutes}),
    )
    read = Counter[str]()
    for answer in answers:
        read.update({one["from"]: one["fires"] for one in answer["minutes"]})
    minutes: list[MinuteAheadDocument] = [
        {"from": start, "fires": count + read[start]}
        for start, count in (
            (format_rfc3339(timeline.start + number * MINUTE), count) for number, count in enumerate(timeline.counts)
        )
    ]
    unread = [one for one in names if one in asked.left and not asked.readers(one)]
    are_complete = not (unanswered or unread) and all(answer["complete"] for answer in answers)
    head = {
        **asked.head(timeline.now),
        "minutes": minutes,
        "complete": are_complete and timeline.is_complete and None not in views.values(),
    }
    room = asked.room - sum(len(str(one)) for one in minutes)
    soonest = [found for one in timeline.soonest if (found := _schedule(asked, views, *one)) is not None]
    soonest += [one for answer in answers for one in answer["soonest"]]
    soonest.sort(key=_fire_time)
    return with_items(head, "soonest", await asked.encoded(soonest[:MAX_SOONEST], dict, room))


def _fire_time(schedule: ScheduleDocument) -> tuple[int, str]:
    fire = schedule["next_fire"]
    return NO_FIRE if fire is None else fire["nanoseconds"], schedule["subject"]


async def _views(asked: Asked, names: Sequence[str]) -> Views:
    """Return what is known of these streams; what the server itself fires is read in `READ_WAIT_SECONDS` at most."""
    loop = asyncio.get_running_loop()
    until = loop.time() + READ_WAIT_SECONDS
    found: dict[str, EngineView | None] = {}
    for name in names:
        try:
            found[name] = (await asked.known(name, max(until - loop.time(), 0.0))).view
        except SchedulerError:
            if name in asked.streams:
                found[name] = None
    return found


def _schedule(asked: Asked, views: Views, _fire: int, subject: str, name: str) -> ScheduleDocument | None:
    """Return a schedule as it is now; None if it is not held any more, or does not fire any more."""
    stream, view = asked.streams.get(name), views.get(name)
    listed = None if view is None else view.schedule(subject, asked.now())
    if stream is None or listed is None or listed.next_fire is None:
        return None
    return schedule_document(name, stream.mode, listed)
