"""The promises, each as a checker: it takes a history and lists every violation, with its evidence.

Its rule: a checker demands what its promise says and excuses what the promise excuses, and nothing else.

- *Complete*: each due of a known version is stored, unless no instance was ready between it and the next one (the
  missed-fire rule: of those one make-up fire stands for all), or the version may have ended before one was.
  With policies for missed fires another rule holds (`judge.missed`).
  Only the publisher, or the fire of an `@at`, removes a schedule.
  What the servers had acknowledged and lost is excused, if the files of every node show it (`judge.forgotten`).
- *Unique*: no due is stored twice, no fire is stored that no due asks for, and none is made up that a later one stands
  for. Where messages are consumed, it ends beyond the duplicate window, and with a server (`judge.forgotten`).
- *Timely*: never early, by more than the clock of an instance was ahead, and while it was, if that is recorded.
- *Faithful*: target, body, and the headers of the scheduler.
- *Latest*, *Gone*: nothing of a version is stored once its replacement, or its removal, was acknowledged, but what was
  due when another version replaced it; that is stored, if an instance was ready from then on (*Complete*). Where no
  guard decides (2.10) and for the atomic cancel, a window is left: what was read or in flight by then. A cancel that
  was published while servers had a fault is read when that is over.
  An older version that is uncovered, because what replaced it was deleted by its sequence, may fire again.
- *Live*: while an instance is ready no fire is late, and after the last fault something fires.
- *Owned* is no promise, but what saves the work: where instances agree on an owner, the stream has one in the end,
  and keeps it.
- *Done* is what a policy asks for: a fire that is unfinished for too long is reported, once all is well and it still
  is; one that was finished before is not. How often it is reported is not counted: each instance that starts may.
- *Overlap* is what a policy asks for: no fire while the one before is unfinished (`tests.judge.overlaps`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from tests.judge.calendars import may_except_last
from tests.judge.case import Case
from tests.judge.contents import Contents, said
from tests.judge.forgotten import is_forgotten
from tests.judge.history import EVERYTHING, NEVER, SECOND, FireKey, FireSeen, History, Verb
from tests.judge.missed import given_up, is_too_late, last_is_skipped, live_after, needed, stood_for_from
from tests.judge.overlaps import free_from, holds_back, is_too_soon, may_skip_last
from tests.judge.versions import REPLACING, Version

REPORTED_WITHIN = 8 * SECOND
"""The time (ns) in which a fire whose time is over is reported: questions without an answer are asked again later."""

MOST_TAKEOVERS = 10
"""The number of times that a stream may be taken over in the last seconds: an idle owner may be trusted again then."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    promise: str
    schedule: str
    sequence: int
    evidence: str

    def __str__(self) -> str:
        """Describe it in one line."""
        return f"{self.promise}: {self.schedule} (version {self.sequence}): {self.evidence}"


def verdict(history: History) -> list[Violation]:
    """Return everything that a history shows to be broken."""
    case = Case(history)
    return [violation for check in CHECKERS for violation in check(case)]


def complete(case: Case) -> list[Violation]:
    """Find dues that are not stored although an instance was ready, and schedules that vanished."""
    found = []
    for version in case.versions.values():
        if version.sequence in case.losses.schedules:
            continue
        horizon = min(version.may_end_from, case.history.end)
        dues = version.owed(horizon)
        found += _not_kept(case, version)
        for due, following in given_up(case, version, dues, _given_up(case, version, horizon)):
            free = free_from(case.history, version, due)
            begin, end = max(version.sent_at(due), version.stored_at, free), min(following, horizon)
            calendar = version.pattern.policies.calendar
            if free or calendar:  # what still waits when the TTL runs out is not sent
                end = min(end, version.expires - case.terms.clock_ahead)
            end = min(end, case.calendars.excepted_from(calendar, version.sent_at(due)))
            ready = case.calendars.ready(calendar, partial(case.ready_for, version, due), begin, end)
            is_lost = FireKey(version.sequence, due) in case.losses.fires
            if (version.sequence, due) not in case.stored and ready >= needed(case, version) and not is_lost:
                evidence = f"the fire of {case.at(due)} is not stored; an instance was ready for {ready / SECOND:.3f} s"
                found.append(_violation("Complete", version, evidence))
        if _has_vanished(case, version):
            found.append(_violation("Complete", version, "it was not removed by its publisher, and is not stored"))
    return found + _lost(case)


