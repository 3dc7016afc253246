"""Bugs that are planted on purpose, each to be found by the checker of its promise.

Its rule: a bug is one small change of the product that could be made by mistake, undone when the block ends.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from nats_scheduler.engine.firing import building, sending
from nats_scheduler.engine.firing.course import Course
from nats_scheduler.engine.firing.outcomes import Outcomes
from nats_scheduler.engine.firing.sending import Firing
from nats_scheduler.engine.holding.flight import Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import CheckpointLoaded, ContentRead, PublishConcluded, Stored
from nats_scheduler.engine.reading.intake import Intake
from nats_scheduler.engine.removing.expiry import Expiry
from nats_scheduler.engine.removing.purges import Purges
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message import generated
from nats_scheduler.message.definition import Terms
from nats_scheduler.message.generated import fire_block
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.runtime import wakes
from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.schedule.patterns import Every, Pattern
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.harness.blocks import with_identity
from tests.simulation.planted_answers import (
    absence_believed_of_anybody,
    blocked_identities_forgotten,
    content_read_past_the_leader,
    duplicate_believed,
    ended_by_what_lands,
    forgery_believed,
    identity_in_process_given_up_unproven,
    identity_in_process_waited_for,
    identity_waited_for_at_any_time,
    in_flight_sent_again,
    paused_taken_for_what_landed,
    resumed_schedule_ignored,
    schedule_expected_under_what_landed,
)
from tests.simulation.planted_calendars import (
    days_of_calendars_forgotten,
    edit_ends_schedules,
    edits_not_followed,
    missing_calendar_taken_for_an_empty_one,
    outdated_days_taken_for_known,
    past_schedule_settled,
)
from tests.simulation.planted_division import (
    Changes,
    dead_holders_never_buried,
    idle_holders_fought,
    record_taken_for_written,
    shards_never_let_go,
)
from tests.simulation.planted_elsewhere import (
    fire_elsewhere_not_looked_for,
    fire_of_a_holder_before_not_looked_for,
    found_elsewhere_ignored,
    guard_believed_elsewhere,
)
from tests.simulation.planted_far import far_schedules_left_far, far_schedules_not_found_by_subject
from tests.simulation.planted_policies import (
    backlog_collapsed,
    backlog_forgotten_at_a_start,
    backlog_unbounded,
    delayed_fire_settled,
    dropped_counted_wrong,
    end_forgotten,
    finished_fire_not_noticed,
    fire_before_forgotten,
    fire_before_ignored,
    first_fire_taken_for_the_one_before,
    grace_forgotten,
    grid_of_the_anchor_forgotten,
    jitter_forgotten,
    jitter_of_the_instance,
    last_fire_ends_nothing,
    limit_counted_wrong,
    missed_fires_not_skipped,
    question_asked_once,
    start_forgotten,
    waiting_fire_settled,
)
from tests.simulation.planted_runtime import (
    checkpoint_of_all_shards_believed,
    duplicate_not_read,
    expired_message_not_removed,
    last_fire_of_a_burst_not_sent,
    purge_reported_and_not_sent,
    waiting_read_forgotten,
    woken_late,
)


def identity_without_fire_time() -> Changes:
    """Give all fires of a schedule one identity."""
    yield building, "fire_identity", lambda schedule, sequence, *_rest: fire_identity(schedule, sequence, 0)


def retry_with_a_new_identity() -> Changes:
    """Give each attempt an identity of its own, and no guard."""
    numbers = count(1)
    original = Firing.send

    def send(self: Firing, held: Held, flight: Any, fire: Any, now: int) -> None:
        block = with_identity(fire.block.replace(b"Nats-Msg-Id", b"Was-Msg-Id"), f"attempt {next(numbers)}")
        copy = type(fire)(fire.schedule, fire.sequence, fire.fire_time, fire.next_fire, fire.target, block, fire.body)
        original(self, held, flight, copy, now)

    yield Firing, "send", send


def advance_before_stored() -> Changes:
    """Treat an unknown outcome as stored."""
    original = Outcomes.concluded

    def concluded(self: Outcomes, conclusion: PublishConcluded, now: int) -> None:
        original(self, PublishConcluded(conclusion.fire, Stored(0)), now)

    yield Outcomes, "concluded", concluded


def purge_without_a_sequence() -> Changes:
    """Purge everything on the subject of a schedule that is done."""
    original = MemoryStream.purge
    yield MemoryStream, "purge", lambda self, matching=">", _through=None: original(self, matching)


def checkpoint_that_settles_too_much() -> Changes:
    """Report everything as settled up to this moment, whatever is in flight."""

    def checkpoint(self: StreamEngine, now: int) -> CheckpointLoaded:
        return CheckpointLoaded(now + 3_000 * MILLISECOND, self.last_read)

    yield StreamEngine, "checkpoint", checkpoint


def replacement_ignored() -> Changes:
    """Keep the first version, and take every read for it."""
    accept, content_read = Intake._accept, Course.content_read

    def first_only(self: Intake, definition: Any, message: Any, expires: int | None, now: int) -> None:
        if self._roster.on(message.subject) is None:
            accept(self, definition, message, expires, now)

    def believed(self: Course, read: ContentRead, now: int) -> Any:
        if read.message is not None and read.message.sequence > read.sequence:
            read = ContentRead(read.schedule, read.sequence, read.message._replace(sequence=read.sequence), read.source)
        return content_read(self, read, now)

    yield Intake, "_accept", first_only
    yield Course, "content_read", believed
    yield building, "guard_headers", lambda _schedule, _sequence: ()


def no_guard() -> Changes:
    """Send fires that the server cannot refuse for their schedule's end."""
    yield building, "guard_headers", lambda _schedule, _sequence: ()


