"""The versions of each schedule: what was stored, from when it may have ended, and by when it must have.

Its rule: an operation whose outcome is unknown may have ended a version and need not have; one that overlaps the
storing of a version may have come before it.
A store of unknown outcome is traced by its body to a message that was seen in the stream, one to one; where none was
seen, it is not known to exist, and nothing is demanded of it.
"""

from dataclasses import dataclass, field

from tests.judge.history import FireSeen, History, Operation, ScheduleSeen, Verb
from tests.judge.matching import matched
from tests.judge.patterns import Pattern

NEVER = 1 << 100
"""Later (ns) than any history."""

REPLACING = (Verb.STORE, Verb.OVERWRITE)


@dataclass(slots=True)
class Version:
    """One version of a schedule that is known to have been stored."""

    schedule: str
    sequence: int
    stored_at: int
    pattern: Pattern
    target: str
    body: bytes
    acknowledged_at: int
    may_end_from: int = NEVER
    must_end_by: int = NEVER
    """When it certainly had been deleted, purged, overwritten or replaced, by the server's word."""
    cancelled_by: int = NEVER
    """When the cancel of it was acknowledged, which the sidecar has to read first."""
    replaced_at_sequence: int = NEVER
    is_uncovered: bool = False
    """What had replaced it was deleted by its sequence: it may be the last message on its subject again."""
    ended_by: Operation | None = None
    fires: list[FireSeen] = field(default_factory=list)

    def dues(self, until: int) -> list[int]:
        """List when it is due, up to `until`."""
        return self.pattern.dues(self.stored_at, until)


def versions_of(history: History) -> dict[int, Version]:
    """Return the versions by sequence, each with what may and what must have ended it."""
    versions = {}
    for seen, operation in _traced(history):
        assert operation.pattern is not None, "a store has a pattern"
        acknowledged = NEVER if operation.completed_at is None else operation.completed_at
        versions[seen.sequence] = Version(
            seen.schedule,
            seen.sequence,
            seen.stored_at,
            operation.pattern,
            operation.target,
            seen.body,
            acknowledged,
        )
    for version in versions.values():
        for operation in history.operations:
            if operation.schedule == version.schedule and operation.sequence != version.sequence:
                _bear(version, operation)
        version.is_uncovered = _is_uncovered(version, history.operations)
    for fire in history.fires:
        known = versions.get(fire.schedule_sequence or 0)
        if known is not None and known.schedule == fire.schedule:
            known.fires.append(fire)
    return versions


def _traced(history: History) -> list[tuple[ScheduleSeen, Operation]]:
    """Give each schedule message that was seen the request that stored it."""
    stores = [operation for operation in history.operations if operation.verb is Verb.STORE]
    candidates = {
        number: [
            index
            for index, store in enumerate(stores)
            if store.body == seen.body
            and store.schedule == seen.schedule
            and store.sequence in (None, seen.sequence)
            and store.invoked_at <= seen.stored_at
        ]
        for number, seen in enumerate(history.schedules)
    }
    pairs = matched(candidates)
    return [(history.schedules[number], stores[index]) for number, index in sorted(pairs.items())]


def _bear(version: Version, operation: Operation) -> None:
    """Let an operation have its bearing on the end of a version."""
    if not _may_end(version, operation):
        return
    version.may_end_from = min(version.may_end_from, max(operation.invoked_at, version.stored_at))
    completed = operation.completed_at
    if completed is None or not _must_end(version, operation):
        return
    if operation.verb is Verb.CANCEL:
        version.cancelled_by = min(version.cancelled_by, completed)
        return
    if completed < version.must_end_by:
        version.must_end_by, version.ended_by = completed, operation
    if operation.verb in REPLACING and operation.sequence is not None:
        version.replaced_at_sequence = min(version.replaced_at_sequence, operation.sequence)


def _may_end(version: Version, operation: Operation) -> bool:
    if operation.verb is Verb.DELETE:
        return operation.names == version.sequence
    if operation.sequence is not None:
        return operation.sequence > version.sequence
    return operation.completed_at is None or operation.completed_at >= version.stored_at


def _must_end(version: Version, operation: Operation) -> bool:
    if operation.verb is Verb.PURGE:
        return operation.invoked_at >= version.acknowledged_at
    return True


def _is_uncovered(version: Version, operations: list[Operation]) -> bool:
    deletes = (o.names for o in operations if o.verb is Verb.DELETE and o.schedule == version.schedule)
    return any(named is not None and named > version.sequence for named in deletes)
