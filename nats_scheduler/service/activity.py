"""The endpoint about the last hour: how many fires were stored in each minute, and how late, by all instances.

The rule: a fire is counted by the instance that fired it, so the counts of all instances add up.
What an instance counted is lost with it: a restart loses its hour.

Cost: a sample of the counts, about a microsecond for each stream; one request to each other instance.
"""

from collections.abc import Sequence

from nats_scheduler.jetstream.foreign_json import Object, count_of, inner, time_of
from nats_scheduler.observe.activity import Minute, added, nothing_in
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoding import FRAME_BYTES, encode_items, with_items
from nats_scheduler.service.endpoint import Asked, Document, shown
from nats_scheduler.service.micro import NOT_FOUND, ServiceError
from nats_scheduler.service.now_schemas import ActivityRequest, MinuteDocument
from nats_scheduler.service.peers import ask_others

_BUCKETS = len(LATENESS_BUCKETS_SECONDS) + 1
_COUNTS = ("fires", "duplicates", "overdue", "refused")


async def list_minutes(asked: Asked, request: ActivityRequest) -> Document:
    """Return what all instances fired in the last minutes."""
    _check_stream(asked, request.stream)
    answers = await ask_others(asked, "activity.list", request.model_dump())
    minutes = await _own(asked, request)
    unanswered = answers.unanswered
    for instance, answer in answers.by_instance.items():
        theirs = read_minutes(answer)
        if theirs is None:
            unanswered.append(instance)
        else:
            minutes = [added(one, theirs.get(one.start, nothing_in(one.start))) for one in minutes]
    return await _answer(asked, minutes, sorted(unanswered))


async def list_alone(asked: Asked, request: ActivityRequest) -> Document:
    """Return what this instance fired in the last minutes."""
    return await _answer(asked, await _own(asked, request), [])


def _check_stream(asked: Asked, stream: str | None) -> None:
    if stream is None or stream in asked.deployment.streams() or asked.deployment.activity.is_known(stream):
        return
    raise ServiceError(NOT_FOUND, f"stream {shown(stream)} is not served: one that streams.list names is expected")


async def _own(asked: Asked, request: ActivityRequest) -> list[Minute]:
    activity = asked.deployment.activity
    await asked.turns.run(activity.sample(asked.deployment.now))
    return activity.minutes(asked.deployment.now(), request.minutes, request.stream)


async def _answer(asked: Asked, minutes: Sequence[Minute], unanswered: Sequence[str]) -> Document:
    """Return the answer; if it would be too long, the oldest minutes are missing."""
    head = {
        "at": format_rfc3339(asked.deployment.now()),
        "instance": asked.deployment.instance,
        "unanswered": unanswered,
        "bounds_seconds": LATENESS_BUCKETS_SECONDS,
    }
    newest_first = encode_items(reversed(minutes), minute_document, asked.room - FRAME_BYTES)
    items = await asked.turns.run(newest_first)
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


def read_minutes(answer: Object) -> dict[int, Minute] | None:
    """Read the answer of an instance, by the start of each minute; None if its counts cannot be added to ours."""
    bounds, listed = answer.get("bounds_seconds"), answer.get("minutes")
    if bounds != list(LATENESS_BUCKETS_SECONDS) or not isinstance(listed, list):
        return None
    found = [_minute(inner(one)) for one in listed]
    return {one.start: one for one in found if one is not None}


def _minute(document: Object) -> Minute | None:
    start, lateness = time_of(document.get("from")), document.get("lateness")
    if start is None or not isinstance(lateness, list) or len(lateness) != _BUCKETS:
        return None
    fires, duplicates, overdue, refused = (count_of(document.get(key)) for key in _COUNTS)
    latest = count_of(document.get("lateness_max_nanoseconds"))
    return Minute(start, fires, duplicates, overdue, refused, tuple(map(count_of, lateness)), latest)
