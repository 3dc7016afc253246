"""The fires that an unfinished fire holds back.

Its rule: a fire is finished once the worker of its target has finished it and everything before it there, once it is
gone, or once its timeout has passed. A fire that may have been unfinished excuses that the next one is missing or late;
only one that certainly was unfinished makes the next one a violation: what its worker had not acknowledged itself. That
everything before it is acknowledged too is not certain, since something of it may have expired.
"""

from collections.abc import Mapping

from tests.judge.history import EVERYTHING, NEVER, SECOND, FireSeen, History
from tests.judge.versions import Version

MILLISECOND = SECOND // 1000

SHORTEST_PAUSE, LONGEST_PAUSE = SECOND // 10, 5 * SECOND
"""A question is asked again after an eighth of the time that a fire has waited, within these limits (ns)."""

ASKED_WITHIN = SECOND // 2
"""A fire that is finished more than this time (ns) before the next one is due does not hold that one back."""


def holds_back(version: Version) -> bool:
    """Return whether fires of a version may hold back the next ones."""
    return version.pattern.repeats and version.pattern.policies.overlap != "allow"


def free_from(history: History, version: Version, due: int) -> int:
    """Return from when on (ns) the fire of a due instant is not held back; `NEVER` if it may be dropped.

    With `queue` it may be held back by a pause that began before it was due, because another one waited already.
    An instance whose clock is ahead asks about the fire before earlier by that lead.
    """
    if not holds_back(version):
        return 0
    earlier = [fire for fire in version.fires if fire.fire_time is not None and fire.fire_time < due]
    if not earlier:
        return 0
    finished = max(_finished_at(history, version, fire) for fire in earlier)
    known_from = finished + ASKED_WITHIN + history.terms.clock_ahead
    if version.pattern.policies.overlap == "skip":
        return 0 if known_from <= version.sent_at(due) else NEVER
    first = version.following_sent_at(max(fire.fire_time or 0 for fire in earlier))
    if first is None or known_from <= first:
        return 0
    return finished + min(max((finished - first) // 8, SHORTEST_PAUSE), LONGEST_PAUSE) + ASKED_WITHIN


def is_too_soon(history: History, version: Version, before: FireSeen, fire: FireSeen) -> bool:
    """Return whether a fire was stored although the one stored before it was certainly unfinished."""
    is_older = (fire.fire_time or NEVER) < (before.fire_time or 0)  # it was sent before the later one was
    in_transit = history.terms.window + (history.terms.held_elsewhere if is_older else 0)
    if fire.stored_at - before.stored_at <= in_transit:
        return False  # an instance may not have known of it
    may_be_purged = any(
        operation.schedule in (EVERYTHING, version.target) and operation.invoked_at <= fire.stored_at
        for operation in history.operations
    )
    slack = history.terms.clock_ahead + history.terms.window
    released = _released_at(history.acknowledged, history, version, before, version.fire_gone_at(before))
    return not may_be_purged and fire.stored_at + slack < released


def _finished_at(history: History, version: Version, fire: FireSeen) -> int:
    """Return when a fire was finished, at the latest: a server of 2.10 leaves it to the sidecar to act on its TTL."""
    gone = version.fire_gone_at(fire) if history.terms.guard else NEVER
    return _released_at(history.finished, history, version, fire, gone)


def _released_at(worked: Mapping[int, int], history: History, version: Version, fire: FireSeen, gone: int) -> int:
    timeout = version.pattern.policies.timeout
    timed_out = NEVER if timeout is None else fire.stored_at + timeout * MILLISECOND
    is_taken = history.terms.consumed and not history.terms.removed_by_workers
    return min(worked.get(fire.sequence, NEVER), timed_out, fire.stored_at if is_taken else gone)


def may_skip_last(history: History, version: Version) -> bool:
    """Return whether the last fire of a version may have been skipped, and the version removed."""
    dues = version.dues(history.end + history.terms.clock_ahead)
    is_last = bool(dues) and version.pattern.repeats and version.pattern.following(dues[-1], version.stored_at) is None
    return is_last and holds_back(version) and free_from(history, version, dues[-1]) == NEVER
