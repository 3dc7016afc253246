"""The endpoints about streams and instances: what is held, who owns it, who is ready, and what is wrong (the doctor).

The rules: who fires a stream is looked up when it is asked, also if no sidecar serves it. What is wrong is the doctor's
report, as far as this sidecar can examine it by itself.
Cost: for what is held, two visits of each schedule of the streams on the page, in slices: seconds for a million. What
is counted of many schedules is reused for some seconds (`service.turns`); what fires next is searched each time. What
the server itself fires is read for it, of all streams of the page in `READ_WAIT_SECONDS` at most. For who fires, the
server's list of streams, and up to one request to it for each stream; at most twice a second, however many ask. For a
list of instances, two requests to the server for each of them, one for each stream; for what is wrong, see
`doctor.sidecar_examination`: a request within five minutes after an examination costs nothing.
Limit: a page of the server's list, 256 streams, takes some milliseconds to read, as it does every 30 s anyway.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import TypeVar

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.views.view import EngineView
from nats_scheduler.jetstream.single_flight import loop_time
from nats_scheduler.observe.documents import counts_document, schedule_document
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoded_items import encode_item, with_items
from nats_scheduler.service.endpoint import Asked, Document, ask_owners, name_cursor, page_by_name, read_name_cursor
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError, metered
from nats_scheduler.service.schemas import (
    HealthAnswer,
    InstanceDocument,
    ListRequest,
    NoKeys,
    OwnerDocument,
    StreamDocument,
    StreamsAnswer,
    StreamsRequest,
)
from nats_scheduler.service.sidecar_port import Fleet, Instance
from nats_scheduler.service.turns import reusable
from nats_scheduler.service.watched_streams import READ_WAIT_SECONDS

T = TypeVar("T")


async def list_streams(asked: Asked, request: StreamsRequest) -> Document:
    """Return a page of streams, by name."""
    after = read_name_cursor(request.cursor)
    names = [name for name in asked.names(request.streams) if name > after]
    page = names[: request.limit]
    answers, unanswered = await ask_owners(asked, page, "streams.list", StreamsAnswer, {"limit": request.limit})
    read = {one["stream"]: one for answer in answers for one in answer["streams"]}
    unanswered += [one for answer in answers for one in answer["unanswered"]]
    left, items = asked.room, list[bytes]()
    last, until = "", asyncio.get_running_loop().time() + READ_WAIT_SECONDS
    for name in page:
        document = read.get(name) or await _described(asked, name, until)
        item = encode_item(document, asked.room) if document is not None else b""
        left -= len(item) + 2
        if left < 0 and items:
            break
        last = name
        items += [item] if item else []
    answer = {
        **asked.head(),
        "unanswered": sorted(set(unanswered)),
        "cursor": name_cursor(last) if names and last < names[-1] else None,
    }
    return with_items(answer, "streams", items)


async def _described(asked: Asked, name: str, until: float) -> StreamDocument | None:
    """Return a stream; None if it is not served any more.

    What is not held has to be read by the instant `until` of the loop's clock, for all streams of the page.
    """
    stream, left = asked.streams.get(name), asked.left.get(name)
    if stream is None:
        return None if left is None else _unknown(asked, name, left.mode)
    counts, following, unread = None, None, None
    view: EngineView = stream.view
    if is_ready := stream.is_ready:
        try:
            view = (await asked.known(name, max(until - asyncio.get_running_loop().time(), 0.0))).view
        except SchedulerError as error:
            unread = str(error)
    now = asked.now()
    if is_ready and unread is None:
        counting = asked.counts.of(name)
        counts = await counting.get(lambda: reusable(metered(asked.turns.ask(view.counts(now)))), since=loop_time())
        page = await asked.turns.ask(view.page(now, limit=1))
        following = next((one for one in page.schedules if one.next_fire is not None), None)
    return {
        **_owner(asked, name, stream.mode),
        "ready": is_ready,
        "unread": unread,
        "schedules": None if counts is None else counts_document(counts),
        "failing": stream.failing_count,
        "rejected": view.rejected_count,
        "misnamed": view.misnamed_count,
        "next": None if following is None else schedule_document(name, stream.mode, following),
    }


def _owner(asked: Asked, name: str, mode: str) -> OwnerDocument:
    """Return who owns a stream, since when and why, and who stands by, as this instance knows it."""
    record = asked.ownership(name)
    is_owned = bool(record.owner)
    return {
        "stream": name,
        "mode": mode,
        "owner": record.owner or None,
        "owner_since": format_rfc3339(record.since) if record.since else None,
        "takeover_reason": record.reason.value if is_owned else None,
        "standbys": asked.standbys(name),
    }


def _unknown(asked: Asked, name: str, mode: str) -> StreamDocument:
    """Return a stream that others read, and of which none of them answered."""
    return {
        **_owner(asked, name, mode),
        "ready": False,
        "unread": None,
        "schedules": None,
        "failing": 0,
        "rejected": 0,
        "misnamed": 0,
        "next": None,
    }


async def list_modes(asked: Asked, request: ListRequest) -> Document:
    """Return a page of the streams that carry schedules, by name."""
    await asked.turns.moment_without_fires()
    try:
        found = await asked.stream_modes()
    except SchedulerError as error:
        raise ServiceError(UNAVAILABLE, f"the streams cannot be read: {error}") from None
    return await page_by_name(asked, request, asked.head(), "streams", found, "stream")


async def list_instances(asked: Asked, request: ListRequest) -> Document:
    """Return a page of instances, by id."""
    try:
        fleet = await asked.fleet()
    except SchedulerError as error:
        raise ServiceError(UNAVAILABLE, f"the registry's bucket cannot be read: {error}") from None
    return await page_by_name(asked, request, asked.head(fleet.at), "instances", instance_documents(fleet), "id")


def instance_documents(fleet: Fleet) -> list[InstanceDocument]:
    """Return all instances, by id."""
    return [_instance(one, fleet.at) for one in sorted(fleet.instances, key=lambda one: one.name)]


def _instance(one: Instance, at: int) -> InstanceDocument:
    """Return an instance, as it is at an instant (ns) of the server's clock."""
    return {
        "id": one.name,
        "state": one.state(at),
        "since": None if one.since is None else format_rfc3339(one.since),
        "last_heartbeat": None if one.heartbeat_at is None else format_rfc3339(one.heartbeat_at),
        "age_nanoseconds": None if one.heartbeat_at is None else max(at - one.heartbeat_at, 0),
        "serves": None if one.serves is None else list(one.serves),
        "unable": [{"stream": key.partition(".")[2], "reason": why} for key, why in sorted(one.unable.items())],
        "owns": list(one.owns),
        "stands_by": list(one.stands_by),
        "standbys": one.standbys,
    }


