"""The schedules of a stream at this moment, for who asks without a sidecar; nothing is changed.

Rule: the messages go to the same engine as in a sidecar (`engine.stored_schedules`).
Where the server itself serves the headers of ADR-51 those are watched apart, since a message may carry both spellings
and is then fired by both. There the server's own generated messages say when it fires next, and end nothing.

Cost: one pass over the stream's headers; where no consumer may be attached, one request a message or a subject.
Limit: the server cannot be asked for its next fires.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from sys import maxsize

from nats_scheduler.engine.inputs import NOTHING_SETTLED, Checkpoint
from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import ALL, EngineView, FiredBy, Query, soonest_first
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.calendar_bucket import CalendarBucket, read_calendars
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.foreign_json import server_time
from nats_scheduler.message.restrictions import UNRESTRICTED, Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.checkpoints import read_checkpoint
from nats_scheduler.runtime.engine_basis import removes_expired
from nats_scheduler.runtime.modes import FIRED_BY, Mode, dialects_of
from nats_scheduler.service.client import Listed


async def read_listing(
    access: Access,
    state: StreamState,
    mode: Mode,
    now: Callable[[], int],
    *,
    query: Query = ALL,
    notify_read: Callable[[Sequence[StoredMessage]], None] = lambda _messages: None,
) -> tuple[Listed, int]:
    """Return the schedules of a stream as a sidecar of these settings has them, and the time (ns) of the server.

    `now` returns the time of this machine in ns since the Unix epoch, which may be wrong. The rest is as in
    `read_schedules`.
    """
    at = server_time(await access.api.stream(state.name)) or now()
    ahead = at - now()
    checkpoint = await read_checkpoint(access.registry, access.api, state.name, mode, at)
    listed = await read_schedules(
        access.connection,
        access.api,
        state,
        mode,
        checkpoint or NOTHING_SETTLED,
        lambda: now() + ahead,
        query=query,
        restrictions=access.settings.restrictions_on(state.name),
        expires=removes_expired(state, access.server),
        calendars=access.calendars,
        notify_read=notify_read,
    )
    return listed, at


async def read_schedules(
    connection: Connection,
    api: JetStreamApi,
    state: StreamState,
    mode: Mode,
    checkpoint: Checkpoint,
    now: Callable[[], int],
    *,
    query: Query = ALL,
    restrictions: Restrictions = UNRESTRICTED,
    expires: bool = False,
    calendars: CalendarBucket | None = None,
    notify_read: Callable[[Sequence[StoredMessage]], None] = lambda _messages: None,
) -> Listed:
    """Return the schedules of a stream in its `mode` that a query wants.

    `now` returns the time by the server's clock, in ns since the Unix epoch. `checkpoint` says how far the fires of
    sidecars are settled; `restrictions` are those of the sidecar, the server knows none. If TTLs end schedules
    (`expires`), it is the sidecar that removes them. `calendars` is read if a schedule names one.
    `notify_read` is called with each batch of messages that was read.
    Raises `SchedulerError` if the stream cannot be read.
    """
    allowed = replace(state.rules, restrictions=restrictions)
    ours = StoredSchedules(allowed, dialects_of(mode), FiredBy.SIDECAR, checkpoint, removes_expired=expires)
    read = [ours]
    if mode in FIRED_BY:
        read.append(StoredSchedules(state.rules, (ADR51,), FIRED_BY[mode]))

    def take(messages: Sequence[StoredMessage]) -> None:
        for one in read:
            one.take(messages, now())
        notify_read(messages)

    await StretchReader(connection, api, state.config).read_all(take)
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
