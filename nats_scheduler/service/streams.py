"""The endpoints about streams: what is held of those that are served, and who fires those that carry schedules.

The rule: who fires a stream is looked up when it is asked, also if no sidecar serves it.
Cost: for what is held, two visits of each schedule of the streams on the page, in slices: seconds for a million. What
is counted of many schedules is reused for some seconds (`service.turns`); what fires next is searched each time. What
the server itself fires is read for it, of all streams of the page in `READ_WAIT_SECONDS` at most. For who fires, the
server's list of streams, and up to one request to it for each stream; at most twice a second, however many ask.
Limit: a page of that list, 256 streams, takes some milliseconds to read, as it does every 30 s anyway.
"""

import asyncio

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.observe.documents import counts_document, schedule_document
from nats_scheduler.service.endpoint import (
    Asked,
    Document,
    View,
    encode_item,
    name_cursor,
    read_name_cursor,
    with_items,
)
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError
from nats_scheduler.service.schedules import Failures, failing_elsewhere, known_of
from nats_scheduler.service.schemas import ListRequest, StreamDocument
from nats_scheduler.service.server_schedules import READ_WAIT_SECONDS


async def list_streams(asked: Asked, request: ListRequest) -> Document:
    """Return a page of streams, by name."""
    after = read_name_cursor(request.cursor)
    names = [name for name in sorted(asked.streams) if name > after]
    failures = await failing_elsewhere(asked, names[: request.limit])
    left, items = asked.room, list[bytes]()
    last, until = "", asyncio.get_running_loop().time() + READ_WAIT_SECONDS
    for name in names[: request.limit]:
        document = await _described(asked, name, failures, until)
        item = encode_item(document, asked.room) if document is not None else b""
        left -= len(item) + 2
        if left < 0 and items:
            break
        last = name
        items += [item] if item else []
    answer = {
        **asked.head(),
        "unanswered": failures.unanswered,
        "cursor": name_cursor(last) if names and last < names[-1] else None,
    }
    return with_items(answer, "streams", items)


async def _described(asked: Asked, name: str, failures: Failures, until: float) -> StreamDocument | None:
    """Return a stream; None if it is not served any more.

    What is not held has to be read by the instant `until` of the loop's clock, for all streams of the page.
    """
    stream = asked.streams.get(name)
    if stream is None:
        return None
    counts, following, unread = None, None, None
    view: View = stream.view
    if is_ready := stream.is_ready:
        try:
            view = (await asked.known(name, max(until - asyncio.get_running_loop().time(), 0.0))).view
        except (ServiceError, JetStreamError) as error:
            unread = str(error)
    now = asked.now()
    if is_ready and unread is None:
        failing = known_of(failures, name)
        counts = await asked.counts.get(name, lambda: asked.turns.do(view.counts(now, failing=failing)))
        page = await asked.turns.do(view.page(now, limit=1, failing=failing))
        following = next((one for one in page.schedules if one.next_fire is not None), None)
    return {
        "stream": name,
        "mode": stream.mode,
        "ready": is_ready,
        "unread": unread,
        "schedules": None if counts is None else counts_document(counts),
        "failing": stream.failing_count + failures.totals.get(name, 0),
        "rejected": view.rejected_count,
        "misnamed": view.misnamed_count,
        "next": None if following is None else schedule_document(name, stream.mode, following),
        "holders": sorted(asked.holders(name)),
    }


async def list_modes(asked: Asked, request: ListRequest) -> Document:
    """Return a page of the streams that carry schedules, by name."""
    after = read_name_cursor(request.cursor)
    await asked.turns.moment_without_fires()
    try:
        found = [one for one in await asked.stream_modes() if one["stream"] > after]
    except JetStreamError as error:
        raise ServiceError(UNAVAILABLE, f"the streams cannot be read: {error}") from None
    items = await asked.encoded(found[: request.limit], dict)
    answer = {
        **asked.head(),
        "cursor": name_cursor(found[len(items) - 1]["stream"]) if len(items) < len(found) else None,
    }
    return with_items(answer, "streams", items)