def _not_kept(case: Case, version: Version) -> list[Violation]:
    """Find the last due before a version was replaced by another one, if it is owed and not stored.

    One that starts without a checkpoint does not know of it.
    """
    by, policies = version.replaced_by, version.pattern.policies
    has_calendar = policies.calendar or (by is not None and by.pattern.policies.calendar)
    if by is None or has_calendar or policies.skipped_after is not None or holds_back(version):
        return []
    dues = version.dues(by.stored_at)
    due = dues[-1] if dues else NEVER
    is_refused = any(fault.kind == "refusing" for fault in case.history.faults) or version.target in case.subjects
    is_stored = (version.sequence, due) in case.stored or FireKey(version.sequence, due) in case.losses.fires
    knows_none = any(live_after(case, began_at) > by.stored_at for began_at in case.history.found_no_checkpoint)
    knows_none |= any(fault.kind.startswith("bucket") for fault in case.history.faults)  # none could be written
    if due > by.stored_at or is_refused or is_stored or knows_none or not _leaves(by, due):
        return []
    taken_from = min(version.taken_from, version.uncovered_from)  # removal of what replaced it takes that, too
    end = min(taken_from, version.expires - case.terms.clock_ahead, case.history.end)
    if policies.most == 1:  # of several versions that were missed, the last one makes up for those before
        of_it = (one for one in case.versions.values() if one.schedule == version.schedule)
        end = min([end, *(_stands_from(one) for one in of_it if one.sequence > version.sequence)])
    if case.ready_for(version, due, max(version.sent_at(due), by.stored_at), end) < needed(case, version):
        return []
    evidence = f"the fire of {case.at(due)} was due when it was replaced at {case.at(by.stored_at)}, and is not stored"
    return [_violation("Complete", version, evidence)]


def _leaves(by: Version, due: int) -> bool:
    """Return whether a version leaves a due instant to the one that it replaced: it fires later, and its bounds do."""
    policies = by.pattern.policies
    start = 0 if policies.start is None else policies.start * SECOND
    end = NEVER if policies.end is None else policies.end * SECOND
    is_own = not by.pattern.repeats and by.dues(NEVER) <= [due]
    return start <= due < end and not is_own


def _stands_from(version: Version) -> int:
    """Return from when on (ns) the last fire of a version is missed that it may owe; `NEVER` if it owes none."""
    by = version.replaced_by
    dues = [] if by is None else version.dues(by.stored_at)
    if by is None or not dues or not _leaves(by, dues[-1]):
        return NEVER
    return max(by.stored_at, version.sent_at(dues[-1]))


def _given_up(case: Case, version: Version, horizon: int) -> int:
    """Return when the last fire is no longer owed: a refused fire ends when the TTL runs out."""
    is_refused = any(fault.kind == "refusing" for fault in case.history.faults)
    return min(version.expires, horizon) if is_refused else horizon


def _has_vanished(case: Case, version: Version) -> bool:
    is_done = version.last_fires
    may_end = version.may_end_from < NEVER or version.expires <= case.history.end + case.terms.clock_ahead
    may_end |= last_is_skipped(case, version) or may_skip_last(case.history, version)
    may_end |= may_except_last(case.calendars, version, case.history)
    is_last_lost = any(fire.schedule_sequence == version.sequence for fire in case.losses.fires)
    may_end |= is_last_lost and not version.pattern.repeats
    return not is_done and not may_end and version.sequence not in case.history.remaining


def _lost(case: Case) -> list[Violation]:
    """Find generated messages that are gone although they were not removed and no TTL has run out."""
    kept = case.history.remaining_fires
    if kept is None or case.terms.consumed:
        return []
    purges = [operation for operation in case.history.operations if operation.schedule == EVERYTHING]
    purged = max((NEVER if one.completed_at is None else one.completed_at for one in purges), default=-1)
    found, end = [], case.history.end + case.terms.clock_ahead
    rolled_up = _rolled_up(case)
    for (sequence, due), fire in case.stored.items():
        version = case.versions[sequence]
        lands = version.target in case.subjects  # what lies there goes when its publisher, or a fire, says so
        last = rolled_up.get(version.target)
        goes = lands or (last is not None and fire.sequence < last.sequence)
        if fire.sequence not in kept and not goes and fire.stored_at > purged and version.fire_gone_at(fire) > end:
            found.append(_violation("Complete", version, f"the fire of {case.at(due)} is not stored any more"))
    return found


