"""The policies for a fire that is due while the fire before it is unfinished: `X-Overlap` and `X-Timeout`.

A schedule with `X-Overlap` asks, when it is due, whether its fire before is finished (`engine.fire`). If it is, the
fire is sent. If it is not, `skip` drops everything that is due, and `queue` waits: the question is asked again from
time to time, and once the fire before is finished, the latest fire that is due is sent and the others count as skipped.

The rules:

- No fire is sent before it is known that the one before is finished or timed out. If that cannot be found out, the
  fire waits, whatever the policy is, and it is reported.
- The question is asked before it is decided what was missed: a fire that waits is not missed.
- A fire counts as finished once the time of `X-Timeout` has passed since it was stored; that is reported.
- A fire that the consumer has given up counts as finished too: to wait for it would have no end.
- What is finished stays finished: once that is known, nothing is asked again for the fire that waits for it.
- Of a fire that was removed nothing is left to finish. So if every message of the stream is read, and no stored fire
  of the schedule was found, there is none before. Otherwise the stream is searched, up to what was stored when the
  reading began: what was stored later was read, or was consumed.
- Questions about what was unfinished already are asked `QUESTION_SPACING_NS` apart, each in its turn.

Cost: one question for each fire of such a schedule. While it waits: an entry, and a question after an eighth of the
time that it has waited, between `FIRST_PAUSE_NS` and `LONGEST_PAUSE_NS`; no content is kept.
"""

from enum import Enum

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import FinishUnknown, FiresSkipped, FireTimedOut
from nats_scheduler.engine.fire import CheckFinished
from nats_scheduler.engine.firing.silence import dropped as note_dropped
from nats_scheduler.engine.holding.deadlines import MAX_SILENT_FAILURES, QUESTION_SPACING_NS
from nats_scheduler.engine.holding.flight import UNKNOWN_BACK_OFF_LIMIT_NS, FireBefore, Flight, Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import FinishAnswer, Unanswered
from nats_scheduler.message.policies import Overlap
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

FIRST_PAUSE_NS = 100 * MILLISECOND
"""Shortest time between two questions about one fire."""

LONGEST_PAUSE_NS = 5 * SECOND
"""Longest time between two questions about one fire, if the turn of each comes in that time."""

PAUSE_FRACTION = 8
"""The next question is asked after this part of the time that a fire has waited."""


class Verdict(Enum):
    """The decision on a fire that was blocked, once something was found out about the fire before."""

    WAIT = "wait"
    GO_AHEAD = "go ahead"
    SKIPPED = "skipped"
    """It was dropped, with all that is due."""


# -- questions -----------------------------------------------------------------------------------------------


def block(state: EngineState, held: Held, flight: Flight) -> bool:
    """Block a schedule that is due if its fire before may be unfinished, and ask about that; return whether it is.

    One that had to wait fires for the latest fire time that is due.
    """
    policies, before = held.terms.policies, flight.before
    if policies.overlap is Overlap.ALLOW:
        return False
    if before is None:
        before = _fire_before(state, held)
    if before is None:
        return False
    if before.is_over:
        if before.waited and held.waited_fire != held.fire_time:
            _choose_latest(state, held)
        elif before.waited and held.latest_to_send(state.now) > held.fire_time:
            before.waited = False  # it was chosen and not stored: what came due since did not wait for it
        return False
    flight.before = before
    state.enter(held, Stage.BLOCKED)
    if before.waited or held.last_unfinished >= before.through:
        _ask_in_turn(state, held, flight, before)
    elif before.question is None:
        _ask(state, held, before)
    return True


def ask_again(state: EngineState, held: Held, flight: Flight) -> None:
    """Ask again about a fire before, if its turn has come, or its time is over."""
    before = flight.before
    assert before is not None, "it waits for the fire before"
    if before.has_turn or _is_timed_out(held, before, state.now):
        before.has_turn = False
        _ask(state, held, before)
    else:
        _ask_in_turn(state, held, flight, before)


def answered(state: EngineState, held: Held, request: CheckFinished, answer: FinishAnswer) -> Verdict:
    """Act on what was found out about the fire before, and return what becomes of the fire that is due."""
    flight = held.flight
    before = None if flight is None else flight.before
    if flight is None or before is None or before.question != request:
        return Verdict.WAIT
    before.question = None
    if isinstance(answer, Unanswered):
        return _unanswered(state, held, flight, before, answer)
    before.failures = 0
    _note_fault(state, held, "" if answer.given_up else answer.fault)
    if answer.given_up or not answer.unfinished:
        held.last_unfinished = 0
        return _end(state, held, before)
    held.last_unfinished = before.through
    before.after, before.stored_at = max(before.after, answer.unfinished - 1), answer.stored_at or before.stored_at
    if _is_timed_out(held, before, state.now):
        return _time_out(state, held, before, answer.unfinished)
    if held.terms.policies.overlap is Overlap.SKIP:
        _skip(state, held)
        return Verdict.SKIPPED
    _wait(state, held, flight, before, state.now + _pause(before, state.now))
    return Verdict.WAIT


def answered_too_soon(flight: Flight, request: CheckFinished) -> None:
    """Note that a schedule may ask again: its content is being fetched again, so it cannot act on this answer."""
    if flight.before is not None and flight.before.question == request:
        flight.before.question = None