def rights_lent() -> Changes:
    """Keep the headers by which a server does more than to store the fire."""
    yield generated, "without_lent", lambda block: block


def early() -> Changes:
    """Fire as soon as the content was read, within a tenth of a second of the due time."""
    make, wake = Firing.make_ready, Course.woken

    def make_ready(self: Firing, held: Held, flight: Any) -> None:
        make(self, held, flight)
        self._lifecycle.roster.wake(held, held.send_time - 100 * MILLISECOND)

    def woken(self: Course, held: Held, now: int) -> None:
        flight = held.flight
        if flight is not None and flight.stage is Stage.READY and flight.fire is not None:
            self.firing.publish(held, flight, held.fire_time, now)
        else:
            wake(self, held, now)

    yield Firing, "make_ready", make_ready
    yield Course, "woken", woken


def every_missed_fire_made_up() -> Changes:
    """Send all missed fires one after the other, instead of the latest."""
    yield Held, "due_fire", lambda self, _following, _now: self.fire_time


def next_fire_of_the_wrong_grid() -> Changes:
    """Write a next fire into the message that is a second off."""
    original = Every.format
    yield Every, "format", lambda self, instant: original(self, instant + 1_000 * MILLISECOND)


def never_open_again() -> Changes:
    """Stay closed once contact was lost."""
    original = StreamEngine._caught_up

    def caught_up(self: StreamEngine, given: Any, now: int) -> None:
        original(self, given, now)
        if self.last_read and self.fires_stored:
            self._progress.is_draining = True

    yield StreamEngine, "_caught_up", caught_up


def old_versions_left_over() -> Changes:
    """Try only once to purge old versions."""
    yield Purges, "_keep_old_versions", lambda _self, _conclusion, _now: None


def old_knowledge_trusted() -> Changes:
    """Do not re-check anything after the process stalled."""
    yield wakes, "CONTACT_STANDSTILL_LIMIT_NS", 1 << 100


def ttl_of_fires_forgotten() -> Changes:
    """Let fires live for ever, whatever their schedule says."""

    def forgetful(base: bytes | None, pattern: Pattern, terms: Terms, *rest: Any) -> bytes | None:
        return fire_block(base, pattern, terms._replace(ttl=""), *rest)

    yield building, "fire_block", forgetful


def source_ignored() -> Changes:
    """Send the schedule's own message although its source holds a message."""
    original = building.assembled

    def without_source(held: Held, content: Any, _source: Any, *rest: Any, **more: Any) -> Any:
        return original(held, content, None, *rest, **more)

    yield sending, "assembled", without_source


def sampled_early() -> Changes:
    """Sample a source as long before the due time as other content is read."""
    yield Course, "_ahead", lambda self, _held: self._look_ahead


def fired_after_expiry() -> Changes:
    """Ignore the TTL of a schedule if the server does not act on TTLs."""
    original = Intake._accept
    yield (
        Intake,
        "_accept",
        lambda self, definition, message, _expires, now: original(self, definition, message, None, now),
    )


def nothing_expires() -> Changes:
    """Discard the expired messages that are to be removed if the server does not act on TTLs."""

    def remove_due(self: Expiry, now: int, _is_needed: Callable[[int], bool]) -> None:
        for agenda in self._agendas:
            agenda.discard(now)

    yield Expiry, "remove_due", remove_due


MENDED: dict[Callable[[], Changes], tuple[str, int]] = {
    checkpoint_that_settles_too_much: ("Complete", 52),
    old_versions_left_over: ("Gone", 152),
    content_read_past_the_leader: ("Complete", 32),
    idle_holders_fought: ("Divided", 14),
    checkpoint_of_all_shards_believed: ("Complete", 294),
    delayed_fire_settled: ("Complete", 64),
    question_asked_once: ("Complete", 20204),
    past_schedule_settled: ("Complete", 5404),
    outdated_days_taken_for_known: ("Complete", 40706),
    identity_in_process_waited_for: ("Live", 66),
    in_flight_sent_again: ("Unique", 94),
}
"""Bugs that the product once had, or that few seeds show; the promise that each breaks, and a seed that shows it."""

