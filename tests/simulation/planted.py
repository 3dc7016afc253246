"""Bugs that are planted on purpose: the promise that each breaks, and a seed that shows it.

Its rule: a bug is one small change of the product that could be made by mistake, undone when the block ends. It is
entered in `BUGS` by its name; those that are seen in worlds made by hand stand beside these worlds.
Limit: a checkpoint that is missing or claims too little breaks no promise here, and must not, but where each missed
fire is owed: an instance that starts without one reads what the stream holds, and the server drops what is repeated
within the duplicate window. So nearly all that are planted claim too much; `tests/runtime/test_checkpoints.py` holds
the rest.
A record that was refused and is not looked up is shown by no seed, and stands in `tests/engine/test_owners.py`; nor are
fires with a deadline that a new owner does not look at anew (`tests/engine/test_done.py`).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from nats_scheduler.engine import restart, stream
from nats_scheduler.engine.actions import PublishFires, WakeAt
from nats_scheduler.engine.fire import ReadDuplicate
from nats_scheduler.engine.firing import (
    advancing,
    answers,
    blocking,
    building,
    confirming,
    identities,
    purging,
    sending,
    timing,
)
from nats_scheduler.engine.firing.machine import Event
from nats_scheduler.engine.firing.purging import LEFT_TO_OWNER_NS
from nats_scheduler.engine.holding import deadlines, roster
from nats_scheduler.engine.holding.contents import Contents
from nats_scheduler.engine.holding.deadlines import DONE_WITHIN, Deadlines, Watched
from nats_scheduler.engine.holding.expiry import Expiry
from nats_scheduler.engine.holding.flight import Stage
from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.inactive import Inactive
from nats_scheduler.engine.holding.ownership import UNFIRED_LIMIT_NS, Ownership
from nats_scheduler.engine.holding.proposals import Proposals
from nats_scheduler.engine.holding.purges import Purges
from nats_scheduler.engine.holding.state import StreamState
from nats_scheduler.engine.holding.table import Row, Table
from nats_scheduler.engine.inputs import (
    Checkpoint,
    ContentRead,
    FinishChecked,
    PublishConcluded,
    PurgeConcluded,
    Stored,
)
from nats_scheduler.engine.ownership import owners
from nats_scheduler.engine.ownership.ability import Ability
from nats_scheduler.engine.ownership.order import Order, Stance, order_of
from nats_scheduler.engine.ownership.owners import Owners
from nats_scheduler.engine.ownership.takeover import Takeover, _had_read
from nats_scheduler.engine.receiving import intake
from nats_scheduler.engine.receiving.calendars import Calendars
from nats_scheduler.engine.receiving.intake import Intake
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message import definition, generated
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.policies import Kept
from nats_scheduler.message.timetable import Timetable, jittered
from nats_scheduler.runtime import continuity
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.instances import Instances
from nats_scheduler.runtime.schedule_file import StreamRows
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.calendars import Calendar, DayRows, KnownCalendars
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.patterns import Every
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.harness.blocks import with_identity
from tests.harness.replicated import LaggingContact, ReplicatedStream
from tests.judge.history import NEVER
from tests.simulation.scenario import Scenario, drawn, with_files, with_roll_ups, with_standbys, with_unable

Changes = Callable[[], Iterable[tuple[Any, str, Any]]]
"""Gives what is changed: a module or class, the name of an attribute, and what is in its place."""


class Bug(NamedTuple):
    """A bug of the product."""

    promise: str
    """The promise that it breaks."""
    seed: int
    """A seed that shows it, and takes little time."""
    changes: Changes
    draw: Callable[[int], Scenario] = drawn


@contextmanager
def planted(changes: Changes) -> Iterator[None]:
    """Plant a bug while the block runs."""
    undone = []
    try:
        for place, name, changed in list(changes()):
            undone.append((place, name, getattr(place, name)))
            setattr(place, name, changed)
        yield
    finally:
        for place, name, original in reversed(undone):
            setattr(place, name, original)


def instead(place: Any, name: str, changed: Any) -> Changes:
    """Put something in the place of an attribute."""
    return lambda: [(place, name, changed)]


def around(place: Any, name: str, changed: Callable[..., Any]) -> Changes:
    """Put a function in the place of another one, which it gets as its first argument."""

    def changes() -> Iterable[tuple[Any, str, Any]]:
        original = getattr(place, name)
        yield place, name, lambda *given, **named: changed(original, *given, **named)

    return changes


def together(*parts: Changes) -> Changes:
    """Make several changes."""
    return lambda: [change for part in parts for change in part()]


def taken_for_unfired(state: StreamState, held: Held) -> bool:
    since = max(held.send_time, state.ownership.in_contact_since) + UNFIRED_LIMIT_NS
    if state.now >= since:
        state.ownership.blame(held)
        since = held.send_time + LEFT_TO_OWNER_NS
    state.look_later(held, since)
    return True


removal_held_against_the_owner = instead(timing, "wait_for_owner", taken_for_unfired)
"""A schedule that was removed without a visible request counts as one that its owner does not fire."""

in_flight_sent_again = instead(Proposals, "is_unconcluded", lambda *_, **_how: False)
"""A fire is sent again although the leader may have accepted it before, and not know of it any more."""

identity_in_process_waited_for = instead(identities, "try_next", lambda *_: False)
"""An identity in process is waited for, although nothing can be stored under it any more."""

no_guard = instead(building, "guard_headers", lambda *_: ())


def through_one_more(original: Any, self: Purges, target: str, through: int, **how: Any) -> None:
    original(self, target, through + 1, **how)


def reading_from(last: Callable[[ReplicatedStream, str], Any]) -> Changes:
    """Have what a leader reads of a schedule found by a function of its stream."""

    def reading(original: Any, self: LaggingContact, request: Any) -> Any:
        def do() -> ContentRead:
            source = self._stream.last(request.source) if request.source else None
            return ContentRead(request.schedule, request.sequence, last(self._stream, request.schedule), source)

        return original(self, request)._replace(do=do)

    return around(LaggingContact, "_reading", reading)


def without_rows(original: Any, self: StreamRows) -> None:
    """Write a document although the objects that changed are not written."""
    if self.engine is not None:
        self.engine.held._changed.clear()
    original(self)


def row_as_it_is_looked_at(original: Any, held: Held) -> Row:
    row: Row = original(held)
    return row if held.flight is not None or held.wake == NO_WAKE else row._replace(wake=held.wake)


def without_bound(bound: str) -> Changes:
    """Leave a bound out of each pattern."""
    left_out: dict[str, Any] = {bound: None}

    def bounded(original: Any, pattern: Any, policies: Any) -> Any:
        return original(pattern, replace(policies, bounds=replace(policies.bounds, **left_out)))

    return around(definition, "with_policies", bounded)


def without_what_is_blocked(original: Any, self: Takeover, *given: Any) -> Checkpoint:
    found: Checkpoint = original(self, *given)
    return replace(found, unsettled=found.unsettled - self._state.blocked.keys())


BUGS = {
    # -- fires
    "identity_without_fire_time": Bug(
        "Complete",
        8,
        instead(building, "fire_identity", lambda subject, sequence, *_: fire_identity(subject, sequence, 0)),
    ),
    "no_guard": Bug("Gone", 29, no_guard),
    "rights_lent": Bug("Faithful", 11, instead(generated, "without_lent", lambda block: block)),
    "every_missed_fire_made_up": Bug("Unique", 9, instead(Held, "due_fire", lambda self, *_: self.fire_time)),
    "next_fire_of_the_wrong_grid": Bug(
        "Faithful", 0, around(Every, "format", lambda original, self, instant: original(self, instant + SECOND))
    ),
    "waiting_read_forgotten": Bug("Complete", 12, instead(Contents, "granted", lambda _self: iter(()))),
    "half_of_the_rows_not_woken": Bug(
        "Live", 5, around(Table, "woken", lambda original, *given: original(*given)[::2])
    ),
    # -- removals, TTLs and sources
    "old_versions_left_over": Bug("Gone", 88, instead(Purges, "keep_old_versions", lambda *_: None)),
    "expired_message_not_removed": Bug("Gone", 11, instead(StreamDriver, "_remove", lambda *_: None)),
    "sampled_early": Bug("Faithful", 49, instead(timing, "ahead_of", lambda state, _held: state.longest_ahead)),
    # -- the answers of a server, and other clients
    "absence_believed_of_anybody": Bug("Complete", 14, reading_from(ReplicatedStream.last_applied)),
    "content_read_past_the_leader": Bug("Complete", 14, reading_from(MemoryStream.last)),
    "blocked_identities_forgotten": Bug(
        "Complete",
        66,
        together(instead(continuity, "is_replicated", lambda _state: False), identity_in_process_waited_for),
    ),
    "forgery_believed": Bug("Complete", 3, instead(confirming, "fault_of_generated", lambda *_, **_more: "")),
    "duplicate_believed": Bug("Complete", 66, instead(answers, "fault_of_duplicate", lambda *_, **_more: "")),
    "identity_waited_for_at_any_time": Bug(
        "Complete", 66, instead(identities, "free_soon", lambda read, window, _now: read.stored_by + window)
    ),
    "in_flight_sent_again": Bug("Unique", 94, in_flight_sent_again),
    "identity_in_process_waited_for": Bug("Live", 66, identity_in_process_waited_for),
    # -- targets in another stream
    "fire_elsewhere_not_looked_for": Bug("Unique", 116, instead(sending, "_is_to_be_looked_for", lambda *_: False)),
    "fire_of_an_owner_before_not_looked_for": Bug(
        "Unique",
        116,
        together(instead(Ownership, "may_be_stored", lambda *_: False), instead(sending, "UNLOOKED_LIMIT_NS", NEVER)),
    ),
    "guard_believed_elsewhere": Bug(
        "Gone",
        48,
        instead(StreamState, "is_guarded", lambda self, held: self.limits.guard and not self.landed.covers(held)),
    ),
    "found_elsewhere_ignored": Bug(
        "Unique", 116, instead(answers, "latest_found", lambda _state, _held, look: (look.first, None))
    ),
    # -- bounds, jitter, missed fires and overlaps
    "start_forgotten": Bug("Unique", 4, without_bound("start")),
    "end_forgotten": Bug("Faithful", 173, without_bound("end")),
    "grid_of_the_anchor_forgotten": Bug("Complete", 29, instead(Bounded, "_grid", lambda _self, stored_at: stored_at)),
    "last_fire_ends_nothing": Bug(
        "Gone", 4, instead(Timetable, "ends_by_itself", property(lambda self: not self.repeats))
    ),
    "jitter_forgotten": Bug("Timely", 3, instead(Held, "send_time_of", lambda _self, fire_time: fire_time)),
    "dropped_counted_wrong": Bug(
        "Faithful", 15, around(Held, "dropped_before", lambda original, *given: original(*given) + 1)
    ),
    "fire_before_ignored": Bug("Overlap", 24, instead(blocking, "block", lambda *_: False)),
    "waiting_fire_settled": Bug("Complete", 3514, around(Takeover, "checkpoint", without_what_is_blocked)),
    # -- fires that are to be done within a time
    "fires_of_others_not_watched": Bug(
        "Done",
        63,
        around(
            confirming,
            "confirm",
            lambda original, state, generated, message, **how: original(
                state, generated, message._replace(block=message.block.replace(DONE_WITHIN, b"X")), **how
            ),
        ),
        with_files,
    ),
    "deadline_settled_at_once": Bug("Done", 4, instead(deadlines, "SETTLED_NS", -NEVER), with_files),
    # -- calendars
    "edit_ends_schedules": Bug("Complete", 31, instead(Held, "over_at", property(lambda _self: 0))),
    # -- checkpoints, and the owner of a stream
    "checkpoint_that_settles_too_much": Bug(
        "Complete",
        31,
        instead(StreamEngine, "checkpoint", lambda self, now: Checkpoint(now + 3 * SECOND, self.last_read)),
    ),
    "takeover_without_the_checkpoint": Bug(
        "Complete",
        180,
        around(
            Takeover,
            "owner_changed",
            lambda original, self, change, now: original(self, replace(change, checkpoint=None), now),
        ),
    ),
    "dead_owner_not_replaced": Bug(
        "Live",
        72,
        together(
            instead(Owners, "discard_gone", lambda *_: {}),
            instead(Owners, "judge_owner", lambda *_: None),  # it would repair the damage after some seconds
        ),
    ),
    "idle_owner_not_passed_over": Bug("Live", 1, instead(Owners, "judge_owner", lambda *_: None), with_unable),
    "unable_owner_not_replaced": Bug(
        "Live",
        1,
        together(
            instead(Ability, "denied", lambda *_: False),
            instead(Owners, "judge_owner", lambda *_: None),  # it would be replaced as an idle one, later
        ),
        with_unable,
    ),
    "stale_heartbeats_believed": Bug(
        "Live",
        11,
        together(
            instead(owners, "STALE_HEARTBEAT_NS", NEVER),
            instead(Owners, "able", lambda _self, keys, _now: frozenset(keys)),
        ),
        with_unable,
    ),
    # -- files
    "document_of_rows_that_are_not_written": Bug(
        "Complete",
        0,
        around(StreamRows, "write_now", lambda original, self: without_rows(original, self)),
        with_files,
    ),
    "histories_not_in_rows": Bug("Overlap", 28, instead(roster, "read_history", lambda *_: None), with_files),
    "fire_time_of_edited_days_believed": Bug(
        "Complete", 3, instead(restart, "_forget_days", lambda _held: None), with_files
    ),
    "row_left_to_the_owner_woken_late": Bug(
        "Complete", 974, around(roster, "row_of", row_as_it_is_looked_at), with_files
    ),
    # -- roll-ups by purges; the next fire makes up for one that a crash prevented, so that few seeds show it
    "roll_up_forgotten": Bug("Faithful", 5, instead(Purges, "roll_up", lambda *_, **_how: None), with_roll_ups),
    "roll_up_of_the_fire_too": Bug("Complete", 1, around(Purges, "roll_up", through_one_more), with_roll_ups),
    "idle_owner_fought": Bug(
        "Owned", 166, together(removal_held_against_the_owner, instead(Ability, "has_claimed", lambda *_: False))
    ),
}
"""Each bug by its name; more are entered below."""


def breaks(
    promise: str, seed: int, place: Any, name: str, draw: Callable[[int], Scenario] = drawn
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as a bug: it is put in the place of another one, which it gets as its first argument."""

    def enter(changed: Callable[..., Any]) -> Callable[..., Any]:
        BUGS[changed.__name__] = Bug(promise, seed, around(place, name, changed), draw)
        return changed

    return enter


