"""Contact with one stream on one connection: the real implementation of `engine.port.StreamPort`.

It only puts the parts together: who follows depends on what the stream keeps, the rest is the same for all.
"""

import asyncio
from collections.abc import Callable, Sequence

from nats_scheduler.engine.actions import PurgeSchedule, ReadContent
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.port import Tell
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.content import content_reader
from nats_scheduler.jetstream.follow import ConsumerFollower
from nats_scheduler.jetstream.publish import Publisher
from nats_scheduler.jetstream.purge import purger
from nats_scheduler.jetstream.scan import ScanFollower


def follower_of(
    connection: Connection, api: JetStreamApi, config: Config, tell: Tell, holds: Callable[[str], bool]
) -> ConsumerFollower | ScanFollower:
    """Return what follows a stream: a consumer where that is harmless, and look-ups where it is not."""
    if config.get("retention", "limits") == "limits":
        return ConsumerFollower(connection, api, config["name"], tell)
    return ScanFollower(connection, api, config, tell, holds)


class StreamContact:
    """One stream on one connection. Use it inside the task group that is to own its reads and purges."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        tell: Tell,
        tasks: asyncio.TaskGroup,
        *,
        holds: Callable[[str], bool],
        window: int,
        ack_timeout: float,
    ) -> None:
        stream = config["name"]
        self._publisher = Publisher(connection, stream, tell, window=window, ack_timeout=ack_timeout)
        self._reader = content_reader(api, stream, tell, tasks)
        self._purger = purger(api, stream, tell, tasks)
        self._follower = follower_of(connection, api, config, tell, holds)

    def publish(self, fires: Sequence[Fire]) -> None:
        """Begin to store these fires, in this order."""
        self._publisher.publish(fires)

    def read(self, request: ReadContent) -> None:
        """Begin to read what a fire will say."""
        self._reader.begin(request)

    def purge(self, request: PurgeSchedule) -> None:
        """Begin to remove a schedule's versions."""
        self._purger.begin(request)

    async def follow(self, after: int) -> None:
        """Tell every message with a sequence above `after`, until cancelled."""
        await self._follower.follow(after)

    def end(self, reason: str) -> None:
        """End the contact: what is in flight is unknown from here on."""
        self._publisher.end(reason)
        self._reader.end(reason)
        self._purger.end(reason)
