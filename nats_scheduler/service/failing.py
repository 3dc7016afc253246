"""The schedules whose fires the server refuses: what one instance knows, and what all holders of a stream know.

The rule: an instance knows it of the schedules that it fires, and of no others. So a list asks the other holders, all
at once, each within `HOLDER_DEADLINE_SECONDS`, and names those that did not answer.

Limit: an instance names `MAX_NAMED` of its failing schedules, those that fail longest, and the number of all; its
answer says if these are not all.
"""

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nats_scheduler.engine.flight import Failing
from nats_scheduler.jetstream.foreign_json import Object, count_of, inner, integer
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoding import FRAME_BYTES
from nats_scheduler.service.endpoint import Asked, Document
from nats_scheduler.service.schemas import FailingAnswer, FailingRequest, StreamFailingDocument

MAX_NAMED = 1_000
"""Failing schedules that an instance names in one answer; the streams of one request share this number."""


@dataclass
class Failures:
    """What the other holders know."""

    schedules: dict[str, dict[int, Failing]] = field(default_factory=dict)
    """By stream and sequence."""
    totals: dict[str, int] = field(default_factory=dict)
    """How many fail, by stream."""
    unanswered: list[str] = field(default_factory=list)
    """The holders that did not answer."""


async def list_alone(asked: Asked, request: FailingRequest) -> Document:
    """Return the failing schedules that this instance fires, of one stream or of all."""
    deployment = asked.deployment
    streams, left, room = deployment.streams(), MAX_NAMED, asked.room - FRAME_BYTES
    found: dict[str, StreamFailingDocument] = {}
    is_complete = True
    for name in sorted(streams):
        if request.stream not in (None, name) or not streams[name].failing_count:
            continue
        rows = streams[name].failing(left)
        document = _document(streams[name].failing_count, rows)
        room -= len(json.dumps({name: document}))
        is_complete = is_complete and room >= 0 and len(rows) == document["total"]
        if room < 0:
            break
        left -= len(rows)
        found[name] = document
    answer: FailingAnswer = {
        "at": format_rfc3339(deployment.now()),
        "instance": deployment.instance,
        "complete": is_complete,
        "streams": found,
    }
    return answer


def _document(total: int, rows: Sequence[tuple[int, Failing]]) -> StreamFailingDocument:
    reasons: dict[tuple[int, str], list[list[int]]] = {}
    for sequence, why in rows:
        reasons.setdefault((why.code, why.description[:MAX_KEPT_CHARS]), []).append([sequence, why.since])
    return {
        "total": total,
        "reasons": [{"err_code": code, "description": text, "schedules": of} for (code, text), of in reasons.items()],
    }


async def failing_elsewhere(asked: Asked, streams: Collection[str]) -> Failures:
    """Ask the other holders of these streams for what fails."""
    me = asked.deployment.instance
    holders = sorted({holder for name in streams for holder in asked.deployment.holders(name)} - {me})
    request = {"stream": next(iter(streams)) if len(streams) == 1 else None}
    answers = await asyncio.gather(*(asked.ask(holder, "failing.list", request) for holder in holders))
    failures = Failures()
    for holder, answer in zip(holders, answers, strict=True):
        if answer is None:
            failures.unanswered.append(holder)
        for name, known in inner(inner(answer).get("streams")).items():
            if name in streams:
                failures.totals[name] = failures.totals.get(name, 0) + count_of(inner(known).get("total"))
                failures.schedules.setdefault(name, {}).update(_rows(inner(known)))
    return failures


def _rows(known: Object) -> Iterator[tuple[int, Failing]]:
    """Read what an instance says of one stream; what none of ours can have written is passed over."""
    for reason in map(inner, _listed(known.get("reasons"))):
        code, said = integer(reason.get("err_code")), reason.get("description")
        description = said[:MAX_KEPT_CHARS] if isinstance(said, str) else ""
        for row in _listed(reason.get("schedules")):
            if isinstance(row, list) and len(row) == 2 and integer(row[0]) > 0 and integer(row[1]) > 0:
                yield row[0], Failing(code, description, row[1])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def known_of(failures: Failures, stream: str) -> Mapping[int, Failing]:
    """Return what other holders know of one stream, by sequence."""
    return failures.schedules.get(stream, {})