def _rolled_up(case: Case, until: int = NEVER) -> dict[str, FireSeen]:
    """Return the last fire on each target that replaces those before it, of those stored until then (ns)."""
    rolling = [fire for (sequence, _due), fire in case.stored.items() if case.versions[sequence].rolls_up]
    return {fire.target: fire for fire in sorted(rolling, key=lambda one: one.sequence) if fire.stored_at < until}


def _left_over(case: Case) -> list[Violation]:
    """Find fires that lie below one that replaces them, of a schedule that nobody has removed since."""
    kept, found = case.history.remaining_fires or set(), []
    rolled_up = _rolled_up(case, case.history.end - 2 * case.terms.resumes_within)
    for fire in case.history.fires:
        last = rolled_up.get(fire.target)
        if last is None or fire.sequence not in kept or fire.sequence >= last.sequence or fire.elsewhere:
            continue
        version = case.versions[case.targets[last.sequence][0]]
        if version.may_end_from == NEVER and version.expires >= case.history.end:
            evidence = f"the fire of {_time(case, fire)} lies below that of {_time(case, last)}, which replaces it"
            found.append(_violation("Faithful", version, evidence))
    return found


def unique(case: Case) -> list[Violation]:
    """Find fires without a due, or with a due that another fire stands for."""
    found = []
    for fire in case.history.fires:
        target = case.targets.get(fire.sequence)
        known = case.versions.get(fire.schedule_sequence or 0)
        if target is None and not _is_beyond_knowledge(case, fire):
            evidence = f"no due is left for the fire of {_time(case, fire)}, stored at {case.at(fire.stored_at)}"
            found.append(Violation("Unique", fire.schedule, fire.schedule_sequence or 0, evidence))
        elif target is not None and known is not None and _is_needless(case, known, target[1], fire):
            evidence = f"{case.at(target[1])} is made up at {case.at(fire.stored_at)}, but a later one stands for it"
            found.append(_violation("Unique", known, evidence))
        elif target is not None and known is not None and is_too_late(case, known, target[1], fire):
            evidence = f"{case.at(target[1])} is made up at {case.at(fire.stored_at)}, and was to be skipped"
            found.append(_violation("Unique", known, evidence))
        elif known is not None and case.calendars.forbids(known, fire):
            evidence = (
                f"its calendar did not leave the fire of {_time(case, fire)}, stored at {case.at(fire.stored_at)}"
            )
            found.append(_violation("Unique", known, evidence))
    return found


def _is_beyond_knowledge(case: Case, fire: FireSeen) -> bool:
    """Return whether it repeats a message that was consumed or expired and has left the duplicate window.

    A fire has left it earlier if one of the two has another identity, because a forger had taken the first one.
    """
    first = case.stored.get((fire.schedule_sequence or 0, fire.fire_time or 0))
    if first is None:
        return False
    version = case.versions[fire.schedule_sequence or 0]
    may_be_gone = case.terms.consumed or version.target in case.subjects or version.rolls_up
    gone_at = first.stored_at if may_be_gone else version.fire_gone_at(first)
    window = case.terms.window_elsewhere
    if fire.elsewhere and window and fire.stored_at >= first.stored_at + window and _is_in_trouble(case, fire):
        return True  # it was sent before that one, and held in transit
    is_gone = fire.stored_at >= gone_at
    if is_gone and fire.stored_at >= first.stored_at + case.terms.duplicate_window:
        return True
    return is_forgotten(case.history, first, fire) or case.identities.excuse(first, fire, is_gone=is_gone)