@breaks("Complete", 64, answers, "publish_concluded")
def advance_before_stored(original: Any, state: StreamState, given: PublishConcluded) -> None:
    """Treat an unknown outcome as stored."""
    original(state, PublishConcluded(given.fire, Stored(0)))


@breaks("Complete", 14, StreamDriver, "_publish")
def last_fire_of_a_burst_not_sent(original: Any, self: StreamDriver, request: PublishFires) -> None:
    """Send all fires of an action but the last one, if there are several."""
    original(self, PublishFires(request.fires[:-1]) if len(request.fires) > 1 else request)


@breaks("Live", 6, StreamDriver, "_wake_at")
def woken_late(original: Any, self: StreamDriver, given: WakeAt) -> None:
    """Wake an engine a second after the instant that it named."""
    original(self, WakeAt(given.instant + SECOND))


@breaks("Complete", 0, MemoryStream, "purge")
def purge_without_a_sequence(original: Any, self: MemoryStream, matching: str = ">", _through: object = None) -> Any:
    """Purge everything on the subject of a schedule that is done."""
    return original(self, matching)


@breaks("Faithful", 4, building, "fire_block")
def ttl_of_fires_forgotten(original: Any, base: Any, pattern: Any, terms: Any, *rest: Any) -> Any:
    """Let fires live for ever, whatever their schedule says."""
    return original(base, pattern, terms._replace(ttl=""), *rest)


