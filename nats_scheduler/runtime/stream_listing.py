"""The schedules of a stream at this moment, read as the sidecar reads them; nothing is changed.

Rule: the messages go to the same code as in a sidecar (`engine.stored_schedules`), and are asked for in the same way.
Where the server itself serves the headers of ADR-51 those are read apart, since a message may carry both spellings and
is then fired by both.
There the server's own generated messages say when it fires next, and end nothing.

Cost: one pass over the stream's headers; where no consumer may be attached, one request a subject.
Limit: the server cannot be asked for its next fires (`engine.stored_schedules`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from sys import maxsize

from nats_scheduler.engine.inputs import CaughtUp, Checkpoint, ContactLost, Input, MessagesRead
from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import ALL, EngineView, FiredBy, Query, soonest_first
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.calendar_bucket import CalendarBucket, read_calendars
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.contact import follower_of
from nats_scheduler.jetstream.errors import RequestUnansweredError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.restrictions import UNRESTRICTED, Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.modes import FIRED_BY, Mode, dialects_of
from nats_scheduler.service.client import Listed

MAX_LOST_CONTACTS = 3
"""Consumers that may die one after the other without a message before reading is given up."""


async def read_stream_listing(
    connection: Connection,
    api: JetStreamApi,
    state: StreamState,
    mode: Mode,
    checkpoint: Checkpoint,
    now: Callable[[], int],
    *,
    query: Query = ALL,
    restrictions: Restrictions = UNRESTRICTED,
    removes_expired: bool = False,
    notify_read: Callable[[Sequence[StoredMessage]], None] | None = None,
    calendars: CalendarBucket | None = None,
) -> Listed:
    """Read a stream that is served in `mode`; `now` returns the time in ns since the Unix epoch.

    Of its schedules those are returned that the `query` wants. `restrictions` are those of the sidecar; the server
    knows none.
    `checkpoint` says how far its fires are settled.
    With `removes_expired` it is the sidecar that ends what has a TTL, and not the server.
    `calendars` is read if a schedule names one.
    `notify_read` is called with each batch of messages that was read.

    Raises `JetStreamError` where the stream cannot be read.
    """
    rules = state.rules
    allowed = replace(rules, restrictions=restrictions)
    ours = StoredSchedules(allowed, dialects_of(mode), FiredBy.SIDECAR, checkpoint, removes_expired=removes_expired)
    read = [ours]
    if mode in FIRED_BY:
        read.append(StoredSchedules(rules, (ADR51,), FIRED_BY[mode]))

    def take(messages: Sequence[StoredMessage]) -> None:
        for one in read:
            one.take(messages, now())
        if notify_read is not None:
            notify_read(messages)

    await read_stored(connection, api, state.config, take)
    if calendars is not None and ours.names_calendars:
        ours.know(await read_calendars(calendars), now())
    replaced = read[-1].replaced if mode is Mode.NATIVE else ()
    return replace(_listing([one.view for one in read], now(), query), replaced=replaced)


def _listing(views: Sequence[EngineView], at: int, query: Query) -> Listed:
    schedules = [one for view in views for one in view.page(at, query, limit=None).answer().schedules]
    rejected = [one for view in views for one in done(view.rejected_page(query, maxsize, "")).messages]
    if len(views) > 1:
        schedules.sort(key=soonest_first)
        rejected.sort(key=lambda one: (one.subject, one.sequence))
    return Listed(schedules, rejected, done(views[0].misnamed_page(query, maxsize, "")).messages)


async def read_stored(
    connection: Connection,
    api: JetStreamApi,
    config: Config,
    take: Callable[[Sequence[StoredMessage]], None],
    after: int = 0,
) -> None:
    """Give what a stream holds above sequence `after` to `take`, in batches, as a sidecar would read it, and return.

    Raises `JetStreamError` where the stream cannot be read.
    """
    over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    lost = 0

    def receive(fact: Input) -> None:
        nonlocal lost
        if over.done():
            return
        if isinstance(fact, MessagesRead):
            lost = 0
            take(fact.messages)
        elif isinstance(fact, CaughtUp):
            over.set_result(None)
        elif isinstance(fact, ContactLost):
            lost += 1
            if lost == MAX_LOST_CONTACTS:
                over.set_result(fact.reason)

    follower = follower_of(connection, api, config, receive, lambda _subject: False)
    following = asyncio.create_task(follower.follow(after))
    try:
        await asyncio.wait((following, over), return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            following.result()  # raises: following ends by itself only with an error
        if reason := over.result():
            raise RequestUnansweredError(f"stream {config['name']} cannot be read: {reason}")
    finally:
        following.cancel()
        await asyncio.wait((following,))
