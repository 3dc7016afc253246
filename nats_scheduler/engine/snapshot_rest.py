"""What a snapshot holds besides its schedules: what else an engine knows and would not read after its sequence.

The rule: the document that is written reads to an equal value. Anything else raises `SnapshotError`.
Limit: `MAX_EXCEPTIONS` entries; a stream with more of them gets no snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.shards import SHARDS
from nats_scheduler.engine.snapshot_chunks import SnapshotError

MAX_EXCEPTIONS = 20_000
"""Most messages and schedules that are named one by one."""


class Done(NamedTuple):
    """A schedule that is among the others, and that is done: it has to be purged."""

    subject: str
    sequence: int
    ending: Ending


class OldVersion(NamedTuple):
    """A version of a schedule that may still be stored below a newer one, and is to be purged."""

    subject: str
    through: int
    """Everything on the subject up to this sequence is to be purged."""
    sequence: int
    stored_at: int
    """When (ns) it was stored."""


class LastRead(NamedTuple):
    """The message with the highest sequence that was read."""

    subject: str
    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is known up to one sequence, besides the schedules that wait."""

    through: int
    """All messages up to this sequence have been read."""
    last: LastRead
    last_fired: Sequence[int]
    """By shard, the last send time (ns) of which a fire was read back."""
    roll_ups: Sequence[tuple[str, int, int]] = ()
    """Targets that may still be to be rolled up, with the last sequence to be purged and the schedule's shard."""
    landed: Mapping[int, int] = field(default_factory=dict)
    """The last sequence that landed on schedules, by their sequences."""
    old_versions: Sequence[OldVersion] = ()
    done: Sequence[Done] = ()
    to_read: Sequence[int] = ()
    """The sequences of messages that are to be read again, in their order: what they mean is not in the snapshot."""

    @property
    def exceptions(self) -> int:
        """How many messages and schedules are named one by one."""
        return sum(map(len, (self.landed, self.old_versions, self.done, self.to_read, self.roll_ups)))

    def document(self) -> dict[str, Any]:
        """Return it as the values of JSON."""
        return {
            "through": self.through,
            "last": list(self.last),
            "last_fired": list(self.last_fired),
            "roll_ups": [list(one) for one in self.roll_ups],
            "landed": [list(pair) for pair in self.landed.items()],
            "old_versions": [list(one) for one in self.old_versions],
            "done": [[one.subject, one.sequence, one.ending.value] for one in self.done],
            "to_read": list(self.to_read),
        }


def read_rest(document: Mapping[str, Any]) -> Rest:
    """Read what `Rest.document` returned; raises `SnapshotError`."""
    through = document.get("through")
    if type(through) is not int or through <= 0:
        raise SnapshotError("what belongs to the schedules does not say through which sequence it is known")
    last_fired = _numbers(document, "last_fired")
    if len(last_fired) != SHARDS:
        raise SnapshotError(f"there are not {SHARDS} shards")
    (last,) = _rows({"last": [document.get("last")]}, "last", (str, int, int))
    rest = Rest(
        through,
        LastRead(*last),
        tuple(last_fired),
        tuple((row[0], row[1], row[2]) for row in _rows(document, "roll_ups", (str, int, int))),
        dict(_rows(document, "landed", (int, int))),
        tuple(OldVersion(*row) for row in _rows(document, "old_versions", (str, int, int, int))),
        tuple(Done(row[0], row[1], _ending(row[2])) for row in _rows(document, "done", (str, int, str))),
        tuple(_numbers(document, "to_read")),
    )
    if rest.exceptions > MAX_EXCEPTIONS:
        raise SnapshotError(f"more than {MAX_EXCEPTIONS:,} messages are named")
    return rest


def _numbers(document: Mapping[str, Any], key: str) -> list[int]:
    found = document.get(key)
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise SnapshotError(f"{key} is no list of numbers")
    return found


def _rows(document: Mapping[str, Any], key: str, types: tuple[type, ...]) -> list[list[Any]]:
    found = document.get(key)
    if not isinstance(found, list):
        raise SnapshotError(f"{key} is no list")
    for row in found:
        if not isinstance(row, list) or tuple(map(type, row)) != types:
            raise SnapshotError(f"{key} has a row of other values")
    return found


def _ending(value: str) -> Ending:
    try:
        return Ending(value)
    except ValueError:
        raise SnapshotError(f"{value[:40]!r} ends no schedule") from None
