"""Fires that wait for the fire before: what a restart, an outage or a clock step changes, and what is asked."""

import pytest

from nats_scheduler.engine.actions import PublishFires, Report
from nats_scheduler.engine.events import FiresMissed, FiresSkipped
from nats_scheduler.engine.fire import (
    CheckFinished,
    ReadContent,
)
from nats_scheduler.engine.firing.building import ServerLimits
from nats_scheduler.engine.inputs import CaughtUp, CheckpointLoaded, ContentRead, Input, MessagesRead
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET
from tests.engine.overlap_worlds import GUARDS, RETENTIONS, SLACK, Counting, events, finish, headers, hours, world_with

# -- restarts and outages --------------------------------------------------------------------------------------------


@GUARDS
@RETENTIONS
@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_restart_while_a_fire_waits_loses_nothing_and_sends_nothing_early(
    with_checkpoint: bool, kept: bool, guard: bool
) -> None:
    world = world_with("queue", kept=kept, guard=guard)
    world.advance("2h30m")
    world.restart("1m", with_checkpoint=with_checkpoint)
    world.advance("10m")
    assert hours(world) == [1]
    finish(world)
    world.restart("1m", with_checkpoint=with_checkpoint)
    world.advance(SLACK)
    assert hours(world) == [1, 2]
    world.advance_to(START + 3 * HOUR + MINUTE)
    assert hours(world) == [1, 2]


@RETENTIONS
def test_a_restart_while_the_fire_before_is_unfinished_skips_as_before(kept: bool) -> None:
    world = world_with("skip", kept=kept)
    world.advance("1h30m")
    world.restart("1h", with_checkpoint=False)
    world.advance("1h")
    assert hours(world) == [1]
    finish(world)
    world.advance("1h")
    assert hours(world) == [1, 4]


def test_a_fire_that_was_consumed_during_a_takeover_is_finished() -> None:
    world = world_with("queue")
    world.advance("1h30m")
    finish(world)
    world.checkpoint = world.engine.checkpoint(world.now)
    world.restart("10m")
    world.advance("30m")
    assert hours(world) == [1, 2]


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_fire_under_those_of_others_is_found_after_a_restart(overlap: str) -> None:
    """Where not every message is read, an instance that starts knows only the last message on each subject."""
    world = world_with(overlap)
    world.publish("s.other", {"Nats-Schedule": "@every 7m", "Nats-Schedule-Target": TARGET})
    world.advance("1h50m")
    mine = next(one for one in world.generated if one.header("Nats-Scheduler") == SCHEDULE)
    desk = Restarted(world)
    desk.advance_to(START + 2 * HOUR)
    asked = desk.questions[-1]
    assert (asked.after, asked.consumer) == (1, None)
    assert asked.through >= mine.sequence
    assert not desk.fired


