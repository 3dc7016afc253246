"""How a sidecar ends that was asked to: hand over, finish what is in flight, write how far the fires are settled.

The rules:

- It fires until what it holds is handed over, or until that gets no answer: if it stopped first and waited for the
  bucket then, nothing would fire meanwhile.
- The last checkpoint is not waited for long: it saves the next holder work, but that one reads the stream anyway.

Cost: some requests to the bucket. Limit: `Instances.leave` decides how long a hand-over is tried.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from nats_scheduler.runtime.in_turn import in_turn
from nats_scheduler.runtime.instances import Instances
from nats_scheduler.runtime.port import Bucket
from nats_scheduler.runtime.stream_service import StreamService

LAST_CHECKPOINTS_LIMIT_SECONDS = 1.5
"""Longest wait at the end for the checkpoints to be written: nothing fires meanwhile, and *Live* leaves 3 s."""


async def leave(
    services: Sequence[StreamService], instances: Instances | None, registry: Bucket, within_seconds: float
) -> bool:
    """Give up everything; False if what was in flight could not be finished within the time.

    Without `instances` nothing is divided, and there is no instance to hand over to.
    """
    if instances is not None:
        await instances.leave()
    finished = await asyncio.gather(*(service.drain(within_seconds) for service in services))
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_CHECKPOINTS_LIMIT_SECONDS):
            await in_turn([partial(service.write_checkpoint, registry) for service in services])
    return all(finished)
