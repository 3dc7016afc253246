"""Fires that are to be done within a time: which are reported, when, by which instance, and how much is asked."""

from itertools import product

import pytest

from nats_scheduler.engine.events import FinishUnknown, FireNotDone
from nats_scheduler.engine.fire import CheckFinished
from nats_scheduler.engine.holding import deadlines
from nats_scheduler.engine.holding.deadlines import KEPT_BY_STANDBYS_NS
from nats_scheduler.engine.inputs import (
    CaughtUp,
    Checkpoint,
    OwnershipChanged,
    Unanswered,
)
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, events, message_on, schedule
from tests.engine.test_overlap import WORKERS, Failing, finish

ONCE = "@at 2026-01-01T00:01:00Z"


def headers(pattern: str = ONCE, **more: str) -> dict[str, str]:
    policies = {f"Nats-Schedule-X-{name}": value for name, value in {"Done-Within": "10m", **more}.items()}
    return {"Nats-Schedule": pattern, "Nats-Schedule-Target": TARGET, **policies}


def world_with(pattern: str = ONCE, *, kept: bool = False, **more: str) -> ScheduleWorld:
    """Begin a world with a schedule, and with a consumer where the stream keeps what was acknowledged."""
    world = ScheduleWorld(config={"retention": "limits" if kept else "workqueue"})
    if kept:
        world.stream.add_consumer(WORKERS, TARGET)
        more = {"Consumer": WORKERS, **more}
    world.publish(SCHEDULE, headers(pattern, **more))
    return world


def not_done(world: ScheduleWorld) -> list[float]:
    """Return the fire times of the fires that were reported, in minutes since the start."""
    return [(event.fire_time - START) / MINUTE for event in events(world, FireNotDone)]


# -- what is reported ------------------------------------------------------------------------------------------------


def test_a_fire_is_reported_once_although_its_schedule_is_gone() -> None:
    for kept in (False, True):
        world = world_with(kept=kept)
        world.advance("10m59s")
        assert (world.next_fire(SCHEDULE), not_done(world)) == (None, [])
        world.advance("1s")
        [fire] = world.generated
        expected = FireNotDone(SCHEDULE, 1, TARGET, fire.sequence, START + MINUTE, START + MINUTE, 10 * MINUTE)
        assert events(world, FireNotDone) == [expected], kept
        world.advance("2h")
        assert len(events(world, FireNotDone)) == 1
        assert events(world, FinishUnknown) == []


def test_a_fire_that_is_finished_in_its_time_is_not_reported() -> None:
    for kept in (False, True):
        world = world_with("@every 5m", kept=kept)
        world.advance("6m")
        finish(world)  # that of the 5th minute
        world.advance("20m")
        assert not_done(world) == [10, 15], kept
        finish(world)
        world.advance("8m")
        assert not_done(world) == [10, 15], kept


def test_the_report_says_that_a_consumer_does_not_exist() -> None:
    world = ScheduleWorld(config={"retention": "limits"})
    world.publish(SCHEDULE, headers(Consumer="nobody"))
    world.advance("2h")
    assert [event.reason for event in events(world, FireNotDone)] == ["stream WORLD has no consumer 'nobody'"]
    world = world_with(Consumer="nobody")
    world.advance("2h")
    assert [event.reason for event in events(world, FireNotDone)] == [""], "a work queue asks no consumer"


def test_a_fire_says_its_own_time_and_not_that_of_its_sample() -> None:
    world = ScheduleWorld(config={"retention": "limits"})
    names = [f"X-Nats-Schedule-X-{name}" for name in ("Done-Within", "Consumer")]
    world.publish("sample", [(names[0], "1s"), (names[1], "b d")])
    world.publish(SCHEDULE, headers(Consumer=WORKERS) | {"Nats-Schedule-Source": "sample"})
    plain = {"Nats-Schedule": ONCE, "Nats-Schedule-Target": "t.plain"}
    world.publish("s.plain", plain | {"Nats-Schedule-X-Overlap": "skip", "Nats-Schedule-X-Consumer": WORKERS})
    world.advance("1m")
    fires = {fire.subject: [fire.header(name) for name in names] for fire in world.generated}
    assert fires == {TARGET: ["10m", WORKERS], "t.plain": [None, None]}
    [fire] = [fire for fire in world.generated if fire.subject == TARGET]
    assert [name for name, _value in fire.headers].count(names[0]) == 1


# -- restarts, and other instances -------------------------------------------------------------------------------------


def test_what_was_not_done_while_nobody_watched_is_reported_once() -> None:
    for kept, with_checkpoint in product((False, True), (False, True)):
        case = f"{kept=} {with_checkpoint=}"
        world = world_with(kept=kept)
        world.advance("2m")
        world.restart("30m", with_checkpoint=with_checkpoint)
        assert not_done(world) == [1], case
        world.advance("2m")
        world.restart("1m", with_checkpoint=with_checkpoint)
        again = [] if with_checkpoint else [1]
        assert not_done(world) == [1, *again], f"{case}: a checkpoint shows that it was asked about"
        finish(world)
        world.restart(with_checkpoint=False)
        assert len(not_done(world)) == 1 + len(again), case


