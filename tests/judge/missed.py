"""The fate of fires that are missed: which of them are owed, by the policies of their schedule.

Its rule: a due is owed until one that stands for it is sent. That is the next one; with `all` and a number it is that
many fires later, and with `all` there is none. With `skip` it is owed for as long as the grace lasts, and stored later
than that only if an instance lived until then.
With `all`, if an instance found no checkpoint, only what follows a stored fire of the version is owed as such, and what
came due once it had read everything: no backlog is invented.
What may have waited for the fire before (`judge.overlaps`) was not missed: the latest of those that waited stands for
all of them, and it is owed whatever the grace is.
"""

from tests.judge.case import Case
from tests.judge.history import EVERYTHING, NEVER, SECOND, FireSeen
from tests.judge.overlaps import free_from
from tests.judge.versions import Version

BACKLOG_TIME = SECOND
"""The additional time (ns) that an instance may need for a fire behind which a backlog waits."""


def needed(case: Case, version: Version) -> int:
    """Return how long (ns) an instance must be ready to have stored a fire."""
    return case.terms.slack + (0 if version.pattern.policies.most == 1 else BACKLOG_TIME)


def given_up(case: Case, version: Version, dues: list[int], horizon: int) -> list[tuple[int, int]]:
    """Return each due, and when it is owed no longer."""
    policies = version.pattern.policies
    begins = _backlog_begins(case, version)
    sent = [version.sent_at(due) for due in dues]
    found = []
    for index, due in enumerate(dues):
        may_wait = free_from(case.history, version, due) > 0
        most = policies.most if due > begins and not may_wait else 1
        later = len(sent) if most is None else index + most
        end = sent[later] if later < len(sent) else horizon
        if policies.skipped_after is not None:
            end = min(end, sent[index] + policies.skipped_after - case.terms.clock_ahead)
        found.append((due, end))
    return found


def _backlog_begins(case: Case, version: Version) -> int:
    """Return the due behind which all that is missed is owed: the first one of which the fire can be seen.

    It is an earlier one if each instance that began later knew how far fires were settled.
    """
    known = max((live_after(case, at) for at in case.history.found_no_checkpoint), default=-1)
    purges = any(operation.schedule == EVERYTHING for operation in case.history.operations)
    may_be_gone = (
        case.terms.consumed or version.target in case.subjects or purges or version.fire_ttl or version.rolls_up
    )
    may_be_gone = may_be_gone or any(fire.elsewhere for fire in version.fires)  # they are not read back
    times = [fire.fire_time for fire in version.fires if fire.fire_time is not None]
    return min(known, NEVER if may_be_gone else min(times, default=NEVER))


def live_after(case: Case, began_at: int) -> int:
    """Return when (ns) an instance had certainly read everything that asked for a checkpoint at an instant."""
    if len({life.instance for life in case.history.lives}) == 1:
        return min((fire.stored_at for fire in case.history.fires if fire.stored_at > began_at), default=NEVER)
    return min((begin for begin, _end in case.readiness.stretches if begin > began_at), default=NEVER)


def stood_for_from(version: Version, due: int) -> int | None:
    """Return when (ns) a later fire is sent that stands for that of a due instant; None if there is none."""
    policies = version.pattern.policies
    if policies.most is None:
        return None
    later: int | None = due
    for _ in range(policies.most):
        later = None if later is None else version.pattern.following(later, version.stored_at)
    if later is not None and any(due <= at < later for at in version.replaced_at):
        return None  # what it owed came before its replacement
    sent_at = None if later is None else version.sent_at(later)
    if sent_at is None or sent_at >= version.expires:
        return None
    return max(sent_at, version.sent_at(due) + policies.grace_time) if policies.missed.startswith("all") else sent_at


def is_too_late(case: Case, version: Version, due: int, fire: FireSeen) -> bool:
    """Return whether a fire is stored that was to be skipped: nothing lived that could have begun it in time."""
    after = version.pattern.policies.skipped_after
    if after is None:
        return False
    begin, end = version.sent_at(due), version.sent_at(due) + after
    if fire.stored_at <= end + case.terms.clock_behind or free_from(case.history, version, due):
        return False
    begin, end = begin - case.terms.clock_ahead, end + case.terms.clock_behind
    return not any(life.begin <= end and life.end >= begin for life in case.history.lives)


def last_is_skipped(case: Case, version: Version) -> bool:
    """Return whether a version may be gone because its last fire was skipped."""
    after, dues = version.pattern.policies.skipped_after, version.dues(case.history.end)
    if after is None or not dues or version.pattern.following(dues[-1], version.stored_at) is not None:
        return False
    return version.sent_at(dues[-1]) + after <= case.history.end + case.terms.clock_ahead
