"""Contact with one stream on one connection: the real implementation of `engine.stream_port.StreamPort`.

It only puts the parts together: the follower depends on what the stream keeps, the rest is the same for all.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired
from nats_scheduler.engine.fire import (
    AwaitProposals,
    CheckFinished,
    CompareBodies,
    FetchContent,
    FetchDuplicate,
    Fire,
    LookForFire,
    Question,
)
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import Config, JetStreamApi, reads_all
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.consumer_follower import ConsumerFollower
from nats_scheduler.jetstream.content_runs import RangeReader
from nats_scheduler.jetstream.expired_messages import remover
from nats_scheduler.jetstream.finish_checks import finish_checker
from nats_scheduler.jetstream.lookups import walk_through
from nats_scheduler.jetstream.publish import Publisher
from nats_scheduler.jetstream.purge import Purger
from nats_scheduler.jetstream.reach import LeaderReach, may_lag, proposal_waiter
from nats_scheduler.jetstream.scan_follower import ScanFollower
from nats_scheduler.jetstream.single_reads import body_comparer, content_reader, duplicate_reader
from nats_scheduler.jetstream.target_streams import TargetStreamContact


def follower_of(
    connection: Connection,
    api: JetStreamApi,
    config: Config,
    notify: Notify,
    holds: Callable[[str], bool],
    in_flight: Callable[[], int] = lambda: 0,
    awaits: Callable[[bytes], bool] = lambda _reply: False,
    last_read: Callable[[], int] | None = None,
    is_standby: Callable[[], bool] = lambda: False,
) -> ConsumerFollower | ScanFollower:
    """Return the follower of a stream: by a consumer if that is harmless, and by look-ups if it is not.

    By look-ups too if the account allows no more consumers. `last_read` returns the sequence of the last message that
    the engine has received, None: it receives all at once. An earlier scan may have looked at less than the engine has
    read, so it begins at the first message.
    """
    scan = ScanFollower(connection, api, config, notify, holds, awaits, last_read or (lambda: 0))
    if not reads_all(config):
        return scan
    otherwise = partial(scan.follow, 0)
    return ConsumerFollower(
        connection,
        api,
        config,
        notify,
        otherwise,
        in_flight=in_flight,
        is_standby=is_standby,
        last_received=last_read,
    )


class StreamContact:
    """One stream on one connection. Use it inside the task group that owns its reads and purges."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        notify: Notify,
        tasks: asyncio.TaskGroup,
        *,
        holds: Callable[[str], bool],
        window: int,
        ack_timeout: float,
        history_after: int | None = None,
        last_read: Callable[[], int] | None = None,
        is_standby: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make contact; with `history_after`, messages above it that lie under later ones are read too, None: none."""
        stream = config["name"]
        self._follower = follower_of(
            connection,
            api,
            config,
            notify,
            holds,
            in_flight=lambda: self._publisher.in_flight,
            awaits=lambda reply: self._publisher.awaits(reply),
            last_read=last_read,
            is_standby=is_standby,
        )
        reach = LeaderReach(api, stream, may_lag=may_lag(connection, config))
        self._purger = Purger(connection, api, config, notify, tasks, reach)
        self._publisher = Publisher(
            connection,
            stream,
            notify,
            window=window,
            ack_timeout=ack_timeout,
            acknowledged=self._follower.acknowledged,
            purge=self._purger.begin_at_once,
        )
        self._elsewhere = TargetStreamContact(connection, api, notify, tasks, window=window, ack_timeout=ack_timeout)
        self._reader = content_reader(api, stream, notify, tasks, reach)
        self._ranges = (
            RangeReader(connection, api, config, notify, tasks, self._reader, reach) if reads_all(config) else None
        )
        self._duplicates = duplicate_reader(api, stream, notify, tasks)
        self._proposals = proposal_waiter(api, stream, notify, tasks)
        self._finish_checks = finish_checker(api, stream, notify, tasks, reach)
        self._comparisons = body_comparer(api, stream, notify, tasks)
        self._askers: dict[type[Question], Callable[[Any], None]] = {
            FetchContent: (self._ranges or self._reader).begin,
            FetchDuplicate: self._duplicates.begin,
            AwaitProposals: self._proposals.begin,
            LookForFire: self._elsewhere.look_for,
            CheckFinished: self._finish_checks.begin,
            CompareBodies: self._comparisons.begin,
        }
        self._remover = remover(api, stream, notify, tasks, reach)
        self._walk = None if history_after is None else (lambda: walk_through(api, stream, history_after, notify))

    def publish(self, fires: Sequence[Fire]) -> None:
        """Begin to store these fires, in this order."""
        elsewhere = [fire for fire in fires if fire.is_to_other_stream]
        if elsewhere:
            self._elsewhere.publish(elsewhere)
            fires = [fire for fire in fires if not fire.is_to_other_stream]
        if fires:
            self._publisher.publish(fires)

    def ask(self, question: Question) -> None:
        """Begin to find out something about one fire, or to read its content."""
        self._askers[type(question)](question)

    def purge(self, request: PurgeSchedule) -> None:
        """Begin to purge a schedule's versions."""
        self._purger.begin(request)

    def remove(self, request: RemoveExpired) -> None:
        """Begin to delete a message whose TTL has run out."""
        self._remover.begin(request)

    async def follow(self, after: int) -> None:
        """Deliver every message with a sequence above `after`, until cancelled."""
        walking = None if self._walk is None else asyncio.create_task(self._walk())
        try:
            await self._follower.follow(after)
        finally:
            if walking is not None:
                walking.cancel()
                await asyncio.wait((walking,))

    def end(self, reason: str) -> None:
        """End the contact: what is in flight is concluded as unknown."""
        if self._ranges is not None:
            self._ranges.end()
        reads = self._reader, self._duplicates, self._proposals, self._finish_checks, self._comparisons
        for part in (self._publisher, self._elsewhere, self._purger, self._remover, *reads):
            part.end(reason)
