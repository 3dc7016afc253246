"""A mistake of the program in one schedule ends that schedule alone: it is rejected as failed, and all others fire on.

The mistakes are planted: a pattern that raises from some question on, or the rules of a stream that raise.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from nats_scheduler.engine.actions import Action
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import (
    CalendarsRead,
    DuplicateFetched,
    FiresStored,
    Input,
    Refused,
    Stored,
)
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import ALL
from nats_scheduler.message.rejection import FAILED, Rejection
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.calendars import Calendar, KnownCalendars
from nats_scheduler.schedule.days import DayRows
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import Pattern
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule, stored_fire

INNOCENT = "s.innocent"
OTHER = schedule("@every 1s", 2, INNOCENT)


class PlantedError(Exception):
    """A mistake that a test has planted."""


@dataclass(frozen=True, slots=True)
class Broken(Pattern):
    """A pattern that answers some questions with an error."""

    base: Pattern = field()
    questions: tuple[str, ...]

    def __getattribute__(self, name: str) -> Any:
        """Raise instead of some answers."""
        if name in object.__getattribute__(self, "questions"):
            raise PlantedError(f"{name} is broken")
        if name in ("base", "questions", "__class__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "base"), name)


class MistakenDesk(Desk):
    """A desk on which schedules may fail."""

    may_fail = True

    def breaks(self, *questions: str, subject: str = SCHEDULE) -> Held:
        """Have these questions to the pattern of a schedule raise from now on."""
        held = self.held(subject)
        held.pattern = Broken(held.pattern, questions)
        return held

    def holds_nothing_of(self, held: Held) -> None:
        """Check that nothing is left of a schedule that failed, in any part of the engine."""
        state, engine = self.engine._state, self.engine
        assert engine.held.on(held.subject) is None
        places = state.active, state.unready, state.blocked, state.later, state.refusals.held
        assert not any(held.sequence in place for place in places)
        assert held.sequence not in engine.stored_over.known()
        assert engine.ownership.unfired == 0, "no owner is suspected"
        assert held.wake < 0, "nothing wakes it"

    def is_rejected(self, held: Held) -> Rejection:
        """Check that a schedule is listed as rejected, and return why."""
        listed = done(self.engine.view().rejected_page(ALL, 10, "")).messages
        (found,) = [one for one in listed if one.subject == held.subject]
        assert (found.sequence, found.rejection.code) == (held.sequence, FAILED.code)
        assert "PlantedError: " in found.rejection.reason
        assert "(test_guard.py:" in found.rejection.reason, "where the program failed"
        return found.rejection

    def step(self, *facts: Input) -> list[Action]:
        """Step, and note what the innocent schedule waits for."""
        actions = super().step(*facts)
        self.is_asked = getattr(self, "is_asked", False) or (INNOCENT, 2) in self.reads
        self.to_answer = [*getattr(self, "to_answer", ()), *(fire for fire in self.fires if fire.schedule == INNOCENT)]
        return actions

    def fires_innocent(self, seconds: int) -> None:
        """Check that the other schedule fires at each second of its grid, and that nothing stays in flight."""
        first, fired, sequence = self.now, set[int](), 10_000
        for tenth in range(seconds * 10):
            self.now = first + tenth * SECOND // 10
            self.step()
            while self.is_asked or self.to_answer:
                if self.is_asked:
                    self.is_asked = False
                    self.found(OTHER)
                fires, self.to_answer = self.to_answer, []
                for fire in fires:
                    fired.add(fire.fire_time)
                    sequence += 1
                    self.concluded(fire, Stored(sequence))
        grid = range(first - first % SECOND + 2 * SECOND, self.now, SECOND)  # the first one may be a make-up fire
        assert set(grid) <= fired
        assert self.engine.in_flight.count == 0


def desk(pattern: str = "@every 5s", **more: Any) -> tuple[MistakenDesk, StoredMessage]:
    """Return a desk with a schedule and an innocent one beside it."""
    message = schedule(pattern, **more)
    return MistakenDesk(message, OTHER), message


class BrokenRestrictions(Restrictions):
    """Restrictions of an operator that raise for a target."""

    def target_fault(self, header: bytes, target: str) -> Rejection | None:
        """Raise for one target."""
        if target == "t.broken":
            raise PlantedError("the target is broken")
        return super().target_fault(header, target)


def test_a_message_that_fails_is_rejected_and_its_neighbours_are_held() -> None:
    broken = schedule("@every 5s", 3, Nats_Schedule_Target="t.broken")
    others = [schedule("@every 7s", number, f"s.{number}") for number in (4, 5)]
    one = MistakenDesk(OTHER, broken, *others, restrictions=BrokenRestrictions())
    assert [event.schedule for event in one.failed] == [SCHEDULE]
    assert len(one.engine.held) == 3
    assert one.engine.inactive.rejected[SCHEDULE].target == "t.broken"
    assert one.engine.inactive.rejected[SCHEDULE].pattern == "@every 5s"
    one.fires_innocent(5)


def built(one: MistakenDesk, message: StoredMessage) -> None:
    """Its fire is built."""
    one.at(4.5)
    one.breaks("format")
    one.found(message)


def advanced(one: MistakenDesk, message: StoredMessage) -> None:
    """Its fire is stored, and the next one is built."""
    fire = one.in_flight(message, 5)
    one.breaks("next_fire", "format")
    one.step(FiresStored([fire], [50]))


def read_back(one: MistakenDesk, message: StoredMessage) -> None:
    """A fire of it is read that another instance has stored."""
    one.at(4.5).found(message)
    fire = one.held().flight
    assert fire is not None
    assert fire.fire is not None
    one.breaks("next_fire")
    one.now = START + 5 * SECOND
    one.read(stored_fire(fire.fire, 60, one.now))


def judged(one: MistakenDesk, message: StoredMessage) -> None:
    """What the server has under its identity is judged, while its fire is in flight."""
    fire = one.in_flight(message, 5)
    one.concluded(fire, Stored(50, duplicate=True))
    one.breaks("possible", "next_fire", "is_fire", "latest_fire")
    other = stored_fire(fire, 50, one.now)
    one.step(DuplicateFetched(fire, 50, other._replace(block=other.block.replace(b"05Z", b"06Z", 1)), one.now))


@pytest.mark.parametrize("act", [built, advanced, read_back, judged], ids=lambda act: act.__name__)
def test_what_fails_is_rejected_and_reported_once_and_others_fire(
    act: Callable[[MistakenDesk, StoredMessage], None],
) -> None:
    one, message = desk()
    held = one.held()
    act(one, message)
    assert [(event.schedule, event.sequence) for event in one.failed] == [(SCHEDULE, 1)]
    assert one.failed[0].rejection == one.is_rejected(held)
    one.holds_nothing_of(held)
    assert 1 in one.engine.checkpoint(one.now).unsettled, "a later version of the program owes its fires"
    one.fires_innocent(5)
    one.read(schedule("@every 5s", 90, stored_at=one.now))
    assert one.held().sequence == 90, "it is held when it is stored again"
    assert one.engine.inactive.rejected == {}


def test_a_schedule_that_fails_leaves_no_fire_in_flight() -> None:
    one, message = desk()
    fire = one.in_flight(message, 5)
    one.breaks("format")
    one.read(schedule("@every 5s", 3, Nats_Schedule_X_Except="2026-01-02"))
    assert one.engine.in_flight.count == 1
    one.concluded(fire, Refused(400, 10071, "wrong last sequence"))
    assert one.engine.in_flight.count == 0


def test_a_claimed_fire_that_cannot_be_judged_ends_no_schedule() -> None:
    """A client that may publish may claim to be the fire of any schedule."""
    one, message = desk()
    fire = one.in_flight(message, 5)
    one.breaks("repeats")
    one.read(stored_fire(fire, 51, one.now))
    assert [(event.schedule, event.sequence) for event in one.failed] == [(TARGET, 51)]
    assert one.held().sequence == 1
    assert one.engine.inactive.rejected == {}, "what is no schedule is not listed"


def test_a_schedule_that_fails_at_an_edit_keeps_it_from_no_other() -> None:
    messages = [
        schedule("@every 1h", number, f"s.{number}", Nats_Schedule_X_Except="calendar:closed") for number in range(1, 6)
    ]
    one = MistakenDesk(*messages, OTHER)
    one.breaks(subject="s.3")
    one.step(CalendarsRead(KnownCalendars({"closed": Calendar("closed", DayRows(()))})))
    one.step()
    assert one.engine.inactive.rejected["s.3"].rejection.code == FAILED.code
    assert [held.no_fire for held in one.engine.held if held.calendars] == [None] * 4


class BrokenCalendars(KnownCalendars):
    """Calendars that cannot be asked."""

    def calendar(self, name: str) -> Calendar:
        """Raise."""
        raise PlantedError(name)


def test_what_concerns_no_schedule_fails_the_engine() -> None:
    one = Desk(schedule("@every 1h", Nats_Schedule_X_Except="calendar:closed"))
    with pytest.raises(PlantedError):
        one.step(CalendarsRead(BrokenCalendars({})))