def _is_needless(case: Case, version: Version, due: int, fire: FireSeen) -> bool:
    """Return whether one that stands for it was due before any instance could have begun this fire."""
    following = stood_for_from(version, due)
    if following is None or fire.stored_at < following:
        return False
    if not case.calendars.leaves_all(version.pattern.policies.calendar, due, fire.stored_at):
        return False
    begin, end = version.sent_at(due) - case.terms.clock_ahead, following + case.terms.clock_behind
    return not any(life.begin <= end and life.end >= begin for life in case.history.lives)


def timely(case: Case) -> list[Violation]:
    """Find fires that are early."""
    found = []
    for fire in case.history.fires:
        version = case.versions.get(fire.schedule_sequence or 0)
        earliest = fire.fire_time
        if version is not None and earliest is not None:
            earliest = version.sent_at(earliest)
        if earliest is not None and fire.stored_at < earliest - case.ahead(fire, earliest):
            evidence = f"early by {earliest - fire.stored_at} ns"
            found.append(Violation("Timely", fire.schedule, fire.schedule_sequence or 0, evidence))
    return found


def faithful(case: Case) -> list[Violation]:
    """Find fires that are not what their schedule asked for."""
    found, contents = [], Contents(case.history)
    for (sequence, due), fire in case.stored.items():
        version, got = case.versions[sequence], said(fire)
        wanted = contents.expected(version, due, fire)
        if got not in wanted:
            evidence = f"the fire of {case.at(due)} is {got}, expected {' or '.join(map(str, wanted))}"
            found.append(_violation("Faithful", version, evidence))
    return found + _left_over(case)


def latest(case: Case) -> list[Violation]:
    """Find fires of versions that had been replaced."""
    return [violation for violation in _stale(case) if violation.promise == "Latest"]


def gone(case: Case) -> list[Violation]:
    """Find fires of versions that had been removed or had expired, and what should be gone and is stored."""
    found = [violation for violation in _stale(case) if violation.promise == "Gone"]
    calm = case.history.end - 2 * case.terms.resumes_within
    found += [*_expired(case), *_outlived(case, calm)]
    for version in case.versions.values():
        if version.sequence not in case.history.remaining or _over_at(case, version) >= calm:
            continue
        of_it = (one for one in case.versions.values() if one.schedule == version.schedule)
        below = (_owes_until(case, one) for one in of_it if one.sequence <= version.sequence)
        over = max(_over_at(case, version), *below)
        settled = case.readiness.longest(max(over, calm), case.history.end) > case.terms.resumes_within // 2
        if over < calm and settled:
            found.append(_violation("Gone", version, f"it ended at {case.at(over)} and is still stored"))
    return found


def _expired(case: Case) -> list[Violation]:
    """Find fires that were to be sent at a time at which the TTL of their version had run out."""
    ahead = case.terms.clock_ahead if case.terms.guard else 0  # with a guard the server acts on TTLs, not the sidecar
    return [
        _violation("Gone", version, f"it fired for {_time(case, fire)}, and expired at {case.at(version.expires)}")
        for version in case.versions.values()
        for fire in version.fires
        if fire.fire_time is not None and version.sent_at(fire.fire_time) >= version.expires + ahead
    ]


def _outlived(case: Case, calm: int) -> list[Violation]:
    """Find generated messages whose TTL had run out before a time (ns) since which nothing was broken."""
    kept = case.history.remaining_fires or set()
    return [
        _violation("Gone", version, f"its fire {fire.sequence} expired, and is still stored")
        for version in case.versions.values()
        for fire in version.fires
        if fire.sequence in kept and version.fire_gone_at(fire) < calm
    ]


def _over_at(case: Case, version: Version) -> int:
    """Return when a version that must be removed was over; one that lies under an ordinary message stays."""
    is_buried = any(o.verb is Verb.OVERWRITE and o.schedule == version.schedule for o in case.history.operations)
    if is_buried or version.uncovered_from < NEVER:
        return NEVER
    fired = [fire.stored_at for fire in version.last_fires]
    return min([version.must_end_by, version.cancelled_by, version.expires, *fired])


