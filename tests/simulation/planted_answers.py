"""Bugs in what is believed of a server's answers and of other clients, planted on purpose.

Its rule: a bug is one small change of the product, undone when the block of `tests.simulation.planted` ends.
"""

from collections.abc import Callable
from typing import Any

from nats_scheduler.engine.fire import (
    Fire,
    ReadContent,
)
from nats_scheduler.engine.firing import building, outcomes, sending
from nats_scheduler.engine.firing.sending import Firing, Proposals
from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import ContentRead, Input
from nats_scheduler.engine.reading.inactive import Inactive
from nats_scheduler.engine.reading.intake import Intake
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime import continuity
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.harness.replicated import LaggingContact, ReplicatedStream
from tests.simulation.planted_division import Changes


def paused_taken_for_what_landed() -> Changes:
    """Let a schedule live on under the message that pauses it."""

    def pause(self: Intake, _paused: Any, message: StoredMessage, _expires: int | None) -> None:
        held = self._roster.on(message.subject)
        if held is not None and held.sequence < message.sequence:
            self._course.covered(held, message.sequence, message.stored_at)

    yield Intake, "_pause", pause


def resumed_schedule_ignored() -> Changes:
    """Do not hold a schedule on whose subject there was a paused one."""
    original = Inactive.at
    yield Inactive, "at", lambda self, subject: 1 << 60 if subject in self.paused else original(self, subject)


def absence_believed_of_anybody() -> Changes:
    """Treat a schedule as removed that the leader does not have yet."""
    yield LaggingContact, "_reading", _reading_from(ReplicatedStream.last_applied)


def content_read_past_the_leader() -> Changes:
    """Believe what the leader does not have yet: it refuses the fires, or their schedules are read without end."""
    yield LaggingContact, "_reading", _reading_from(MemoryStream.last)


def _reading_from(last: Callable[[ReplicatedStream, str], StoredMessage | None]) -> Callable[..., Any]:
    original = LaggingContact._reading

    def reading(self: LaggingContact, request: ReadContent) -> Any:
        def do() -> Input:
            source = self._stream.last(request.source) if request.source else None
            return ContentRead(request.schedule, request.sequence, last(self._stream, request.schedule), source)

        return original(self, request)._replace(do=do)

    return reading


def ended_by_what_lands() -> Changes:
    """Let whatever comes onto the subject of a schedule end it."""
    original = Intake._overwritten

    def overwritten(self: Intake, message: StoredMessage, *, has_landed: bool, now: int) -> None:
        original(self, message, has_landed=False, now=now)

    yield Intake, "_overwritten", overwritten


def schedule_expected_under_what_landed() -> Changes:
    """Have the guard expect the schedule itself, whatever has landed on it."""
    original = building.assembled

    def assembled(held: Held, *rest: Any, **more: Any) -> Any:
        return original(held, *rest, **{**more, "last": held.sequence})

    yield sending, "assembled", assembled


def blocked_identities_forgotten() -> Changes:
    """Send fires as if a server kept nothing of what its guard refused, and wait for the identities that it keeps."""
    yield continuity, "is_replicated", lambda _state: False
    yield from identity_in_process_waited_for()


def forgery_believed() -> Changes:
    """Accept any message that claims to be a fire."""
    yield outcomes, "fault_of_generated", lambda *_args, **_more: ""


def duplicate_believed() -> Changes:
    """Accept any message with the identity of a fire as that fire."""
    yield outcomes, "fault_of_duplicate", lambda *_args, **_more: ""


def identity_waited_for_at_any_time() -> Changes:
    """Wait for an identity that is taken until it is free."""
    yield sending, "free_soon", lambda read, window, now: read.stored_by + window - now


def in_flight_sent_again() -> Changes:
    """Send a fire again although the leader may have accepted it before, and not know of it any more."""
    yield Proposals, "is_unconcluded", lambda *_args, **_more: False


def identity_in_process_waited_for() -> Changes:
    """Wait for an identity that is in process, although nothing can be stored under it any more."""
    yield Firing, "is_in_process", lambda *_args: False


def identity_in_process_given_up_unproven() -> Changes:
    """Give up an identity that is in process without asking the leader to apply what it has accepted."""
    yield from in_flight_sent_again()
    original = Firing.is_in_process

    def is_in_process(self: Firing, held: Held, flight: Flight, fire: Fire, now: int) -> bool:
        found = flight.in_process
        if found is not None and found.fire is fire and now - found.since >= sending.IN_PROCESS_NS:
            found.is_applied, found.asked_at = True, now
        return original(self, held, flight, fire, now)

    yield Firing, "is_in_process", is_in_process
