"""The figures for the operator are true at every moment, whatever the stream and the server do."""

from nats_scheduler.engine.inputs import (
    ContactLost,
    MessagesRead,
    OwnershipChanged,
    PurgeConcluded,
    Refused,
    RemovalRequested,
    Stored,
)
from nats_scheduler.engine.views.figures import OBJECTS_PER_UNIT, OVERDUE_AFTER_NS, Figures
from nats_scheduler.engine.views.seen import done
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, plain, schedule
from tests.harness.seeds import generator, seeds

DENIED = Refused(403, 403, "no permission")


def figures(desk: Desk) -> Figures:
    """Return the figures of an engine at its present time."""
    return done(desk.engine.figures(desk.now))


def at(after: int, sequence: int = 1, subject: str = SCHEDULE, stored_at: int = START) -> StoredMessage:
    """Make a schedule that fires once, some time (ns) after the start."""
    return schedule(f"@at {format_rfc3339(START + after)}", sequence, subject, stored_at=stored_at)


def test_what_ends_before_its_fire_is_neither_next_nor_overdue() -> None:
    desk = Desk(at(3 * HOUR), max_age=2 * HOUR)
    assert figures(desk).next_due is None
    desk.now = START + 4 * HOUR
    assert (figures(desk).next_due, figures(desk).overdue) == (None, 0)


def test_a_fire_in_flight_is_overdue_after_a_second_until_it_is_stored() -> None:
    message = schedule("@every 1h")
    desk = Desk(message)
    fire = desk.in_flight(message, 3600)
    assert (figures(desk).in_flight, figures(desk).overdue) == (1, 0)
    desk.now = fire.fire_time + OVERDUE_AFTER_NS - 1
    assert figures(desk).overdue == 0
    desk.now = fire.fire_time + 90 * SECOND
    assert (figures(desk).overdue, figures(desk).overdue_since) == (1, fire.fire_time)
    desk.concluded(fire, Stored(2))
    assert (figures(desk).in_flight, figures(desk).overdue, figures(desk).overdue_since) == (0, 0, None)
    assert figures(desk).next_due == START + 2 * HOUR


def test_schedules_are_overdue_without_contact_since_the_oldest() -> None:
    desk = Desk(at(20 * SECOND, 1, "s.1"), at(30 * SECOND, 2, "s.2"), at(HOUR, 3, "s.3"))
    desk.step(ContactLost("for the test"))
    for seconds, overdue, since in ((20, 0, None), (21, 1, 20), (30, 1, 20), (31, 2, 20), (3599, 2, 20), (3601, 3, 20)):
        desk.at(seconds)
        assert figures(desk).overdue == overdue, seconds
        assert figures(desk).overdue_since == (None if since is None else START + since * SECOND)


def test_each_is_overdue_once_also_if_it_is_a_row_and_an_object() -> None:
    """One is an object for its policies, and one because a message concerns it."""
    desk = Desk(schedule("@every 1h", 1, "s.1", Nats_Schedule_X_Report="true"), at(HOUR, 2, "s.2"), at(HOUR, 3, "s.3"))
    desk.engine.held.write_changed(9)
    desk.step(ContactLost("for the test"))
    desk.now = START + 2 * HOUR - 1
    assert desk.engine.held.on("s.2") is not None
    assert (figures(desk).overdue, figures(desk).overdue_since) == (3, START + HOUR)


def test_a_refused_fire_is_overdue_since_the_first_refused_time() -> None:
    message = schedule("@every 1s")
    desk = Desk(message)
    fire = desk.in_flight(message, 1)
    for seconds in range(2, 8):
        desk.concluded(fire, DENIED)
        fire = desk.in_flight(message, seconds)
        assert fire.fire_time == START + seconds * SECOND
    assert (figures(desk).overdue, figures(desk).overdue_since) == (1, START + SECOND)
    desk.concluded(fire, Stored(2))
    assert figures(desk).overdue == 0


def test_a_purge_is_pending_until_it_succeeds() -> None:
    message = at(HOUR)
    desk, refused = Desk(message), Desk(message)
    for one in (desk, refused):
        fire = one.in_flight(message, 3600)
        assert figures(one).purges_pending == 0
        one.concluded(fire, Stored(2))
        one.now += 10 * SECOND
        assert (figures(one).overdue, figures(one).purges_pending) == (0, 1)
    desk.step(PurgeConcluded(SCHEDULE, 1, "no answer"))
    assert figures(desk).purges_pending == 1
    refused.step(PurgeConcluded(SCHEDULE, 1, "no permission", refused=True))
    for one in (desk, refused):
        one.now += HOUR
        one.step()
        assert (figures(one).overdue, figures(one).purges_pending) == (0, 1)
    assert desk.purges == [(SCHEDULE, 1)]
    desk.step(PurgeConcluded(SCHEDULE, 1, None))
    assert (figures(desk).purges_pending, sum(figures(desk).held.values())) == (0, 0)


def test_many_schedules_in_many_rows_are_counted_as_one_loop_would() -> None:
    for seed in seeds(1):
        random = generator(f"figures {seed}")
        count = random.randrange(OBJECTS_PER_UNIT, 2 * OBJECTS_PER_UNIT)
        desk = Desk(*(at(random.randrange(-100, 4_000) * SECOND, n, f"s.{n}") for n in range(1, count + 1)))
        desk.step(ContactLost("for the test"))
        for number in random.sample(range(1, count + 1), count // 3):
            desk.step(MessagesRead((plain(f"s.{number}", count + number),)))
        desk.step(RemovalRequested(None, None, None))
        held = list(desk.engine.held)
        soon = min(one.fire_time for one in held if one.fire_time > START)
        instants = soon, soon + OVERDUE_AFTER_NS - 1, soon + OVERDUE_AFTER_NS, random.choice(held).fire_time
        for desk.now in (*instants, START + 2_000 * SECOND):
            due = [max(one.fire_time, one.stored_at) for one in held if one.fire_time <= desk.now - OVERDUE_AFTER_NS]
            coming = [one.fire_time for one in held if one.fire_time > desk.now]
            found = figures(desk)
            assert (found.held[PatternKind.AT], found.overdue) == (len(held), len(due)), f"seed {seed}"
            assert (found.overdue_since, found.next_due) == (min(due, default=None), min(coming, default=None))


def test_a_visit_goes_on_while_the_schedules_change() -> None:
    """The metrics are found in another thread, and the engine does not wait for that."""
    messages = [at(90 * SECOND, number, f"s.{number}") for number in range(1, 4 * OBJECTS_PER_UNIT)]
    desk = Desk(*messages)
    work = desk.engine.figures(desk.now)
    stays, gone = messages[::2], iter(messages[1::2])
    found = None
    while found is None:
        try:
            next(work)
        except StopIteration as end:
            found = end.value
        for message in (next(gone), next(gone), next(gone)):
            desk.read(plain(message.subject, message.sequence + 1_000_000))
    assert len(stays) <= found.held[PatternKind.AT] <= len(messages)


def test_only_what_the_owner_has_to_fire_is_overdue() -> None:
    subjects = [f"s.{number}" for number in range(1, 200)]
    desk = Desk(*(at(HOUR, number, subject) for number, subject in enumerate(subjects, 1)))
    desk.step(ContactLost("for the test"))
    desk.now = START + 2 * HOUR
    assert figures(desk).overdue == len(subjects)
    desk.step(OwnershipChanged(False))
    assert figures(desk).overdue == 0
    desk.step(OwnershipChanged(True))
    assert figures(desk).overdue == len(subjects)