def _owes_until(case: Case, version: Version) -> int:
    """Return until when (ns) what is owed of a version that was replaced keeps it, and all above it; 0 if nothing is.

    That is delayed by a jitter, and by the fire before while that is unfinished.
    """
    if version.replaced_by is None:
        return 0
    dues = version.dues(version.replaced_by.stored_at)
    if not dues:
        return 0
    free = free_from(case.history, version, dues[-1])
    fire = case.stored.get((version.sequence, dues[-1]))
    until = max(version.sent_at(dues[-1]), 0 if version.pattern.policies.overlap == "skip" else free)
    until = until if fire is None else fire.stored_at
    return min(until, version.taken_by, version.cancelled_by, version.expires)


def _stale(case: Case) -> list[Violation]:
    found = []
    for version in case.versions.values():
        replaced = version.ended_by is not None and version.ended_by.verb in REPLACING
        for fire in version.fires:
            if fire.stored_at >= version.uncovered_from:
                continue
            is_owed = fire.fire_time is not None and fire.fire_time <= version.owed_through
            ended_by, ended_at = version.must_end_by, version.replaced_at_sequence
            if is_owed:
                ended_by, ended_at = version.taken_by, version.taken_at_sequence
            late = fire.stored_at - ended_by
            is_deleted = version.ended_by is not None and version.ended_by.verb is Verb.DELETE
            is_covered = (case.terms.covered_unguarded or is_deleted) and _has_landing(case, version, fire)
            is_covered |= case.terms.covered_unguarded and is_owed
            is_unguarded = fire.elsewhere or is_covered
            is_guarded = case.terms.guard and not is_unguarded
            in_flight = case.terms.window + (case.terms.held_elsewhere if fire.elsewhere else 0)
            window = 0 if is_guarded else in_flight
            outrun = is_guarded and fire.sequence > ended_at
            if outrun or late > window:
                evidence = f"stored at {case.at(fire.stored_at)}, {late / SECOND:.3f} s after its end was acknowledged"
                found.append(_violation("Latest" if replaced and not is_owed else "Gone", version, evidence))
            elif fire.stored_at - _cancel_is_read_at(case, version.cancelled_by) > in_flight:
                evidence = f"stored at {case.at(fire.stored_at)}, cancelled at {case.at(version.cancelled_by)}"
                found.append(_violation("Gone", version, evidence))
    return found


def _cancel_is_read_at(case: Case, acknowledged: int) -> int:
    """Return when a cancel can be read at the latest: it is a message, and no node delivers it while that one hangs."""
    known = (one for one in case.history.faults if one.instance is None and not (one.delays_only or one.ahead))
    begun = acknowledged + case.terms.window
    return max((one.end for one in known if one.begin <= begun and acknowledged < one.end), default=acknowledged)


def _has_landing(case: Case, version: Version, fire: FireSeen) -> bool:
    """Return whether a fire of another schedule lay on a version when one of its fires was stored."""
    return any(
        other.target == version.schedule and version.sequence < other.sequence < fire.sequence
        for other in case.history.fires
    )


def live(case: Case) -> list[Violation]:
    """Find fires that are late although an instance was ready, and versions that are silent after the last fault."""
    found = []
    for (sequence, due), fire in case.stored.items():
        version = case.versions[sequence]
        free = free_from(case.history, version, due)
        begin = max(version.sent_at(due), version.stored_at + case.terms.leader_behind, free)
        waited = case.ready_for(version, due, begin, fire.stored_at)
        least = needed(case, version) + (3 * case.terms.leader_behind if fire.taken else 0)
        is_late = waited > least and version.uncovered_from == NEVER
        is_late &= case.calendars.leaves_all(version.pattern.policies.calendar, due, fire.stored_at)
        if is_late and not _was_held_up(case, version, due, fire):
            found.append(_violation("Live", version, f"{case.at(due)} is stored {waited / SECOND:.3f} s late"))
    last = max((begin for begin, end in case.readiness.stretches if end == case.history.end), default=NEVER)
    for version in case.versions.values():
        dues = [
            due
            for due in version.owed(case.history.end - case.terms.slack)
            if version.sent_at(due) >= last and not free_from(case.history, version, due)
        ]
        dues = [
            due for due in dues if case.calendars.leaves_all(version.pattern.policies.calendar, due, case.history.end)
        ]
        is_silent = all((version.sequence, due) not in case.stored for due in dues)
        if version.sequence in case.losses.schedules:
            continue
        if dues and version.pattern.repeats and version.may_end_from == NEVER and is_silent:
            found.append(_violation("Live", version, f"silent since {case.at(last)}, when all was well"))
    return found