@breaks("Gone", 100, Intake, "_accept")
def fired_after_expiry(original: Any, self: Intake, found: Any, message: Any, _expires: object, *rest: Any) -> None:
    """Ignore the TTL of a schedule if the server does not act on TTLs."""
    original(self, found, message, None, *rest)


@breaks("Faithful", 11, sending, "assembled")
def source_ignored(original: Any, held: Held, content: Any, _source: object, *rest: Any, **more: Any) -> Any:
    """Send the schedule's own message although its source holds a message."""
    return original(held, content, None, *rest, **more)


@breaks("Complete", 22, Inactive, "at")
def resumed_schedule_ignored(original: Any, self: Inactive, subject: str) -> Any:
    """Do not hold a schedule on whose subject there was a paused one."""
    return 1 << 60 if subject in self.paused else original(self, subject)


@breaks("Complete", 14, Intake, "_overwritten")
def ended_by_what_lands(original: Any, self: Intake, message: Any, *, has_landed: bool, now: int) -> None:
    """Let whatever comes onto the subject of a schedule end it."""
    original(self, message, has_landed=False, now=now)


@breaks("Complete", 14, sending, "assembled")
def schedule_expected_under_what_landed(original: Any, held: Held, *rest: Any, **more: Any) -> Any:
    """Have the guard expect the schedule itself, whatever has landed on it."""
    return original(held, *rest, **{**more, "last": held.sequence})