BUGS: dict[Callable[[], Changes], tuple[str, int]] = {
    identity_without_fire_time: ("Complete", 10),
    retry_with_a_new_identity: ("Unique", 5),
    advance_before_stored: ("Complete", 100),
    purge_without_a_sequence: ("Complete", 10),
    replacement_ignored: ("Latest", 5),
    no_guard: ("Gone", 30),
    far_schedules_left_far: ("Live", 10),
    far_schedules_not_found_by_subject: ("Gone", 60),
    rights_lent: ("Faithful", 10),
    early: ("Timely", 5),
    every_missed_fire_made_up: ("Unique", 30),
    next_fire_of_the_wrong_grid: ("Faithful", 5),
    never_open_again: ("Live", 30),
    record_taken_for_written: ("Divided", 30),
    shards_never_let_go: ("Divided", 20),
    dead_holders_never_buried: ("Live", 60),
    ttl_of_fires_forgotten: ("Faithful", 10),
    source_ignored: ("Faithful", 10),
    sampled_early: ("Faithful", 60),
    fired_after_expiry: ("Gone", 20),
    nothing_expires: ("Gone", 60),
    absence_believed_of_anybody: ("Complete", 60),
    ended_by_what_lands: ("Complete", 40),
    schedule_expected_under_what_landed: ("Complete", 40),
    blocked_identities_forgotten: ("Complete", 100),
    forgery_believed: ("Complete", 60),
    duplicate_believed: ("Complete", 80),
    identity_waited_for_at_any_time: ("Complete", 60),
    identity_in_process_given_up_unproven: ("Unique", 100),
    last_fire_of_a_burst_not_sent: ("Complete", 20),
    duplicate_not_read: ("Complete", 30),
    purge_reported_and_not_sent: ("Gone", 5),
    expired_message_not_removed: ("Gone", 20),
    waiting_read_forgotten: ("Complete", 20),
    woken_late: ("Live", 10),
    start_forgotten: ("Unique", 40),
    end_forgotten: ("Faithful", 300),
    limit_counted_wrong: ("Unique", 20),
    grid_of_the_anchor_forgotten: ("Complete", 20),
    last_fire_ends_nothing: ("Gone", 20),
    jitter_of_the_instance: ("Timely", 20),
    jitter_forgotten: ("Timely", 20),
    backlog_collapsed: ("Complete", 60),
    backlog_forgotten_at_a_start: ("Complete", 60),
    backlog_unbounded: ("Unique", 100),
    days_of_calendars_forgotten: ("Unique", 100),
    edits_not_followed: ("Complete", 60),
    missing_calendar_taken_for_an_empty_one: ("Unique", 60),
    edit_ends_schedules: ("Complete", 60),
    missed_fires_not_skipped: ("Unique", 60),
    grace_forgotten: ("Complete", 60),
    fire_before_forgotten: ("Faithful", 40),
    dropped_counted_wrong: ("Faithful", 20),
    fire_elsewhere_not_looked_for: ("Unique", 150),
    fire_of_a_holder_before_not_looked_for: ("Unique", 150),
    found_elsewhere_ignored: ("Unique", 150),
    guard_believed_elsewhere: ("Gone", 60),
    fire_before_ignored: ("Overlap", 20),
    first_fire_taken_for_the_one_before: ("Overlap", 20),
    waiting_fire_settled: ("Complete", 100),
    finished_fire_not_noticed: ("Complete", 20),
    paused_taken_for_what_landed: ("Latest", 60),
    resumed_schedule_ignored: ("Complete", 20),
}
"""Each bug, the promise that it breaks, and the number of seeds within which that is seen."""

LIKELY_SEEDS = {
    fired_after_expiry: 100,
    retry_with_a_new_identity: 7,
    end_forgotten: 173,
    waiting_fire_settled: 1061,
    first_fire_taken_for_the_one_before: 83,
    no_guard: 12,
    far_schedules_left_far: 5,
    far_schedules_not_found_by_subject: 113,
    record_taken_for_written: 26,
    dead_holders_never_buried: 128,
    sampled_early: 49,
    blocked_identities_forgotten: 51,
    duplicate_believed: 66,
    duplicate_not_read: 13,
    identity_waited_for_at_any_time: 66,
    identity_in_process_given_up_unproven: 52,
    grid_of_the_anchor_forgotten: 29,
    backlog_collapsed: 299,
    backlog_forgotten_at_a_start: 299,
    backlog_unbounded: 373,
    days_of_calendars_forgotten: 8,
    edits_not_followed: 83,
    missing_calendar_taken_for_an_empty_one: 201,
    missed_fires_not_skipped: 144,
    grace_forgotten: 520,
    fire_before_forgotten: 33,
    fire_elsewhere_not_looked_for: 116,
    fire_of_a_holder_before_not_looked_for: 116,
    found_elsewhere_ignored: 116,
    guard_believed_elsewhere: 48,
}
"""The seeds that are tried first, because they showed the bug the last time; it may be found in others."""


@contextmanager
def planted(bug: Callable[[], Changes]) -> Iterator[None]:
    """Plant a bug while the block runs."""
    undone = []
    try:
        for place, name, changed in list(bug()):
            undone.append((place, name, getattr(place, name)))
            setattr(place, name, changed)
        yield
    finally:
        for place, name, original in reversed(undone):
            setattr(place, name, original)