MAX_REASONS = 100
"""Reasons that are listed: one for each stream that is not ready, and there may be thousands of streams."""


async def get(asked: Asked, _request: NoKeys) -> Document:
    """Return whether this instance is ready, and why not."""
    reasons = asked.not_ready()
    answer: HealthAnswer = {
        **asked.head(),
        "ready": not reasons,
        "reasons": reasons[:MAX_REASONS],
        "notes": asked.notes()[:MAX_REASONS],
        "allow_control": asked.allows_control,
        "control_rules": [rule.name for rule in asked.control_rules],
    }
    return answer


async def list_findings(asked: Asked, _request: NoKeys) -> Document:
    """Return what is wrong, worst first, as many findings as fit into an answer."""
    examination = await asked.examination(asked.turns)
    report, room = examination.report, asked.room
    head = {
        **asked.head(examination.at),
        "worst": report["worst"],
        "unlisted": _fitting(report["unlisted"], room // 4),
        "counts": report["counts"],
        "unexamined": _fitting(examination.unexamined, room // 4),
    }
    left = room - len(json.dumps(head))
    items = await asked.encoded(report["findings"], dict, left)
    return with_items({**head, "omitted": len(report["findings"]) - len(items)}, "findings", items)


def _fitting(rows: Sequence[T], room: int) -> Sequence[T]:
    """Return the first rows that fit into `room` bytes as JSON: there may be some for each of a thousand streams."""
    for number, row in enumerate(rows):
        room -= len(json.dumps(row)) + 2
        if room < 0:
            return rows[:number]
    return rows