@breaks("Unique", 4, Bounded, "_limit")
def limit_counted_wrong(original: Any, self: Bounded) -> Any:
    """Let a limit leave one fire too many."""
    limit = original(self)
    return None if limit is None else limit + 1


@breaks("Faithful", 33, sending, "report_headers")
def fire_before_forgotten(original: Any, pattern: Any, due: int, _previous: object, missed: int) -> Any:
    """Report as if no fire was stored before."""
    return original(pattern, due, None, missed)


@breaks("Complete", 40706, Calendars, "read")
def outdated_days_taken_for_known(original: Any, self: Calendars, given: Any, now: int) -> None:
    """Act by the days that were read last as if no edit of them could be missed."""
    original(self, replace(given, is_followed=True), now)


ATTEMPTS = count(1)


@breaks("Unique", 7, sending, "send")
def retry_with_a_new_identity(original: Any, state: StreamState, held: Held, flight: Any, fire: Any) -> None:
    """Give each attempt an identity of its own, and no guard."""
    block = with_identity(fire.block.replace(b"Nats-Msg-Id", b"Was-Msg-Id"), f"attempt {next(ATTEMPTS)}")
    copy = type(fire)(fire.schedule, fire.sequence, fire.fire_time, fire.next_fire, fire.target, block, fire.body)
    original(state, held, flight, copy)


