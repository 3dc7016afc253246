"""The checkpoint of a stream: how far its fires are settled, as its owner writes it for the next one into the registry.

One value for each stream and mode, written by compare-and-set.

The rules:

- A value that is no checkpoint, belongs to another stream, is ahead of the server's clock, or reaches beyond the end of
  the stream counts as none: using it would lose fires.
- A stream is distinguished from another one of its name by the time of its creation. Servers up to 2.12 report another
  time if a stream was updated and they were restarted. So a checkpoint that was written for another creation is not
  discarded: it applies to the schedules that were stored before the last message that its writer had read. In a stream
  that was created again all schedules are stored later.
- A checkpoint that reaches further than ours, and was written since our last one, stays: another instance owns the
  stream by now. Anything else that was written meanwhile is replaced.

Limit: a forged checkpoint that claims no more than an owner could have settled by now cannot be recognised.
Cost: one request to write while no other instance writes, two more each time that another one did.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Len
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from nats_scheduler.engine.inputs import NOTHING_SETTLED, Checkpoint
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.server_port import Bucket, StreamInformation
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS

MAX_CHECKPOINT_LEAD_NS = 5 * SECOND
"""A checkpoint that is further (ns) in the future is not true: all instances use the server's clock, of any node."""

LAGGING_LEADER_WAITS_SECONDS = (0.1, 0.2, 0.4)
"""Waits before the information of a stream is requested again if it ends before what an owner has read.

In a cluster a node may have delivered what the leader applies some hundred milliseconds later.
"""

MAX_CHECKPOINT_WRITE_ATTEMPTS = 8
"""The most attempts at a write while others write; the next checkpoint contains the same and more."""


class CheckpointValue(BaseModel):
    """A checkpoint as it is written; keys that a newer version added are ignored."""

    model_config = ConfigDict(strict=True)

    created: str
    """The stream's creation time, as the server reported it to the writer."""
    through: int
    sequence: NonNegativeInt
    unsettled: list[int] = []
    owed: list[Annotated[list[int], Len(2, 2)]] = []
    """Of the exceptions those that send each missed fire, each with the fire time (ns) of the first."""
    stored_by: int | None = None
    """The instant (ns) at which the last message was stored that the writer had read."""
    calendars: dict[str, int] = {}
    """Calendars that the writer did not know, and up to when (ns) the schedules that name them are settled."""

    @property
    def latest(self) -> int:
        """The latest fire time (ns) that it claims to know of."""
        return max([self.through, *(fire_time for _sequence, fire_time in self.owed), 0])

    def loaded(self, created: str) -> Checkpoint:
        """Return it as the engine of a stream that was created then takes it."""
        return Checkpoint(
            self.through,
            self.sequence,
            frozenset(self.unsettled),
            stored_by=None if self.created == created else self.stored_by,
            owed={pair[0]: pair[1] for pair in self.owed},
            calendars=self.calendars,
        )


class CheckpointKeeper:
    """Writes the checkpoints of one instance for one stream."""

    def __init__(self, registry: Bucket, created: str, key: str, now: Callable[[], int]) -> None:
        """Write nothing yet; `now` returns the time (ns) by the server's clock."""
        self._registry = registry
        self._created = created
        self._key = key
        self._now = now
        self._revision = 0
        self._reached = -1
        """How far (ns) another instance settled the stream that wrote last; -1 if that was this one."""

    async def write(self, settled: Checkpoint) -> bool:
        """Write how far the fires are settled, unless another instance wrote that they are settled further.

        Returns False if others wrote at each attempt. Raises `SchedulerError`.
        """
        value = _value_of(settled, self._created)
        for _ in range(MAX_CHECKPOINT_WRITE_ATTEMPTS):
            if settled.through < self._reached:
                return True
            revision = await self._registry.swap(self._key, value, self._revision)
            if revision is not None:
                self._revision, self._reached = revision, -1
                return True
            given, self._revision = await self._registry.revised(self._key)
            known, _broken = _read(given, self._created)
            is_credible = known is not None and known.created == self._created and not _leads(known, self._now())
            self._reached = known.through if known is not None and is_credible else -1
        return False