def fire_of(schedule: str, sequence: int, **more: str) -> StoredMessage:
    """Make a fire of another instance, as the stream holds it: for the start, to be done within 10 minutes."""
    said = {"X_Nats_Schedule_X_Done_Within": "10m", **more}
    headers = {"Nats_Scheduler": schedule, "Nats_Schedule_Next": "purge", **said}
    return message_on(TARGET, sequence, Nats_Msg_Id=f"nats-scheduler:1:{START}:{schedule}", **headers)


def test_who_takes_over_asks_about_what_was_not_asked_about() -> None:
    for taken_over_after, through, is_asked in (
        (5 * SECOND, 0, True),
        (5 * SECOND, 10 * MINUTE, True),
        (90 * SECOND, 11 * MINUTE, False),
        (KEPT_BY_STANDBYS_NS + 10 * SECOND, 0, False),
    ):
        desk = Desk(live=False)
        desk.step(OwnershipChanged(False), CaughtUp())
        desk.read(fire_of(SCHEDULE, 2))
        asked: list[CheckFinished] = []
        for seconds in (600, 600 + taken_over_after // SECOND):
            asked += desk.at(seconds).asked(CheckFinished)
        assert asked == [], "the owner asks"
        desk.step(OwnershipChanged(True, Checkpoint(START + through, 2)))
        asked += desk.asked(CheckFinished)
        assert watched(desk) == [2] * is_asked
        desk.step(OwnershipChanged(False))
        desk.step(OwnershipChanged(True))
        assert desk.asked(CheckFinished) == []
        assert bool(asked) is is_asked, (taken_over_after, through)


def test_what_cannot_be_a_deadline_is_watched_by_nobody() -> None:
    desk = Desk(schedule("@every 1h", subject="s.plain"))
    within = "X_Nats_Schedule_X_Done_Within"
    desk.read(
        fire_of("s.a", 2, **{within: "soon"}),
        fire_of("s.b", 3, X_Nats_Schedule_X_Consumer="a b"),
        fire_of("s.c", 4, X_Nats_Schedule_X_Consumer="a.b"),
        fire_of("s.plain", 5),
    )
    assert desk.at(601).asked(CheckFinished) == []
    [moved] = Desk(fire_of(SCHEDULE, 2), moves_subjects=True).at(600).asked(CheckFinished)
    assert moved.target == ">", "and of one that is stored on another subject than its target any may be meant"


def watched(desk: Desk) -> list[int]:
    """Return the sequences of the fires that are watched: a start that continues reads them again."""
    document = desk.engine.restart.document()
    assert document is not None
    return document.to_read


# -- questions without an answer, and how many there are --------------------------------------------------------------


def test_without_an_answer_only_that_is_reported_and_once() -> None:
    network = Failing()
    world = ScheduleWorld(config={"retention": "workqueue"}, network=network)
    world.publish(SCHEDULE, headers())
    world.advance("2m")
    network.refuses_reads = True
    world.advance("1h")
    assert not_done(world) == []
    expected = FinishUnknown(SCHEDULE, 1, START + MINUTE, "not now")
    assert events(world, FinishUnknown) == [expected]
    network.refuses_reads = False
    world.advance("5m")
    assert not_done(world) == [1]


def test_a_denial_is_said_at_once_and_an_outage_is_waited_for() -> None:
    desk = Desk(fire_of(SCHEDULE, 2))
    [question] = desk.at(600).asked(CheckFinished)
    desk.step(Unanswered(question, "may not", denied=True))
    assert [event.reason for event in desk.reported(FinishUnknown)] == ["may not"]
    first_wait = desk.wake - 600
    [question] = desk.at(desk.wake).asked(CheckFinished)
    desk.step(Unanswered(question, "may not", denied=True))
    assert desk.reported(FinishUnknown) == []
    assert desk.wake - (desk.now - START) / SECOND > first_wait
    world = world_with()
    world.advance("10m")
    world.lose_contact()
    world.advance("10m")
    assert not_done(world) == []
    world.regain_contact()
    world.advance("1s")
    assert not_done(world) == [1]


def test_what_is_beyond_the_bound_is_not_watched_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MAX_WATCHED", 3)
    at_start = Desk(*(fire_of("s.a", number) for number in range(2, 7)), live=False)
    at_start.step(CaughtUp())
    assert at_start.reported(FinishUnknown) == []
    at_start.read(fire_of("s.b", 7))
    [unknown] = at_start.reported(FinishUnknown)
    assert (unknown.schedule, unknown.reason) == ("s.b", "3 fires of the stream are watched already")
    assert [question.through for question in all_asked(at_start)] == [4, 5, 6]


def all_asked(desk: Desk) -> list[CheckFinished]:
    asked = []
    for turn in range(20):
        asked += desk.at(600 + turn / 100).asked(CheckFinished)
    return asked