def first_only(original: Any, self: Intake, found: Any, message: Any, *rest: Any) -> None:
    if self._state.roster.on(message.subject) is None:
        original(self, found, message, *rest)


def any_content_believed(original: Any, state: StreamState, read: ContentRead) -> Any:
    if read.message is not None and read.message.sequence > read.sequence:
        read = ContentRead(read.schedule, read.sequence, read.message._replace(sequence=read.sequence), read.source)
    return original(state, read)


BUGS["replacement_ignored"] = Bug(
    "Latest",
    3,
    together(around(Intake, "_accept", first_only), around(answers, "content_read", any_content_believed), no_guard),
)


def ready_early(original: Any, state: StreamState, held: Held, flight: Any) -> None:
    original(state, held, flight)
    state.roster.wake(held, held.send_time - 100 * MILLISECOND)


def published_when_woken(original: Any, state: StreamState, held: Held, event: Event) -> None:
    flight = held.flight
    if flight is not None and flight.stage is Stage.READY and flight.fire is not None:
        sending.publish(state, held, flight, held.fire_time)
    else:
        original(state, held, event)


BUGS["early"] = Bug(
    "Timely", 4, together(around(sending, "make_ready", ready_early), around(stream, "happen", published_when_woken))
)


@breaks("Live", 16, StreamEngine, "_caught_up")
def never_open_again(original: Any, self: StreamEngine, given: Any, now: int) -> None:
    """Stay closed once contact was lost."""
    original(self, given, now)
    if self.last_read and self.fires_stored:
        self._state.progress.is_draining = True


@breaks("Gone", 11, Expiry, "remove_due")
def nothing_expires(_original: Any, self: Expiry, now: int, _is_needed: object) -> None:
    """Discard the expired messages that are to be removed if the server does not act on TTLs."""
    self._agenda.discard(now)


@breaks("Complete", 32, StreamDriver, "_ask")
def duplicate_not_read(original: Any, self: StreamDriver, question: Any) -> None:
    """Carry out no request to read the message that has the identity of a fire."""
    if not isinstance(question, ReadDuplicate):
        original(self, question)