async def read_checkpoint(
    registry: Bucket, api: StreamInformation, stream: str, mode: Mode, now: int
) -> Checkpoint | None:
    """Return how far earlier owners settled the fires of a stream: `NOTHING_SETTLED` if none wrote it.

    None if there is no such stream.
    What was written in the emulated mode applies to every mode, since both spellings were served then; the one that
    reaches furthest counts.

    The stream is read last: what an owner writes between the two requests would seem to reach beyond its end.
    """
    keys = [checkpoint_key(stream, written_in) for written_in in sorted({mode, Mode.EMULATED})]
    written = [(key, await registry.get(key)) for key in keys]
    info = await api.stream(stream)
    for wait in LAGGING_LEADER_WAITS_SECONDS:
        if info is None or not _reaches_beyond(StreamState.from_info(info), [value for _key, value in written]):
            break
        await asyncio.sleep(wait)
        info = await api.stream(stream)
    if info is None:
        return None
    state = StreamState.from_info(info)
    found = [_credible(registry, key, value, state, now) for key, value in written]
    return max(found, key=lambda checkpoint: checkpoint.through)


def _credible(registry: Bucket, key: str, value: Mapping[str, Any] | None, state: StreamState, now: int) -> Checkpoint:
    """Return the checkpoint that a value is, `NOTHING_SETTLED` if it cannot be one of this stream."""
    known, is_broken = _read(value, state.created)
    if is_broken:
        registry.broken(key, f"no checkpoint: {str(value)[:MAX_SHOWN_CHARS]}")
    if known is None:
        return NOTHING_SETTLED
    if _leads(known, now):
        ahead = str((known.latest - now) // SECOND)[:MAX_SHOWN_CHARS]
        registry.broken(key, f"it claims fires as settled that are due {ahead} s ahead of the server's clock")
        return NOTHING_SETTLED
    if known.sequence <= state.last_sequence:
        return known.loaded(state.created)
    if known.created == state.created:  # else it is of another stream
        beyond = f"{known.sequence}, and the stream ends at {state.last_sequence}"
        registry.broken(key, f"it covers messages up to sequence {beyond}: forged, or the stream was rolled back")
    return NOTHING_SETTLED


def _leads(known: CheckpointValue, now: int) -> bool:
    """Return whether a checkpoint is too far ahead of the server's clock to be true."""
    return known.latest > now + MAX_CHECKPOINT_LEAD_NS


def _reaches_beyond(state: StreamState, values: Sequence[Mapping[str, Any] | None]) -> bool:
    """Return whether a checkpoint covers messages that the stream does not have, or not yet."""
    known = [_read(value, state.created)[0] for value in values]
    return any(one is not None and one.created == state.created and one.sequence > state.last_sequence for one in known)


def checkpoint_key(stream: str, mode: Mode) -> str:
    """Return the key under which the checkpoint of a stream is kept."""
    return f"checkpoint.{stream}.{mode}"


def _read(value: Mapping[str, Any] | None, created: str) -> tuple[CheckpointValue | None, bool]:
    """Return what may apply to the stream created then, and whether no sidecar can have written the value for it.

    One that was written for another creation may apply if it has `stored_by`.
    """
    if value is None:
        return None, False
    try:
        known = CheckpointValue.model_validate(value)
    except ValidationError:
        return None, value.get("created") == created
    return (known if known.created == created or known.stored_by is not None else None), False


def _value_of(settled: Checkpoint, created: str) -> dict[str, Any]:
    value = CheckpointValue(
        created=created,
        through=settled.through,
        sequence=settled.sequence,
        unsettled=sorted(settled.unsettled),
        owed=sorted([sequence, fire_time] for sequence, fire_time in settled.owed.items()),
        stored_by=settled.stored_by,
        calendars=dict(settled.calendars),
    )
    return value.model_dump(exclude_defaults=True)
