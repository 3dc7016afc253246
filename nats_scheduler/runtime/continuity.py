"""Notice that a stream went back to an earlier state while it was served: what was read of it is not there any more.

A stream in memory whose only node restarts begins anew under the same name, and so does one that is restored from an
older copy; a replicated one may lose what a killed server had not written.
What the engine knows of it is wrong then: it holds what is gone, and takes what is new for what it read long ago.

The rule: a lower last sequence proves it, and so does another message under the sequence of the last one read, or of
the last one before contact was lost, since what is new was read of the state that it is in now.
In a cluster the leader may be behind what was delivered. There the last sequence has to stay lower for
`LAG_LIMIT_SECONDS`.

Cost: two or three requests each time that a contact has caught up again. Limit: what was lost and written again, to the
same instant or below the last message read, is not seen; nor where that message was removed since.
"""

import asyncio

from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import integer
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.port import StreamContents, StreamInformation

LAG_LIMIT_SECONDS = 1.0
"""A leader that is behind for longer than this does not lag: its stream went back. *Live* leaves 3 s."""

LAG_CHECK_INTERVAL_SECONDS = 0.1
"""How often a leader that may lag is looked at."""


class StreamWentBackError(JetStreamError):
    """The stream is in an earlier state than the one that was read; it has to be read anew."""


def is_replicated(state: StreamState) -> bool:
    """Tell whether who leads a stream may be behind another one who keeps a copy."""
    return integer(state.config.get("num_replicas"), 1) > 1


async def reaches(api: StreamInformation, stream: str, sequence: int) -> StreamState | None:
    """Return the state of a stream, having waited while its leader may lag behind `sequence`; None where it is gone."""
    looks = int(LAG_LIMIT_SECONDS / LAG_CHECK_INTERVAL_SECONDS)
    while (info := await api.stream(stream)) is not None:
        state = StreamState.from_info(info)
        if state.last_sequence >= sequence or not is_replicated(state) or looks == 0:
            return state
        looks -= 1
        await asyncio.sleep(LAG_CHECK_INTERVAL_SECONDS)
    return None


async def step_back(
    api: StreamContents, stream: str, engine: StreamEngine, witness: StoredMessage | None = None
) -> str:
    """Return how it shows that a stream is in an earlier state than the one that an engine read; "" where it does not.

    `witness` is the last message that was read before contact was lost.
    Raises `JetStreamError` where nobody can tell. Whether the stream exists at all is for others to judge.
    """
    read, last = engine.last_read, engine.last_message
    state = await reaches(api, stream, read)
    if state is None:
        return ""
    if state.last_sequence < read:
        return f"its last sequence is {state.last_sequence}, and {read} was read before"
    for known in {last, witness} - {None}:
        assert known is not None, "it was left out"
        there = await api.message(stream, seq=known.sequence)
        if there is not None and there.stored_at != known.stored_at:
            return f"another message than the one that was read has sequence {known.sequence}"
    return ""
