"""Find messages with a TTL before the last message of their subject, on streams without a consumer of the sidecar.

`jetstream.scan` looks up the last message of every subject and no more.
An earlier generated message may have a TTL too. So on a server that does not act on TTLs the whole stream is read once,
concurrently with everything else.

The rule: nothing waits for it; schedules are found without it.
Cost: one request a message, bodies included, one after the other (some 5,000 a second).
Limit: if another sidecar stores a message and a later one follows at once, the earlier is found at the next connect.
"""

import asyncio

from nats_scheduler.engine.inputs import HistoryRead
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.message.expiry import lifetime_of
from nats_scheduler.message.stored import StoredMessage

MAX_HISTORY_BATCH = 1_000
"""Messages that are read before what was found is delivered."""

HISTORY_RETRY_INTERVAL_SECONDS = 1.0
"""Pause after a request that failed."""


async def walk_through(api: JetStreamApi, stream: str, after: int, notify: Notify) -> None:
    """Deliver the messages above sequence `after` that have a TTL; ends when all that is stored was read."""
    while True:
        messages, through = await _read_batch(api, stream, after)
        notify(HistoryRead(messages, through))
        if through == after:
            return
        after = through


async def _read_batch(api: JetStreamApi, stream: str, after: int) -> tuple[list[StoredMessage], int]:
    """Read some messages above `after`; return those with a TTL, and the last sequence that was read."""
    found: list[StoredMessage] = []
    for _ in range(MAX_HISTORY_BATCH):
        message = await _next(api, stream, after)
        if message is None:
            break
        after = message.sequence
        if lifetime_of(message.block) is not None:
            found.append(message._replace(body=None))
    return found, after


async def _next(api: JetStreamApi, stream: str, after: int) -> StoredMessage | None:
    while True:
        try:
            return await api.message(stream, seq=after + 1, next_by_subj=">")
        except JetStreamError:
            await asyncio.sleep(HISTORY_RETRY_INTERVAL_SECONDS)  # a lost connection cancels this task
