"""The versions of each schedule: what was stored, from when it may have ended, and by when it must have.

A version that repeats, and that another one replaced, is owed what was due by then, until something else takes that: a
removal, or a message that is no active schedule.

Its rule: an operation whose outcome is unknown may have ended a version and need not have; one that overlaps the
storing of a version may have come before it.
A store of unknown outcome is traced by its body to a message that was seen in the stream, one to one; where none was
seen, it is not known to exist, and nothing is demanded of it.
A version whose TTL has run out is over. Where the server sees to it (2.11) that is an end like any other; where the
sidecar does (2.10), what was due before is made up first.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.judge.history import EVERYTHING, NEVER, SECOND, FireSeen, Headers, History, Operation, ScheduleSeen, Verb
from tests.judge.patterns import Pattern

REPLACING = (Verb.STORE, Verb.OVERWRITE, Verb.PAUSE)


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
    headers: Headers = ()
    source: str = ""
    fire_ttl: int = 0
    rolls_up: bool = False
    expires: int = NEVER
    """The instant at which its TTL runs out: it fires for no time from then on."""
    may_end_from: int = NEVER
    must_end_by: int = NEVER
    """The instant by which it was certainly deleted, purged, overwritten or replaced, as the server acknowledged."""
    cancelled_by: int = NEVER
    """The instant at which the cancel of it was acknowledged, which the sidecar has to read first."""
    replaced_at_sequence: int = NEVER
    uncovered_from: int = NEVER
    """The instant from which on what replaced it may be gone (deleted by its sequence, or expired): it may be the last
    message on its subject again."""
    ended_by: Operation | None = None
    replaced_by: "Version | None" = None
    """The version that replaced it, if it repeats; None if none did, or if another message may have come before."""
    replaced_at: list[int] = field(default_factory=list)
    """When other versions replaced it: `replaced_by`, and any that was stored once it was uncovered."""
    taken_by: int = NEVER
    """The instant by which what is owed was certainly taken, as the server acknowledged."""
    taken_at_sequence: int = NEVER
    taken_from: int = NEVER
    """The instant from which on it may have been taken."""
    fires: list[FireSeen] = field(default_factory=list)

    def dues(self, until: int) -> list[int]:
        """List when it is due, up to `until`, whatever its TTL says."""
        return self.pattern.dues(self.stored_at, until)

    def owed(self, until: int) -> list[int]:
        """List when it is due that is to be sent up to `until` and before its TTL runs out."""
        return [due for due in self.dues(until) if self.sent_at(due) <= until and self.sent_at(due) < self.expires]

    @property
    def owed_through(self) -> int:
        """The instant (ns) at which another version replaced it: what was due by then is still owed; else -1."""
        return -1 if self.replaced_by is None else self.replaced_by.stored_at

    def sent_at(self, due: int) -> int:
        """Give the instant at which the fire of a due instant is to be sent."""
        return self.pattern.sent_at(due, self.stored_at, self.schedule, self.sequence)

    def fire_gone_at(self, fire: FireSeen) -> int:
        """Return when the TTL of a fire runs out."""
        return fire.stored_at + self.fire_ttl * SECOND if self.fire_ttl else NEVER

    @property
    def last_fires(self) -> list[FireSeen]:
        """The fires that it ends with: all that `at` has, and the last one that its policies leave."""
        if not self.pattern.repeats:
            return self.fires
        return [
            fire
            for fire in self.fires
            if fire.fire_time is not None
            and fire.fire_time > self.stored_at  # else it is none of its own
            and self.pattern.following(fire.fire_time, self.stored_at) is None
        ]

    def following_sent_at(self, due: int) -> int | None:
        """Give the instant at which the fire behind that of a due instant is to be sent; None behind the last one."""
        following = self.pattern.following(due, self.stored_at)
        sent_at = None if following is None else self.sent_at(following)
        return None if sent_at is None or sent_at >= self.expires else sent_at


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
            operation.headers,
            operation.source,
            operation.fire_ttl,
            operation.rolls_up,
            seen.stored_at + operation.ttl,
        )
    expiring = [version for version in versions.values() if version.expires < NEVER]
    for version in versions.values():
        for operation in history.operations:
            if operation.schedule in (version.schedule, EVERYTHING) and operation.sequence != version.sequence:
                _bear(version, operation)
        version.replaced_by = _replaced_by(version, versions.values())
        version.uncovered_from = _uncovered_from(version, history.operations, expiring)
        version.replaced_at = [
            later.stored_at
            for later in versions.values()
            if later.schedule == version.schedule
            and later.sequence > version.sequence
            and (later is version.replaced_by or later.stored_at >= version.uncovered_from)
        ]
        if history.terms.guard and version.expires < NEVER:
            _expire(version)
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
    """Apply an operation to the end of a version."""
    if not _may_end(version, operation):
        return
    version.may_end_from = min(version.may_end_from, max(operation.invoked_at, version.stored_at))
    if operation.verb is not Verb.STORE:
        _take(version, operation)
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


def _take(version: Version, operation: Operation) -> None:
    """Apply an operation to what is owed of a version that was replaced."""
    version.taken_from = min(version.taken_from, max(operation.invoked_at, version.stored_at))
    if operation.completed_at is None or operation.verb is Verb.CANCEL or not _must_end(version, operation):
        return
    version.taken_by = min(version.taken_by, operation.completed_at)
    if operation.verb in REPLACING and operation.sequence is not None:
        version.taken_at_sequence = min(version.taken_at_sequence, operation.sequence)


def _replaced_by(version: Version, versions: Iterable[Version]) -> Version | None:
    """Return the version that replaced one that repeats; None if another message had replaced it before.

    One that fires once has one time, which its replacement takes away.
    """
    if not version.pattern.repeats:
        return None
    later = (v for v in versions if v.schedule == version.schedule and v.sequence > version.sequence)
    by = min(later, key=lambda one: one.sequence, default=None)
    return None if by is None or by.sequence > version.taken_at_sequence else by


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


def _expire(version: Version) -> None:
    """Let the server remove a version whose TTL runs out."""
    version.may_end_from = min(version.may_end_from, version.expires)
    if version.expires < version.must_end_by:
        version.must_end_by, version.ended_by = version.expires, None


def _uncovered_from(version: Version, operations: list[Operation], expiring: list[Version]) -> int:
    deletes = (o for o in operations if o.verb is Verb.DELETE and o.schedule == version.schedule)
    deleted = (o.invoked_at for o in deletes if o.names is not None and o.names > version.sequence)
    later = (v for v in expiring if v.schedule == version.schedule and v.sequence > version.sequence)
    paused = (o for o in operations if o.verb is Verb.PAUSE and o.schedule == version.schedule and o.ttl < NEVER)
    expired = (o.invoked_at + o.ttl for o in paused if o.sequence is None or o.sequence > version.sequence)
    return min([NEVER, *deleted, *expired, *(v.expires for v in later)])


# One to one: each of some things gets one of its candidates, so that as many as possible get one.
#
# The rule: augmenting paths (Kuhn), in the order given, so that the same history has the same verdict.
# Cost: the product of things and candidates at worst; histories that know their outcomes have one candidate each.

Thing = TypeVar("Thing", bound=Hashable)
Candidate = TypeVar("Candidate", bound=Hashable)


def matched(candidates: Mapping[Thing, Sequence[Candidate]]) -> dict[Thing, Candidate]:
    """Match things to candidates, each used once; a thing without a candidate is left out."""
    taken: dict[Candidate, Thing] = {}

    def place(thing: Thing, tried: set[Candidate]) -> bool:
        for candidate in candidates[thing]:
            if candidate in tried:
                continue
            tried.add(candidate)
            if candidate not in taken or place(taken[candidate], tried):
                taken[candidate] = thing
                return True
        return False

    for thing in candidates:
        place(thing, set())
    return {thing: candidate for candidate, thing in taken.items()}
