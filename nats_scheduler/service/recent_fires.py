"""The endpoint about the last fires of all schedules: what the instances keep of what they fired.

The rule: the stream itself is the history of a schedule (`fires.list`). This is what an instance read back last, of all
streams together, so that a page can show what fires right now without reading any stream.

Cost: a look at the last `MAX_RECENT_FIRES` fires, about a millisecond; one request to each other instance.
Limit: a restart loses it; a busy stream takes the place of others.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nats_scheduler.engine.events import FireReadBack
from nats_scheduler.jetstream.foreign_json import Object, integer
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.observe.documents import RecentFireDocument, recent_fire_document
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.service.encoding import FRAME_BYTES, encode_items, with_items
from nats_scheduler.service.endpoint import Asked, Document
from nats_scheduler.service.now_schemas import RecentFiresRequest
from nats_scheduler.service.peers import ask_others

_TEXTS = ("stream", "schedule", "target", "fire_time", "stored")


async def list_recent(asked: Asked, request: RecentFiresRequest) -> Document:
    """Return the last fires of all instances, newest first."""
    answers = await ask_others(asked, "fires.recent", request.model_dump())
    own = newest(asked.deployment.activity.recent, request)
    of_all = merged([own, *map(read_fires, answers.by_instance.values())])
    return await _answer(asked, of_all[: request.limit], answers.unanswered)


async def list_alone(asked: Asked, request: RecentFiresRequest) -> Document:
    """Return the last fires of this instance, newest first."""
    return await _answer(asked, newest(asked.deployment.activity.recent, request), [])


def newest(read_back: Iterable[tuple[str, FireReadBack]], request: RecentFiresRequest) -> list[RecentFireDocument]:
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


def _stored(read_back: tuple[str, FireReadBack]) -> tuple[int, int]:
    _stream, fire = read_back
    return fire.stored_at, fire.stored_sequence


def merged(parts: Iterable[Iterable[RecentFireDocument]]) -> list[RecentFireDocument]:
    """Return the fires of several instances, newest first, each once."""
    found = {_identity(one): one for part in parts for one in part}
    return sorted(found.values(), key=_age)


async def _answer(asked: Asked, fires: list[RecentFireDocument], unanswered: list[str]) -> Document:
    head = {
        "at": format_rfc3339(asked.deployment.now()),
        "instance": asked.deployment.instance,
        "unanswered": unanswered,
    }
    return with_items(head, "fires", await asked.turns.run(encode_items(fires, _same, asked.room - FRAME_BYTES)))


def _same(document: RecentFireDocument) -> Mapping[str, Any]:
    return document


def _identity(fire: RecentFireDocument) -> tuple[str, int]:
    """Return what two instances have in common that both read back a fire while its shard changed hands."""
    return fire["stream"], fire["sequence"]


def _age(fire: RecentFireDocument) -> tuple[int, int]:
    stored = parse_rfc3339(fire["stored"])
    assert isinstance(stored, int), "it was written or read as a time"
    return -stored, -fire["sequence"]


def read_fires(answer: Object) -> Iterator[RecentFireDocument]:
    """Read the fires of another instance; what none of ours can have written is passed over."""
    listed = answer.get("fires")
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict) or not all(isinstance(one.get(key), str) for key in _TEXTS):
            continue
        if isinstance(parse_rfc3339(one["stored"]), int) and isinstance(parse_rfc3339(one["fire_time"]), int):
            yield {
                "stream": one["stream"],
                "schedule": one["schedule"],
                "target": one["target"],
                "sequence": integer(one.get("sequence")),
                "fire_time": one["fire_time"],
                "stored": one["stored"],
                "lateness_nanoseconds": integer(one.get("lateness_nanoseconds")),
                "overdue": one.get("overdue") is True,
            }
