"""The endpoint about the last fires of all schedules: what the instances keep of what they fired.

The rule: the stream itself is the history of a schedule (`fires.list`). This is what an instance read back last, of all
streams together, so that a page can show what fires right now without reading any stream.

Cost: a look at the last `MAX_RECENT_FIRES` fires, less than a millisecond; one request to each other instance.
Limit: a restart loses it; a busy stream takes the place of others.
"""

from collections.abc import Iterator, Mapping
from typing import Any

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
    found = {_identity(one): one for one in own_fires(asked, request)}
    for answer in answers.by_instance.values():
        found |= {_identity(one): one for one in read_fires(answer)}
    newest_first = sorted(found.values(), key=_age)[: request.limit]
    return await _answer(asked, newest_first, answers.unanswered)


async def list_alone(asked: Asked, request: RecentFiresRequest) -> Document:
    """Return the last fires of this instance, newest first."""
    return await _answer(asked, own_fires(asked, request), [])


def own_fires(asked: Asked, request: RecentFiresRequest) -> list[RecentFireDocument]:
    """Return the last fires of this instance that are wanted, newest first."""
    found: list[RecentFireDocument] = []
    for stream, fire in reversed(asked.deployment.activity.recent):
        is_wanted = request.stream in (None, stream)
        if is_wanted and (request.filter is None or is_covered(fire.schedule, (request.filter,))):
            found.append(recent_fire_document(stream, fire))
            if len(found) == request.limit:
                break
    return found


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