class Restarted:
    """An engine that does not read everything, and begins with the last message of each subject of a world."""

    def __init__(self, world: ScheduleWorld) -> None:
        self._world = world
        self.engine = StreamEngine(world.stream.rules, DIALECTS, ServerLimits(guard=True), reads_all=False)
        self.questions: list[CheckFinished] = []
        self.fired = False
        last = {message.subject: message for message in world.stream.messages()}
        messages = sorted(last.values(), key=lambda message: message.sequence)
        checkpoint = CheckpointLoaded(world.now, world.stream.last_sequence)
        self._step(world.now, checkpoint, MessagesRead(messages), CaughtUp(world.stream.last_sequence))

    def advance_to(self, instant: int) -> None:
        self._step(instant - SECOND // 2)
        self._step(instant)

    def _step(self, now: int, *inputs: Input) -> None:
        actions = self.engine.step(now, inputs)
        self.questions += [action for action in actions if isinstance(action, CheckFinished)]
        self.fired |= any(
            fire.schedule == SCHEDULE for action in actions if isinstance(action, PublishFires) for fire in action.fires
        )
        for action in actions:
            if isinstance(action, ReadContent):
                found: StoredMessage | None = self._world.stream.last(action.schedule)
                self._step(now, ContentRead(action.schedule, action.sequence, found, None))


def test_a_checkpoint_names_what_waits_and_is_held_back_by_nothing() -> None:
    world = world_with("queue")
    world.advance("2h30m")
    checkpoint = world.engine.checkpoint(world.now)
    assert checkpoint.through == world.now
    assert checkpoint.unsettled == {1}


@RETENTIONS
def test_an_outage_while_a_fire_waits_changes_nothing(kept: bool) -> None:
    world = world_with("queue", kept=kept)
    world.advance("2h30m")
    world.lose_contact()
    world.advance("1h")
    finish(world)
    assert hours(world) == [1]
    world.regain_contact()
    world.advance(SLACK)
    assert hours(world) == [1, 3]
    assert events(world, FiresMissed) == []


def test_a_clock_that_goes_back_does_not_make_a_fire_wait_longer() -> None:
    world = world_with("queue")
    world.advance("2h30m")
    world.step_clock(-20 * MINUTE)
    finish(world)
    world.advance(SLACK)
    assert hours(world) == [1, 2]


# -- how much is asked -----------------------------------------------------------------------------------------------


def crowd(overlap: str, pattern: str, size: int) -> Counting:
    world = Counting()
    for number in range(size):
        more = {"Nats-Schedule-Target": f"t.{number}"}
        world.publish(f"s.{number}", {**headers(overlap, pattern), **more})
    return world


def asked_in(world: Counting, span: str) -> list[CheckFinished]:
    """Let time pass, and return what was asked meanwhile."""
    world.questions.clear()
    world.advance(span)
    return world.questions


def test_hundreds_of_waiting_fires_ask_at_most_two_hundred_questions_a_second() -> None:
    world = crowd("queue", "@every 1h", 500)
    world.advance("2h10s")
    asked = asked_in(world, "20s")
    assert 1_900 < len(asked) <= 4_001
    assert len({one.schedule for one in asked}) == 500, "each gets its turn"
    assert len(world.generated) == 500
    world.stream.take("t.*")
    world.advance("10s")
    assert len(world.generated) == 1_000


def test_schedules_that_skip_each_second_ask_no_more_either() -> None:
    world = crowd("skip", "@every 1s", 500)
    world.advance("10s")
    assert len(asked_in(world, "10s")) <= 2_001
    world.stream.take("t.*")
    before = len(world.generated)
    world.advance("5s")
    assert len(world.generated) >= before + 500


def test_one_waiting_fire_is_asked_about_less_and_less_often() -> None:
    world = crowd("queue", "@every 1h", 1)
    world.advance("2h")
    counts = [len(asked_in(world, span)) for span in ("1s", "10s", "1m", "10m")]
    assert counts[0] <= 10
    assert counts[2] <= 20
    assert counts[3] == 120


def test_a_schedule_that_waits_keeps_no_content() -> None:
    world = world_with("queue")
    world.advance("2h30m")
    held = world.engine.held.on(SCHEDULE)
    assert held is not None
    assert held.flight is not None
    assert held.flight.is_held_back
    assert (held.flight.content, held.flight.fire) == (None, None)


def test_a_schedule_that_waits_is_no_urgent_one() -> None:
    world = world_with("queue")
    world.advance("2h30m")
    assert world.engine.urgency[0] == 1
    assert not any(isinstance(action, Report) for action in world.engine.step(world.now, ()))


def test_a_schedule_that_waits_is_counted_as_held_back_and_not_as_overdue() -> None:
    world = world_with("queue")
    world.advance("2h30m")
    figures = world.engine.figures(world.now).finish()
    assert (figures.held_back, figures.held_back_since, figures.overdue) == (1, START + 2 * HOUR, 0)
    world.restart("2h")
    world.advance("30m")
    assert world.engine.figures(world.now).finish().held_back_since == START + 2 * HOUR, "it goes on waiting"
    finish(world)
    world.advance(SLACK)
    figures = world.engine.figures(world.now).finish()
    assert (figures.held_back, figures.held_back_since) == (0, None)


# -- beside X-Missed ---------------------------------------------------------------------------------------------------


@GUARDS
@pytest.mark.parametrize("missed", ["skip", "all", "all 2", "once"])
def test_what_waits_is_not_missed_whatever_happens_to_missed_fires(missed: str, guard: bool) -> None:
    world = world_with("queue", guard=guard, Missed=missed, Grace="1s")
    world.advance("4h30m")
    finish(world)
    world.advance(SLACK)
    assert hours(world) == [1, 4]
    assert events(world, FiresMissed) == []
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * HOUR, 2, "queue")]


def test_a_backlog_is_sent_only_as_far_as_each_fire_is_finished() -> None:
    world = world_with("skip", Missed="all")
    world.advance("1h30m")
    finish(world)
    world.checkpoint = world.engine.checkpoint(world.now)
    world.restart("3h", with_checkpoint=True)
    world.advance("1m")
    assert hours(world) == [1, 2], "the first of the backlog is unfinished when the next one is to be sent"
    assert [event.count for event in events(world, FiresSkipped)] == [2]