def _was_held_up(case: Case, version: Version, due: int, fire: FireSeen) -> bool:
    """Return whether an instance with a fault sent a fire that is stored after a later one, or after its schedule.

    When a later one is stored, or the schedule has ended, no other instance has a reason to send it.
    """
    has_ended = min(version.must_end_by, version.cancelled_by) < fire.stored_at
    return _is_in_trouble(case, fire) and (
        has_ended
        or any(
            sequence == version.sequence and later > due and other.stored_at < fire.stored_at
            for (sequence, later), other in case.stored.items()
        )
    )


def _is_in_trouble(case: Case, fire: FireSeen) -> bool:
    """Return whether an instance had a fault between the fire time and the storing of a fire."""
    due = fire.fire_time or 0
    return any(f.instance is not None and f.begin <= fire.stored_at and f.end >= due for f in case.history.faults)


def owned(case: Case) -> list[Violation]:
    """Find a stream without an owner in the end, or with two, one that is taken over endlessly, and one that more or
    fewer instances read than are to."""
    owners = case.history.owned_by
    if owners is None:
        return []
    if case.history.takeovers > MOST_TAKEOVERS:
        return [Violation("Owned", "record", 0, f"it was changed {case.history.takeovers} times in the end")]
    readers, wanted = case.history.read_by, case.terms.readers
    if wanted not in (0, len(readers)):
        return [Violation("Owned", "readers", 0, f"it is read by {readers}, not by {wanted}")]
    return [] if len(owners) == 1 else [Violation("Owned", "owner", 0, f"it is owned by {owners}")]


def overlapping(case: Case) -> list[Violation]:
    """Find fires that were stored while the fire before was unfinished, although their policy forbids it."""
    found = []
    for version in case.versions.values():
        if not holds_back(version) or version.uncovered_from < NEVER:
            continue
        for before, fire in pairwise(sorted(version.fires, key=lambda one: one.sequence)):
            if is_too_soon(case.history, version, before, fire):
                stored = f"the fire of {_time(case, fire)} is stored at {case.at(fire.stored_at)}"
                found.append(_violation("Overlap", version, f"{stored}, and {before.sequence} is unfinished"))
    return found


def done(case: Case) -> list[Violation]:
    """Find fires that nobody finished in time and nobody reported, and reports of what was finished, or too early."""
    found, history = [], case.history
    well_from = max((begin for begin, end in case.readiness.stretches if end == history.end), default=NEVER)
    slack = case.terms.window + SECOND
    for version in case.versions.values():
        within = version.pattern.policies.done_within
        for fire in version.fires if within is not None else ():
            deadline = fire.stored_at + (within or 0) * SECOND
            finished, gone = history.finished.get(fire.sequence, NEVER), version.fire_gone_at(fire)
            reports = history.not_done.get(fire.sequence, [])
            is_stored = history.remaining_fires is None or fire.sequence in history.remaining_fires
            owed_from = max(deadline, well_from) + REPORTED_WITHIN
            if not reports and is_stored and owed_from < min(finished, gone, history.end):
                found.append(_violation("Done", version, f"{fire.sequence} is unfinished, which nobody reported"))
            if case.terms.guard:  # else it is stored until a sidecar removes it
                finished = min(finished, gone)
            wrong = [at for at in reports if at + slack < deadline or finished + slack < at]
            found += [_violation("Done", version, f"{fire.sequence} is reported at {case.at(at)}") for at in wrong]
    return found


def _time(case: Case, fire: FireSeen) -> str:
    return "an unknown time" if fire.fire_time is None else case.at(fire.fire_time)


def _violation(promise: str, version: Version, evidence: str) -> Violation:
    described = f"{version.pattern.text!r} stored at {version.stored_at}: {evidence}"
    return Violation(promise, version.schedule, version.sequence, described)


PROMISES = (complete, unique, timely, faithful, latest, gone, live)

CHECKERS: tuple[Callable[[Case], list[Violation]], ...] = (*PROMISES, owned, overlapping, done)
