"""The contract between the engine's shell and a stream: on a real server, or in memory.

Two implementations exist, `jetstream.contact.StreamContact` and `testing.memory_contact.MemoryContact`; one suite
of tests runs over both (`tests/contract/`).

What every implementation promises:

- It passes inputs to a `Notify` function, from the event loop's thread, in the order in which it received them.
- `publish`, `ask`, `purge` and `remove` return at once. Each fire, question, purge and removal is answered by exactly
  one input, also when the contact ends: then with `Unknown`, `Unanswered`, or a `PurgeConcluded` or
  `ExpiryConcluded` with a failure. Fires that were stored anew may be answered together, by one `FiresStored`,
  unless their targets are in other streams; what was purged, by one `SchedulesPurged`.
- What a `FiresStored` names is purged at once up to `Fire.purge_through`, if that is not 0, and answered as other
  purges are, after it. What a `PublishConcluded` names is not.
- Fires are sent in the order in which they were given, but small ones may pass large ones. A fire answered `Stored`
  is in the stream; one answered `Refused` is not and never will be; one answered `Unknown` may be or not.
- Publishing a fire again within the stream's duplicate window is answered `Stored` with `duplicate`, and stores
  nothing.
- A fire whose target is in another stream (`Fire.is_to_other_stream`) is sent in the order of these fires alone.
  `Stored` names that stream. Without such a stream it is `Refused` as `NO_STREAM`; so is what is looked for there.
- What is looked for and was sent through this port before is found if it was stored before it is looked for. What
  was not sent here is found if it was stored a second before, and not removed.
- With the guard, a fire whose schedule is not the last message on its subject is `Refused` with 10071.
- `DuplicateFetched` says that there is no message only if the server that answered had reached the sequence, and
  leads.
- `ContentFetched` says that there is no message on the schedule's subject, or an older one, only if the server that
  answered had reached the schedule's sequence when it was asked. In a cluster the leader may be behind the node that
  was followed: then the answer is `Unanswered`, so that no fire is sent before the leader has its schedule.
- `FinishChecked` says that a fire is finished because it is not stored only if the server that answered had reached
  the sequence of the fire. What was finished once stays so.
- `BodiesCompared` says that bodies differ only if both messages were read.
- A fire that the server has in process under the same identity is `Unknown`, marked as `in_process`: it may be
  stored yet. If it is so again, with the same leader, after the answer `ProposalsApplied` to a wait that began
  after the first such answer, no fire with this identity is stored, nor will one be that the server had received
  before.
- `remove` removes a schedule or a generated message whose own TTL has run out, and nothing else, whatever sequence
  it is given.
- What `follow` delivers may have no body, and a `Nats-Msg-Size` header in its place; what is read has both as stored.
- `follow` delivers every message stored after a sequence, once and in order, and `CaughtUp` when it has delivered
  all that was stored when it began; then it continues. By look-ups it delivers some of it again or out of order, and
  what was stored before contact was lost may come after `CaughtUp`. It ends only by cancellation or with an exception
  that says why.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired
from nats_scheduler.engine.fire import Fire, Question
from nats_scheduler.engine.inputs import Input

Notify = Callable[[Input], None]
"""Takes an input."""


class StreamPort(Protocol):
    """One stream, as long as contact with it lasts."""

    def publish(self, fires: Sequence[Fire]) -> None:
        """Begin to store these fires, in this order."""
        ...

    def ask(self, question: Question) -> None:
        """Begin to find out something about one fire, or to read its content."""
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
