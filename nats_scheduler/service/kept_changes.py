"""Who changed which schedule, when and why, newest first, read from the stream that keeps the advisories.

The rule: what is returned is what was published by whatever changed schedules. Any client that may publish there can
write such an advisory, so this is no proof.
Cost: as `service.kept_failures`: the server filters by stream and schedule.
Limit: the stream keeps so many changes of each schedule as of each kind of failure (`failures_per_schedule`). A change
that was made by another tool, such as the `nats` CLI, is not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nats_scheduler.control.advisories import read_change
from nats_scheduler.control.changes import Change
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.advisory_messages import SCHEDULE_CHANGED
from nats_scheduler.service.kept_failures import FailureQuery, find_kept

ChangeQuery = FailureQuery
"""Which changes are wanted: the same can be asked as of failures."""


@dataclass(frozen=True, slots=True)
class KeptChange:
    """A change that is recorded."""

    change: Change
    sequence: int
    """That of the advisory, in the stream that keeps it."""
    stored_at: int
    """When the advisory was stored (ns)."""


@dataclass(slots=True)
class FoundChanges:
    """An answer."""

    changes: list[KeptChange] = field(default_factory=list)
    """The newest first."""
    is_complete: bool = True
    """Whether all changes that match, up to the limit, were found."""


async def find_changes(
    connection: Connection, api: JetStreamApi, kept_in: StreamState, query: ChangeQuery
) -> FoundChanges:
    """Find recorded changes; `kept_in` is the stream that keeps advisories, as it was read just now.

    Raises `JetStreamError` if the server does not answer, or refuses.
    """
    found = await find_kept(
        connection, api, kept_in, query, SCHEDULE_CHANGED, lambda one: read_change(one.body) is not None
    )
    changes = [(read_change(one.body), one) for one in found.failures]
    kept = [KeptChange(change, one.sequence, one.stored_at) for change, one in changes if change is not None]
    return FoundChanges(kept, found.is_complete)
