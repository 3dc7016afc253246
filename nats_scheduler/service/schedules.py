"""The endpoints about schedules: pages of them, of messages that are no valid ones, of failing ones, and one of them.

The rule: each reader of a stream holds all schedules that sidecars fire of it, and reads the others when it is asked
(`service.server_schedules`), so each of them answers, and an instance that does not read it asks one that does. What
only the holder of a shard knows (what is in flight, what the server refuses) is asked of the holder, within
`HOLDER_DEADLINE_SECONDS`; an answer says if a holder did not answer.
Limit: an instance names `MAX_NAMED` of its failing schedules, those that fail longest, and the number of all; its
answer says if these are not all.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nats_scheduler.engine.events import HeadersMisnamed
from nats_scheduler.engine.holding.flight import Failing
from nats_scheduler.engine.reading.inactive import Rejected
from nats_scheduler.engine.views.pages import Cursor, Sliced, SubjectPage, read_cursor
from nats_scheduler.engine.views.view import FiredBy, Query, soonest_first
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.observe.documents import misnamed_document, rejected_document, schedule_document
from nats_scheduler.service.endpoint import (
    Asked,
    Document,
    Known,
    ask_each,
    name_cursor,
    read_name_cursor,
    shown,
    with_items,
)
from nats_scheduler.service.micro import BAD_REQUEST, NOT_FOUND, ServiceError
from nats_scheduler.service.schemas import (
    FailingAnswer,
    MessagesRequest,
    OptionalStreamRequest,
    ScheduleAnswer,
    ScheduleRequest,
    SchedulesRequest,
    StreamFailingDocument,
)

MAX_NAMED = 1_000
"""Failing schedules that an instance names in one answer; the streams of one request share this number."""


@dataclass
class Failures:
    """The failing schedules of the other holders."""

    schedules: dict[str, dict[int, Failing]] = field(default_factory=dict)
    """By stream and sequence."""
    totals: dict[str, int] = field(default_factory=dict)
    """The number of schedules that fail, by stream."""
    unanswered: list[str] = field(default_factory=list)
    """The holders that did not answer."""


async def list_failing(asked: Asked, request: OptionalStreamRequest) -> Document:
    """Return the failing schedules that this instance fires, of one stream or of all."""
    streams, left, room = asked.streams, MAX_NAMED, asked.room
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
        **asked.head(),
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
    holders = {holder for name in streams for holder in asked.holders(name)}
    request = {"stream": next(iter(streams)) if len(streams) == 1 else None}
    answers, unanswered = await ask_each(asked, holders, "failing.list", FailingAnswer, request)
    failures = Failures(unanswered=unanswered)
    for answer in answers:
        for name, known in answer["streams"].items():
            if name in streams:
                failures.totals[name] = failures.totals.get(name, 0) + known["total"]
                failures.schedules.setdefault(name, {}).update(_rows(known))
    return failures


def _rows(known: StreamFailingDocument) -> Iterator[tuple[int, Failing]]:
    """Return what an instance says of one stream, by sequence."""
    for reason in known["reasons"]:
        description = reason["description"][:MAX_KEPT_CHARS]
        for sequence, since in reason["schedules"]:
            yield sequence, Failing(reason["err_code"], description, since)


def known_of(failures: Failures, stream: str) -> Mapping[int, Failing]:
    """Return what other holders know of one stream, by sequence."""
    return failures.schedules.get(stream, {})


T = TypeVar("T", Rejected, HeadersMisnamed)


async def list_schedules(asked: Asked, request: SchedulesRequest) -> Document:
    """Return a page of schedules, soonest first."""
    name, stream = request.stream, asked.stream(request.stream)
    after = None if request.cursor is None else read_cursor(request.cursor)
    if request.cursor is not None and after is None:
        raise ServiceError(BAD_REQUEST, f"cursor of {shown(request.cursor)}: the cursor of another page is expected")
    states = None if request.state is None else frozenset(request.state)
    kinds = None if request.kind is None else frozenset(request.kind)
    query = Query(request.filter, request.target, states, kinds)
    failures = await failing_elsewhere(asked, [name])
    known, now = await asked.known(name), asked.now()
    page = await asked.turns.do(
        known.view.page(now, query, limit=request.limit, after=after, failing=known_of(failures, name))
    )
    mode = stream.mode
    items = await asked.encoded(page.schedules, lambda one: schedule_document(name, mode, one))
    following = page.following
    if len(items) < len(page.schedules):
        following = Cursor(*soonest_first(page.schedules[len(items) - 1]))
    head = {
        **asked.head(now),
        "stream": name,
        "mode": mode,
        "read_through": known.read_through,
        "unanswered": failures.unanswered,
        "cursor": None if following is None else following.text,
    }
    return with_items(head, "schedules", items)


async def list_rejected(asked: Asked, request: MessagesRequest) -> Document:
    """Return a page of messages that are rejected as schedules."""
    name, known = request.stream, await asked.known(request.stream)
    mode = asked.stream(name).mode
    work = known.view.rejected_page(_query(request), request.limit, read_name_cursor(request.cursor))
    head = _head(name, mode, known)
    return await _messages(asked, head, "rejected", work, lambda one: rejected_document(name, mode, one))


async def list_misnamed(asked: Asked, request: MessagesRequest) -> Document:
    """Return a page of messages with headers that look like those of a schedule and are none."""
    name, known = request.stream, await asked.known(request.stream)
    work = known.view.misnamed_page(_query(request), request.limit, read_name_cursor(request.cursor))
    head = _head(name, asked.stream(name).mode, known)
    return await _messages(asked, head, "misnamed", work, lambda one: misnamed_document(name, one))


def _head(name: str, mode: str, known: Known) -> Mapping[str, Any]:
    return {"stream": name, "mode": mode, "read_through": known.read_through}


def _query(request: MessagesRequest) -> Query:
    return Query(request.filter, request.target)


async def _messages(
    asked: Asked,
    head: Mapping[str, Any],
    key: str,
    work: Sliced[SubjectPage[T]],
    document_of: Callable[[T], Mapping[str, Any]],
) -> Document:
    page = await asked.turns.do(work)
    items = await asked.encoded(page.messages, document_of)
    is_last = page.is_last and len(items) == len(page.messages)
    answer = {
        **asked.head(),
        **head,
        "cursor": None if is_last or not items else name_cursor(page.messages[len(items) - 1].subject),
    }
    return with_items(answer, key, items)


async def get(asked: Asked, request: ScheduleRequest) -> Document:
    """Return what the holder of a schedule knows of it, or else what this instance does."""
    known = await asked.known(request.stream)
    holder = _holder(asked, request, known)
    if holder is None or holder == asked.instance or not asked.asks_others:
        return _known(asked, request, known)
    answer = await asked.ask(holder, "schedules.get", ScheduleAnswer, request.model_dump())
    return _known(asked, request, known) if answer is None else answer


def _holder(asked: Asked, request: ScheduleRequest, known: Known) -> str | None:
    """Return the instance that fires a schedule; None if none does, or if the server itself does."""
    listed = known.view.schedule(request.subject, asked.now())
    if listed is not None and listed.fired_by is not FiredBy.SIDECAR:
        return None
    return asked.holder(request.stream, request.subject)


def _known(asked: Asked, request: ScheduleRequest, known: Known) -> ScheduleAnswer:
    name, subject = request.stream, request.subject
    stream, now, view = asked.stream(name), asked.now(), known.view
    listed, rejected, misnamed = view.schedule(subject, now), view.rejection(subject), view.misnaming(subject)
    if listed is None and rejected is None and misnamed is None:
        raise ServiceError(NOT_FOUND, f"stream {name} has no schedule on {shown(subject)}: schedules.list lists them")
    holder, flight = _holder(asked, request, known), view.flight(subject)
    is_by_sidecar = listed is None or listed.fired_by is FiredBy.SIDECAR
    return {
        **asked.head(now),
        "holder": holder,
        "holder_answered": holder == asked.instance or not is_by_sidecar,
        "schedule": None if listed is None else schedule_document(name, stream.mode, listed),
        "flight": None
        if flight is None
        else {"stage": flight.stage.value, "attempts": flight.attempts, "may_be_stored": flight.may_be_stored},
        "rejected": None if rejected is None else rejected_document(name, stream.mode, rejected),
        "misnamed": None if misnamed is None else misnamed_document(name, misnamed),
    }