@breaks("Gone", 0, StreamDriver, "_purge")
def purge_reported_and_not_sent(_original: Any, self: StreamDriver, request: Any) -> None:
    """Report each purge as done that the engine asks for."""
    self._inputs.add(PurgeConcluded(request.schedule, request.through))
    self._soon()


@breaks("Latest", 6, Intake, "_pause")
def paused_taken_for_what_landed(_original: Any, self: Intake, _paused: Any, message: Any, _expires: object) -> None:
    """Let a schedule live on under the message that pauses it."""
    held = self._state.roster.on(message.subject)
    if held is not None and held.sequence < message.sequence:
        answers.covered(self._state, held, message.sequence)


def given_up_unproven(original: Any, state: StreamState, held: Held, flight: Any, fire: Any) -> bool:
    found = flight.in_process
    if found is not None and found.fire is fire and state.now - found.since >= identities.IN_PROCESS_NS:
        found.is_applied, found.asked_at = True, state.now
    return bool(original(state, held, flight, fire))


BUGS["identity_in_process_given_up_unproven"] = Bug(
    "Unique", 76, together(in_flight_sent_again, around(identities, "try_next", given_up_unproven))
)


def jitter_of_the_instance() -> Iterable[tuple[Any, str, Any]]:
    """Let a jitter follow from the instance that holds the schedule, so that no two instances agree."""
    numbers = count(1)

    class HeldByOne(Held):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._number = next(numbers)

        def send_time_of(self, fire_time: int) -> int:
            return jittered(self, self.subject, self._number, self.terms.policies.jitter or 0, fire_time)

    yield intake, "Held", HeldByOne


BUGS["jitter_of_the_instance"] = Bug("Timely", 4, jitter_of_the_instance)


@breaks("Complete", 64, Takeover, "pass_over")
def delayed_fire_settled(_original: Any, self: Takeover, held: Held) -> bool:
    """Let a checkpoint settle each fire whose fire time has passed, whether or not it was sent."""
    settled = self._state.settled
    if held.fire_time > settled.through or not _had_read(settled, held) or held.sequence in settled.unsettled:
        return False
    if held.repeats:
        advancing.advance(self._state, held, held.next_fire(settled.through))
    else:
        purging.purge(self._state, held)
    return True


@breaks("Complete", 299, Held, "due_fire")
def backlog_collapsed(original: Any, held: Held, following: int | None, now: int) -> int | None:
    """Make up the latest missed fire of a schedule that asked for each."""
    chosen: int | None = original(held, following, now)
    is_all = held.terms.policies.missed.kept is Kept.ALL
    return held.latest_due(held.fire_time, now) or chosen if is_all and held.repeats else chosen


@breaks("Unique", 373, Held, "due_fire")
def backlog_unbounded(original: Any, held: Held, following: int | None, now: int) -> Any:
    """Make up each missed fire, whatever number bounds them."""
    return held.fire_time if held.terms.policies.missed.kept is Kept.ALL else original(held, following, now)


@breaks("Complete", 299, Takeover, "_begin_backlog")
def backlog_forgotten_at_a_start(_original: Any, _self: Takeover, held: Held, _settled: Checkpoint) -> None:
    """Owe the latest missed fire of a schedule that was read just now."""
    held.is_known = False


@breaks("Unique", 144, Held, "due_fire")
def missed_fires_not_skipped(original: Any, held: Held, following: int | None, now: int) -> Any:
    """Make up a fire that was to be skipped."""
    chosen = original(held, following, now)
    return held.fire_time if chosen is None else chosen


@breaks("Complete", 520, Held, "due_fire")
def grace_forgotten(original: Any, held: Held, following: int | None, now: int) -> Any:
    """Skip what is late at all."""
    chosen, is_skipped = original(held, following, now), held.terms.policies.missed.kept is Kept.SKIP
    return None if is_skipped and chosen is not None and now - held.send_time_of(chosen) > SECOND // 10 else chosen


@breaks("Done", 2, Deadlines, "_ask", with_files)
def acknowledgement_not_asked_for(original: Any, self: Deadlines, fire: Watched) -> None:
    """Ask whether a fire is stored, whatever its consumer has acknowledged."""
    fire.consumer = None
    original(self, fire)


