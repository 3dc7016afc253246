"""Look for messages that expire under the last messages of their subjects, where no consumer may be attached.

`jetstream.scan` looks up the last message of every subject and no more.
A generated message that lies under a later one has a TTL all the same, so on a server that does not act on TTLs the
stream is walked through once, beside everything else.

The rule: nothing waits for it; what fires was found before.
Cost: one request a message, bodies included, one after the other (some 5,000 a second).
Limit: what another sidecar stores, and is buried at once, is found at the next connection.
"""

import asyncio

from nats_scheduler.engine.inputs import HistoryRead
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.message.expiry import lifetime_of
from nats_scheduler.message.stored import StoredMessage

MAX_HISTORY_BATCH = 1_000
"""Messages looked at before what was found is told."""

HISTORY_RETRY_INTERVAL_SECONDS = 1.0
"""Pause after a request that failed."""


async def walk_through(api: JetStreamApi, stream: str, after: int, notify: Notify) -> None:
    """Tell the messages above sequence `after` that have a TTL; ends when all that is stored was looked at."""
    while True:
        messages, through = await _read_batch(api, stream, after)
        notify(HistoryRead(messages, through))
        if through == after:
            return
        after = through


async def _read_batch(api: JetStreamApi, stream: str, after: int) -> tuple[list[StoredMessage], int]:
    """Look at some messages above `after`; returns those with a TTL, and how far it came."""
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
            await asyncio.sleep(
                HISTORY_RETRY_INTERVAL_SECONDS
            )  # a lost connection ends the following, and this with it
