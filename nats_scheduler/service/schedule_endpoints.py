"""The endpoints about schedules: pages of them, of messages that are no valid ones, and one of them.

The rule: the owner of a stream answers about its schedules (`Endpoint.answers`), since it alone knows what is in flight
and what the server refuses. A standby answers in its place if it does not, and says so. What is no valid schedule, each
that reads the stream knows; what the server itself fires is read when it is asked for (`service.watched_streams`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from nats_scheduler.engine.events import HeadersMisnamed
from nats_scheduler.engine.holding.inactive import Rejected
from nats_scheduler.engine.views.cursors import SubjectPage, read_cursor
from nats_scheduler.engine.views.seen import Work
from nats_scheduler.engine.views.view import FiredBy, Query, findings_on
from nats_scheduler.message.capabilities import capabilities_of
from nats_scheduler.observe.documents import finding_document, misnamed_document, rejected_document, schedule_document
from nats_scheduler.service.encoded_items import with_items
from nats_scheduler.service.endpoint import Asked, Document, Known, name_cursor, read_name_cursor, shown
from nats_scheduler.service.micro import BAD_REQUEST, NOT_FOUND, ServiceError
from nats_scheduler.service.schemas import MessagesRequest, ScheduleAnswer, ScheduleRequest, SchedulesRequest

T = TypeVar("T", Rejected, HeadersMisnamed)


async def list_schedules(asked: Asked, request: SchedulesRequest) -> Document:
    """Return a page of schedules, and how many there are if that is asked for."""
    name, stream = request.stream, asked.stream(request.stream)
    after = None if request.cursor is None else read_cursor(request.cursor)
    if request.cursor is not None and after is None:
        raise ServiceError(BAD_REQUEST, f"cursor of {shown(request.cursor)}: the cursor of another page is expected")
    states = None if request.state is None else frozenset(request.state)
    kinds = None if request.kind is None else frozenset(request.kind)
    query = replace(_query(request), states=states, kinds=kinds, owner=request.owner)
    known, now = await asked.known(name), asked.now()
    order = request.order
    page = await asked.turns.ask(known.view.page(now, query, limit=request.limit, after=after, order=order))
    total = (await asked.turns.ask(known.view.counts(now, query))).total if request.count else None
    mode = stream.mode
    items = await asked.encoded(page.schedules, lambda one: schedule_document(name, mode, one))
    following = page.following
    if len(items) < len(page.schedules):
        following = order.cursor_of(page.schedules[len(items) - 1])
    head = {
        **asked.head(now),
        "stream": name,
        "mode": mode,
        "read_through": known.read_through,
        "unanswered": asked.unanswered(name),
        "total": total,
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
    return Query(request.filter, request.target, contains=request.contains, target_contains=request.target_contains)


async def _messages(
    asked: Asked,
    head: Mapping[str, Any],
    key: str,
    work: Work[SubjectPage[T]],
    document_of: Callable[[T], Mapping[str, Any]],
) -> Document:
    page = await asked.turns.run(work)
    items = await asked.encoded(page.messages, document_of)
    is_last = page.is_last and len(items) == len(page.messages)
    answer = {
        **asked.head(),
        **head,
        "cursor": None if is_last or not items else name_cursor(page.messages[len(items) - 1].subject),
    }
    return with_items(answer, key, items)


async def get(asked: Asked, request: ScheduleRequest) -> Document:
    """Return all that is known of a schedule."""
    name, subject = request.stream, request.subject
    view = (await asked.known(name)).view
    stream, now = asked.stream(name), asked.now()
    listed, rejected, misnamed = view.schedule(subject, now), view.rejection(subject), view.misnaming(subject)
    if listed is None and rejected is None and misnamed is None:
        raise ServiceError(NOT_FOUND, f"stream {name} has no schedule on {shown(subject)}: schedules.list lists them")
    is_by_sidecar, flight = listed is None or listed.fired_by is FiredBy.SIDECAR, view.flight(subject)
    owner = asked.owner(name) if is_by_sidecar else None
    server = capabilities_of(asked.connection.server.version)
    findings = findings_on(listed, rejected, misnamed, stream.state.rules, server, now)
    answer: ScheduleAnswer = {
        **asked.head(now),
        "owner": owner,
        "owner_answered": owner == asked.instance or not is_by_sidecar,
        "schedule": None if listed is None else schedule_document(name, stream.mode, listed),
        "flight": None
        if flight is None
        else {"stage": flight.stage.text, "attempts": flight.failures, "may_be_stored": flight.may_be_stored},
        "rejected": None if rejected is None else rejected_document(name, stream.mode, rejected),
        "misnamed": None if misnamed is None else misnamed_document(name, misnamed),
        "findings": [*map(finding_document, findings)],
    }
    return answer
