"""Notice that a stream went back to an earlier state while it was served: what was read of it is not stored any more.

A stream in memory whose only node restarts begins again under the same name, and so does one that is restored from an
older copy; a replicated one may lose what a killed server had not written.
Then the state of the engine is wrong: it holds schedules that are gone, and takes new messages for ones that it read.

The rule: a lower last sequence proves it. So does another message under the sequence of the last one read, or of the
last one before contact was lost, since new messages were read from the state that the stream is in now.
In a cluster the leader may be behind what was delivered. There the last sequence has to stay lower for
`LAG_LIMIT_SECONDS`.

Cost: two or three requests each time that a contact has caught up again.
Limit: if what was lost was written again, in the same nanosecond or below the last message read, this is not seen; nor
if that message was removed since.
"""

import asyncio

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.foreign_json import integer
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.server_port import StreamContents, StreamInformation

LAG_LIMIT_SECONDS = 1.0
"""If a leader is behind for longer than this, it does not lag: its stream went back. *Live* leaves 3 s."""

LAG_CHECK_INTERVAL_SECONDS = 0.1
"""The interval at which a leader that may lag is checked."""


class StreamWentBackError(SchedulerError):
    """The stream is in an earlier state than the one that was read; it has to be read from the beginning."""


def is_replicated(state: StreamState) -> bool:
    """Return whether the leader of a stream may be behind another node with a copy."""
    return integer(state.config.get("num_replicas"), 1) > 1


async def reaches(api: StreamInformation, stream: str, sequence: int) -> StreamState | None:
    """Return the state of a stream, after a wait while its leader may lag behind `sequence`; None if it is gone."""
    checks = int(LAG_LIMIT_SECONDS / LAG_CHECK_INTERVAL_SECONDS)
    while (info := await api.stream(stream)) is not None:
        state = StreamState.from_info(info)
        if state.last_sequence >= sequence or not is_replicated(state) or checks == 0:
            return state
        checks -= 1
        await asyncio.sleep(LAG_CHECK_INTERVAL_SECONDS)
    return None


async def step_back(
    api: StreamContents, stream: str, engine: StreamEngine, witness: StoredMessage | None = None
) -> str:
    """Return how it shows that a stream is in an earlier state than the one that an engine read; "" if it is not.

    `witness` is the last message that was read before contact was lost.
    Raises `SchedulerError` if it cannot be found out. A stream that does not exist counts as unchanged here.
    """
    read, last = engine.last_read, engine.last_message
    state = await reaches(api, stream, read)
    if state is None:
        return ""
    if state.last_sequence < read:
        return f"its last sequence is {state.last_sequence}, and {read} was read before"
    for known in {last, witness} - {None}:
        assert known is not None, "None was left out"
        there = await api.message(stream, seq=known.sequence)
        if there is not None and there.stored_at != known.stored_at:
            return f"another message than the one that was read has sequence {known.sequence}"
    return ""


async def watch_for_a_step_back(api: StreamContents, stream: str, driver: StreamDriver) -> str:
    """Return how it shows that a stream went back; checked each time that it may be in another state."""
    caught_up = driver.caught_up
    if not driver.engine.last_read:
        await caught_up.wait()
        if driver.witness is None:  # else the engine continued from its rows
            caught_up.clear()
    while True:
        await caught_up.wait()
        caught_up.clear()
        try:
            witness = driver.witness
            if reason := await step_back(api, stream, driver.engine, witness):
                return reason
            if driver.witness is witness:
                driver.witness = None
        except SchedulerError:
            await asyncio.sleep(LAG_CHECK_INTERVAL_SECONDS)
            caught_up.set()
