"""The contract between the engine's shell and a stream: on a real server, or in memory.

Two implementations exist, `jetstream.contact.StreamContact` and `testing.memory_contact.MemoryContact`; one suite of
tests runs over both (`tests/contract/`).

What every implementation promises:

- It passes inputs to a `Notify` function, from the event loop's thread, in the order in which it received them.
- `publish`, `read`, `read_duplicate`, `await_proposals`, `look_for`, `check_finished`, `purge` and `remove` return at
  once. Each fire, read, wait, look, check, purge and removal is answered by exactly one input, also when the contact
  ends: then with `Unknown`, `ContentUnread`, `DuplicateUnread`, `ProposalsUnconfirmed`, `FireNotLookedFor`,
  `FinishUnchecked`, or a `PurgeConcluded` or `ExpiryConcluded` with a failure. Fires that were stored anew may be
  answered together, by one `FiresStored`, unless their targets are in other streams; what was purged, by one
  `SchedulesPurged`.
- Fires are sent in the order in which they were given, but small ones may pass large ones. A fire answered `Stored`
  is in the stream; one answered `Refused` is not and never will be; one answered `Unknown` may be or not.
- Publishing a fire again within the stream's duplicate window is answered `Stored` with `duplicate`, and stores
  nothing.
- A fire whose target is in another stream (`Fire.is_elsewhere`) is sent in the order of these fires alone. `Stored`
  names that stream. Without such a stream it is `Refused` as `NO_STREAM`; so is what is looked for there.
- What is looked for and was sent through this port before is found if it was stored before it is looked for. What was
  not sent here is found if it was stored a second before, and not removed.
- With the guard, a fire whose schedule is not the last message on its subject is `Refused` with 10071.
- `DuplicateRead` says that there is no message only if the server that answered had reached the sequence, and leads.
- `ContentRead` says that there is no message on the schedule's subject, or an older one, only if the server that
  answered had reached the schedule's sequence when it was asked. In a cluster the leader may be behind the node that
  was followed: then the answer is `ContentUnread`, so that no fire is sent before the leader has its schedule.
- `FinishChecked` says that a fire is finished because it is not stored only if the server that answered had reached
  the sequence of the fire. What was finished once stays so.
- A fire that the server has in process under the same identity is `Unknown`, marked as `in_process`: it may be stored
  yet. If it is so again, with the same leader, after the answer `ProposalsApplied` to a wait that began after the first
  such answer, no fire with this identity is stored, nor will one be that the server had received before.
- `remove` removes a schedule or a generated message whose own TTL has run out, and nothing else, whatever sequence it
  is given.
- What `follow` delivers has no body, and may have a `Nats-Msg-Size` header in its place; what is read has both as
  stored.
- `follow` delivers every message stored after a sequence, once and in order, and `CaughtUp` when it has delivered all
  that was stored when it began; then it continues. It ends only by cancellation or with an exception that says why.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from nats_scheduler.engine.actions import (
    AwaitProposals,
    LookForFire,
    PurgeSchedule,
    ReadContent,
    ReadDuplicate,
    RemoveExpired,
)
from nats_scheduler.engine.finish import CheckFinished
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import Input

Notify = Callable[[Input], None]
"""Takes an input."""


class StreamPort(Protocol):
    """One stream, as long as contact with it lasts."""

    def publish(self, fires: Sequence[Fire]) -> None:
        """Begin to store these fires, in this order."""
        ...

    def read(self, request: ReadContent) -> None:
        """Begin to read the content of a fire."""
        ...

    def read_duplicate(self, request: ReadDuplicate) -> None:
        """Begin to read the message that has the identity of a fire."""
        ...

    def await_proposals(self, request: AwaitProposals) -> None:
        """Begin to wait until the leader has applied all that it has accepted."""
        ...

    def look_for(self, request: LookForFire) -> None:
        """Begin to look whether another stream has a fire."""
        ...

    def check_finished(self, request: CheckFinished) -> None:
        """Begin to find out whether a fire is unfinished."""
        ...

    def purge(self, request: PurgeSchedule) -> None:
        """Begin to purge a schedule's versions."""
        ...

    def remove(self, request: RemoveExpired) -> None:
        """Begin to remove a message whose TTL has run out."""
        ...

    async def follow(self, after: int) -> None:
        """Deliver every message with a sequence above `after`, until cancelled."""
        ...

    def end(self, reason: str) -> None:
        """End the contact and answer everything that is still open; calling it twice is harmless."""
        ...