# -- asking --------------------------------------------------------------------------------------------------


def _fire_before(state: EngineState, held: Held) -> FireBefore | None:
    """Return the last fire of a schedule before the one that is due; None if it is certain that there is none."""
    if held.previous_sequence:
        last = held.previous_sequence
        return FireBefore(state.now, last - 1, last, held.previous_stored_at)
    if state.ownership.reads_all and held.previous_fire is None:
        return None
    through = state.read_at_start
    if through is None or through <= held.sequence:
        return None
    earlier = held.latest_passed(held.stored_at, held.fire_time - 1)
    stored_at = held.stored_at if earlier is None else held.send_time_of(earlier)
    return FireBefore(state.now, held.sequence, through, stored_at)


def _ask(state: EngineState, held: Held, before: FireBefore) -> None:
    target = ">" if state.stored_over.moves.moves(held.terms.target) else held.terms.target
    consumer = held.terms.policies.consumer if state.rules.keeps_acknowledged else None
    request = CheckFinished(held.subject, held.sequence, target, before.after, before.through, consumer)
    before.question, before.asked_at = request, state.now
    state.emit(request)


def _ask_in_turn(state: EngineState, held: Held, flight: Flight, before: FireBefore) -> None:
    """Ask when every earlier question about an unfinished fire had its turn."""
    if before.question is not None:
        return
    turn = max(state.next_question_at, state.now)
    state.next_question_at = turn + QUESTION_SPACING_NS
    if turn > state.now:
        before.has_turn = True
        _wait(state, held, flight, before, turn)
    else:
        _ask(state, held, before)


def _wait(state: EngineState, held: Held, flight: Flight, before: FireBefore, until: int) -> None:
    """Wait until an instant (ns), or until the fire before is timed out, and keep no content meanwhile."""
    before.waited = True
    flight.content = flight.source = flight.fire = None
    state.contents.drop(flight)
    state.blocked[held.sequence] = held
    timeout = held.terms.policies.timeout
    state.schedules.wake(held, until if timeout is None else min(until, before.stored_at + timeout))


# -- what follows --------------------------------------------------------------------------------------------


def _end(state: EngineState, held: Held, before: FireBefore) -> Verdict:
    """Let the schedule fire: the fire before is finished, or counts as finished."""
    before.is_over = True
    state.blocked.pop(held.sequence, None)
    return Verdict.GO_AHEAD


def _time_out(state: EngineState, held: Held, before: FireBefore, unfinished: int, reason: str = "") -> Verdict:
    times = before.stored_at, held.fire_time
    state.emit(Report(FireTimedOut(held.subject, held.sequence, unfinished, *times, reason)))
    return _end(state, held, before)


def _skip(state: EngineState, held: Held) -> None:
    """Drop everything that is due."""
    first = held.fire_time
    held.fire_time = held.latest_to_send(state.now)
    count = _report_skipped(state, held, first, held.fire_time)
    policy = f"X-Overlap: {held.terms.policies.overlap}"
    note_dropped(state, held, first, held.fire_time, count, policy)


def _choose_latest(state: EngineState, held: Held) -> None:
    """Let the latest fire that is due stand for all that waited."""
    first, latest = held.fire_time, held.latest_to_send(state.now)
    if latest > first:
        held.fire_time = latest
        _report_skipped(state, held, first, latest - 1)
    held.waited_fire = held.fire_time


def _report_skipped(state: EngineState, held: Held, first: int, until: int) -> int:
    """Report that the fires from `first` to `until` (ns) are skipped; returns how many these are."""
    count = max(held.count(first - 1, until), 1)
    held.dropped += count
    overlap = held.terms.policies.overlap
    state.emit(Report(FiresSkipped(held.subject, held.sequence, first, count, overlap)))
    return count


def _unanswered(state: EngineState, held: Held, flight: Flight, before: FireBefore, answer: Unanswered) -> Verdict:
    if answer.after > before.after:
        before.after = answer.after
    else:
        before.failures += 1
    if _is_timed_out(held, before, state.now):
        return _time_out(state, held, before, before.through, answer.reason)
    if answer.denied or before.failures == MAX_SILENT_FAILURES:
        _note_fault(state, held, answer.reason)
    _wait(state, held, flight, before, state.now + min(_pause(before, state.now), UNKNOWN_BACK_OFF_LIMIT_NS))
    return Verdict.WAIT


def _note_fault(state: EngineState, held: Held, fault: str) -> None:
    """Report once why nothing can show that the fire before is finished."""
    is_news, held.overlap_fault = fault != held.overlap_fault, fault
    if fault and is_news:
        state.emit(Report(FinishUnknown(held.subject, held.sequence, held.fire_time, fault)))


def _is_timed_out(held: Held, before: FireBefore, now: int) -> bool:
    timeout = held.terms.policies.timeout
    return timeout is not None and now >= before.stored_at + timeout


def _pause(before: FireBefore, now: int) -> int:
    """Return how long (ns) to wait before the next question about one fire."""
    return min(max((now - before.since) // PAUSE_FRACTION, FIRST_PAUSE_NS), LONGEST_PAUSE_NS)