@breaks("Overlap", 83, Held, "fire_is_stored")
def first_fire_taken_for_the_one_before(original: Any, self: Held, *stored: int) -> None:
    """Ask about the first fire of a schedule again and again, and not about the last one."""
    if self.previous_fire is None:
        original(self, *stored)


@breaks("Complete", 3, blocking, "answered")
def finished_fire_not_noticed(original: Any, state: StreamState, held: Held, request: Any, answer: Any) -> Any:
    """Take every fire that was asked about for unfinished."""
    if isinstance(answer, FinishChecked) and not answer.unfinished:
        answer = replace(answer, unfinished=request.through)
    return original(state, held, request, answer)


@breaks("Unique", 9, Bounded, "_excepted")
def days_of_calendars_forgotten(_original: Any, self: Bounded) -> Any:
    """Know all calendars, and leave out none of their days."""
    return (self.bounds.excepted,)


@breaks("Complete", 83, Calendars, "read")
def edits_not_followed(original: Any, self: Calendars, given: Any, now: int) -> None:
    """Take the calendars as they were when they were read first."""
    if not self.are_read:
        original(self, given, now)


@breaks("Unique", 201, KnownCalendars, "calendar")
def missing_calendar_taken_for_an_empty_one(_original: Any, self: KnownCalendars, name: str) -> Calendar:
    """Fire on each day as long as a calendar does not exist."""
    found = self.by_name.get(name)
    return found if isinstance(found, Calendar) else Calendar(name, DayRows())


@breaks("Owned", 14, StreamService, "own")
async def stream_never_let_go(original: Any, self: StreamService, is_owner: bool, *rest: Any) -> Any:
    """Continue to fire for a stream that the record gives to another instance."""
    return await original(self, is_owner or self.is_owner, *rest)


@breaks("Live", 3, Owners, "living", with_unable)
def recorded_owner_taken_for_alive(original: Any, self: Owners, key: str) -> list[str]:
    """Believe a record that names an instance which is not alive."""
    owner = self.record(key).owner
    return [owner] if owner and owner not in (self.me, *self._others) else list(original(self, key))


@breaks("Gone", 11, StreamEngine, "_owner_changed")
def expiry_dropped_at_a_takeover(original: Any, self: StreamEngine, given: Any, now: int) -> None:
    """Remove nothing of what was to expire before this instance was the owner."""
    expiry = self._state.expiry
    if expiry is not None and given.is_owner and not self.ownership.is_owner:
        expiry._agenda.clear()
    original(self, given, now)


@breaks("Complete", 3, Takeover, "owner_changed")
def due_while_standing_by_left(original: Any, self: Takeover, change: Any, now: int) -> None:
    """Do not look at what came due while another instance was the owner."""
    is_new = change.is_owner and not self._state.ownership.is_owner
    original(self, change, now)
    while is_new and self._state.roster.pop_woken(now, 1_000):
        pass


@breaks("Complete", 4, Order, "includes", with_standbys)
def gone_instances_not_replaced(
    original: Any, self: Order, me: str, key: str, mine: Stance, others: Any, now: int
) -> bool:
    """Begin to read a stream only in the first seconds of a process."""
    is_new = self._began_at is None or now - self._began_at < 2 * SECOND
    return (mine.reads or is_new) and bool(original(self, me, key, mine, others, now))


def left_at_once(original: Any, self: Order, me: str, key: str, mine: Stance, others: Any, now: int) -> bool:
    if not mine.reads:
        return bool(original(self, me, key, mine, others, now))
    return order_of(key, {*others, me}).index(me) < self.readers


def left_as_owner(_original: Any, self: Instances, key: str, *, is_reading: bool) -> bool:
    return self._owners.reads(key, self._clock.monotonic(), is_reading=is_reading)


# Either part of it alone is made up for by the other one.
BUGS["left_before_others_have_read"] = Bug(
    "Live",
    90,
    together(around(Order, "includes", left_at_once), around(Instances, "reads", left_as_owner)),
    with_standbys,
)


@breaks("Owned", 18, Order, "includes", with_standbys)
def never_left_again(original: Any, self: Order, me: str, key: str, mine: Stance, *rest: Any) -> bool:
    """Read a stream to the end that was begun."""
    return mine.reads or bool(original(self, me, key, mine, *rest))
