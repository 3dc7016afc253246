"""Fires that come due while the fire before is unfinished: what is sent, what is skipped, and what waits.

It tests `engine/firing/blocking.py`.
"""

from collections.abc import Sequence

import pytest

from nats_scheduler.engine.actions import Action
from nats_scheduler.engine.events import (
    Ending,
    FinishUnknown,
    FireConfirmed,
    FiresMissed,
    FiresSkipped,
    FireTimedOut,
    ScheduleEnded,
)
from nats_scheduler.engine.fire import CheckFinished, FetchContent
from nats_scheduler.engine.holding.ownership import UNFIRED_LIMIT_NS
from nats_scheduler.engine.inputs import FinishChecked, OwnershipChanged, Refused, Stored, Unanswered
from nats_scheduler.engine.views.seen import done
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.network import Fate, Perfect
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, events, schedule, stored_fire

QUEUE_STREAM, KEPT_STREAM = {"retention": "workqueue"}, {"retention": "limits"}
WORKERS = "workers"
SLACK = 5 * SECOND + 100 * MILLISECOND
"""Longest time from the end of a fire to the question that notices it."""


RETENTIONS = pytest.mark.parametrize("kept", [False, True], ids=["work queue", "limits"])


def headers(overlap: str, pattern: str = "@every 1m", **more: str) -> dict[str, str]:
    policies = {f"Nats-Schedule-X-{name}": value for name, value in {"Overlap": overlap, **more}.items()}
    return {"Nats-Schedule": pattern, "Nats-Schedule-Target": TARGET, **policies}


def world_with(overlap: str, pattern: str = "@every 1m", *, kept: bool = False, **more: str) -> ScheduleWorld:
    """Begin a world with a schedule, and with a consumer where the stream keeps what was acknowledged."""
    world = ScheduleWorld(config=KEPT_STREAM if kept else QUEUE_STREAM)
    if kept:
        world.stream.add_consumer(WORKERS, TARGET)
        more = {"Consumer": WORKERS, **more}
    world.publish(SCHEDULE, headers(overlap, pattern, **more))
    return world


def minutes(world: ScheduleWorld, target: str = TARGET) -> list[float]:
    """Return the fire time of each stored fire, in minutes since the start."""
    return [(one.fire_time - START) / MINUTE for one in world.generated if one.subject == target]


def finish(world: ScheduleWorld) -> None:
    """Let the workers finish everything that is stored."""
    if WORKERS in world.stream.consumers:
        world.stream.consumers[WORKERS].acknowledge_all()
    else:
        world.stream.take(TARGET)


class Counting(ScheduleWorld):
    """A world that keeps the questions."""

    def __init__(self) -> None:
        self.questions: list[CheckFinished] = []
        super().__init__(config=QUEUE_STREAM)

    def _carry_out(self, actions: Sequence[Action]) -> None:
        self.questions += [action for action in actions if isinstance(action, CheckFinished)]
        super()._carry_out(actions)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_fire_that_its_consumer_has_given_up_is_waited_for_no_more(overlap: str) -> None:
    world = world_with(overlap, kept=True)
    world.advance("2m30s")
    assert minutes(world) == [1]
    world.stream.consumers[WORKERS].give_up_all()
    world.advance("30s")
    assert minutes(world) == [1, 3 if overlap == "skip" else 2]
    assert events(world, FinishUnknown) == []


@RETENTIONS
def test_skip_sends_nothing_while_the_fire_before_is_unfinished(kept: bool) -> None:
    world = world_with("skip", kept=kept)
    world.advance("3m30s")
    assert minutes(world) == [1]
    finish(world)
    world.advance("1m")
    assert minutes(world) == [1, 4], "no fire is made up for those that were skipped"
    following = [one.header("Nats-Schedule-Next") for one in world.generated]
    assert following == ["2026-01-01T00:02:00Z", "2026-01-01T00:05:00Z"]
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + n * MINUTE, 1, "skip") for n in (2, 3)]
    assert events(world, FiresMissed) == []
    assert events(world, FinishUnknown) == []


@RETENTIONS
def test_queue_sends_the_latest_that_waited_once_the_one_before_is_done(kept: bool) -> None:
    world = world_with("queue", kept=kept)
    world.advance("4m30s")
    assert minutes(world) == [1]
    finish(world)
    ends = world.now
    world.advance(SLACK)
    assert minutes(world) == [1, 4]
    assert ends <= world.generated[-1].stored_at <= ends + SLACK
    assert world.generated[-1].header("Nats-Schedule-Next") == "2026-01-01T00:05:00Z"
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * MINUTE, 2, "queue")]
    assert events(world, FiresMissed) == [], "what waits is not missed"
    (read_back,) = [event for event in events(world, FireConfirmed) if event.fire_time > START + MINUTE]
    assert read_back.waited, "and not late"
    world.advance_to(START + 5 * MINUTE + SECOND)
    assert minutes(world) == [1, 4], "the fire that was sent is the one before now"
    finish(world)
    world.advance(SLACK)
    assert minutes(world) == [1, 4, 5]


def test_a_replacement_does_not_wait_for_fires_of_the_version_before() -> None:
    world = world_with("skip")
    world.advance("1m30s")
    world.publish(SCHEDULE, headers("skip"))
    world.advance("1m1s")
    assert minutes(world) == [1, 2.5]


def test_a_fire_that_is_timed_out_lets_the_waiting_or_next_one_go() -> None:
    world = world_with("queue", Timeout="2m20s")
    world.advance("4m")
    assert minutes(world) == [1, 3]
    assert world.generated[-1].stored_at == START + MINUTE + 140 * SECOND
    sequence = world.generated[0].sequence
    assert events(world, FireTimedOut) == [FireTimedOut(SCHEDULE, 1, sequence, START + MINUTE, START + 2 * MINUTE)]
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * MINUTE, 1, "queue")]
    world = world_with("skip", Timeout="90s")
    world.advance("4m1s")
    assert minutes(world) == [1, 3]
    assert [event.due for event in events(world, FireTimedOut)] == [START + 3 * MINUTE]


def test_a_consumer_that_does_not_exist_finishes_nothing() -> None:
    world = ScheduleWorld(config=KEPT_STREAM)
    world.publish(SCHEDULE, headers("skip", Consumer="nobody"))
    world.advance("6m")
    assert minutes(world) == [1]
    reason = "stream WORLD has no consumer 'nobody'"
    assert events(world, FinishUnknown) == [FinishUnknown(SCHEDULE, 1, START + 2 * MINUTE, reason)]
    world.stream.add_consumer("nobody", TARGET).acknowledge_all()
    world.advance("1m")
    assert len(minutes(world)) > 1, "it fires again once the consumer says that the fire is finished"
    other = ScheduleWorld(config=KEPT_STREAM)
    other.stream.add_consumer(WORKERS, "t.else")
    other.publish(SCHEDULE, headers("queue", Consumer=WORKERS))
    other.advance("3m")
    reasons = [event.reason for event in events(other, FinishUnknown)]
    assert reasons == [f"consumer 'workers' does not receive '{TARGET}'"]


class Failing(Perfect):
    """A network that may answer no question about a schedule."""

    refuses_reads = False

    def read(self, request: FetchContent) -> Fate:
        return Fate(refusal=Refused(503, 10008, "not now")) if self.refuses_reads else super().read(request)


def failing_world(overlap: str, **more: str) -> tuple[ScheduleWorld, Failing]:
    network = Failing()
    world = ScheduleWorld(config=QUEUE_STREAM, network=network)
    world.publish(SCHEDULE, headers(overlap, **more))
    return world, network


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_question_without_an_answer_holds_the_fire_back(overlap: str) -> None:
    world, network = failing_world(overlap)
    world.advance("1m59s950ms")
    finish(world)
    network.refuses_reads = True
    world.advance("30s")
    assert minutes(world) == [1]
    assert [event.reason for event in events(world, FinishUnknown)] == ["not now"]
    network.refuses_reads = False
    world.advance(SLACK)
    assert minutes(world) == [1, 2], "it is not skipped, since nothing says that the one before was unfinished"


def test_a_timeout_ends_the_wait_for_an_answer() -> None:
    world, network = failing_world("skip", Timeout="61s")
    world.advance("1m59s950ms")
    network.refuses_reads = True
    world.advance("900ms")
    assert minutes(world) == [1]
    world.advance("2s")
    network.refuses_reads = False
    world.advance("1s")
    assert minutes(world) == [1, 2]
    assert [event.reason for event in events(world, FireTimedOut)] == ["not now"]


def test_the_last_fire_that_is_skipped_or_waits_ends_the_schedule() -> None:
    world = world_with("skip", Limit="2")
    world.advance("2m1s")
    assert (minutes(world), world.stream.last(SCHEDULE)) == ([1], None)
    assert [event.ending for event in events(world, ScheduleEnded)] == [Ending.SKIPPED]
    world = world_with("queue", Limit="3")
    world.advance("5m")
    finish(world)
    world.advance(SLACK)
    assert (minutes(world), world.stream.last(SCHEDULE)) == ([1, 3], None)
    assert world.generated[-1].header("Nats-Schedule-Next") == "purge"


@pytest.mark.parametrize("how", ["purge", "ttl"])
def test_one_that_ends_while_it_waits_says_what_it_skipped(how: str) -> None:
    world = ScheduleWorld(config=QUEUE_STREAM)
    world.publish(SCHEDULE, {**headers("queue"), **({"Nats-TTL": "3m20s"} if how == "ttl" else {})})
    world.advance("3m30s")
    if how == "purge":
        world.purge(SCHEDULE)
    finish(world)
    world.advance("2m")
    assert (minutes(world), world.next_fire(SCHEDULE)) == ([1], None)
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * MINUTE, 2, "queue")]


def test_waiting_fires_ask_at_most_two_hundred_questions_a_second() -> None:
    world = Counting()
    for number in range(220):
        world.publish(f"s.{number}", {**headers("queue"), "Nats-Schedule-Target": f"t.{number}"})
    world.advance("2m")
    world.questions.clear()
    world.advance("2s")
    assert 220 < len(world.questions) <= 401
    assert len({one.schedule for one in world.questions}) == 220, "each gets its turn"
    assert len(world.generated) == 220
    world.stream.take("t.*")
    world.advance("8s")
    assert len(world.generated) == 440


def test_one_that_waits_is_not_overdue_and_holds_no_checkpoint_back() -> None:
    world = world_with("queue")
    world.advance("2m30s")
    figures, checkpoint = done(world.engine.figures(world.now)), world.engine.checkpoint(world.now)
    assert (checkpoint.through, checkpoint.unsettled) == (world.now, frozenset({1}))
    assert (figures.blocked, figures.blocked_since, figures.overdue) == (1, START + 2 * MINUTE, 0)
    assert world.engine.urgency[0] == 1, "it is no urgent one"
    finish(world)
    world.advance(SLACK)
    figures = done(world.engine.figures(world.now))
    assert (figures.blocked, figures.blocked_since) == (0, None)


def waiting(overlap: str = "queue", *, guard: bool = True) -> tuple[Desk, StoredMessage, CheckFinished]:
    """Return an engine that asks, at two minutes, about the first fire, which is stored as message 2."""
    message = schedule("@every 1m", Nats_Schedule_X_Overlap=overlap, Nats_Schedule_X_Consumer=WORKERS)
    desk = Desk(message, guard=guard)
    fire = desk.in_flight(message, 60)
    desk.concluded(fire, Stored(2))
    desk.read(stored_fire(fire, 2, START + MINUTE))
    desk.at(119.5 if guard else 119.96)
    desk.found(message)
    [question] = desk.at(120).asked(CheckFinished)
    return desk, message, question


def test_a_schedule_that_waits_at_the_owner_does_not_count_as_unfired() -> None:
    queued, delayed = {"Nats_Schedule_X_Overlap": "queue"}, {"Nats_Schedule_X_Jitter": "1s"}
    for policies, is_unfired in ((queued, False), (delayed, True)):
        message = schedule("@every 1m", 1, SCHEDULE, stored_at=START, body=b"", **policies)
        desk = Desk(message)
        desk.step(OwnershipChanged(False))
        desk.at(62 + UNFIRED_LIMIT_NS / SECOND)
        if desk.reads:
            desk.found(message)
        assert bool(desk.engine.ownership.unfired) is is_unfired


@pytest.mark.parametrize("seconds", [0.03, 0.2])
def test_without_a_guard_a_fire_that_waited_is_read_again_once_its_content_is_old(seconds: float) -> None:
    desk, message, question = waiting(guard=False)
    desk.now += int(seconds * SECOND)
    desk.step(FinishChecked(question))
    is_old = seconds > 0.1
    assert ([fire.fire_time for fire in desk.fires] == [START + 2 * MINUTE], bool(desk.reads)) == (not is_old, is_old)
    if is_old:
        desk.found(message)
        assert desk.fire.fire_time == START + 2 * MINUTE


def test_a_skip_that_is_denied_waits_and_reads_nothing_meanwhile() -> None:
    desk, _message, question = waiting("skip")
    desk.step(Unanswered(question, "may not", denied=True))
    assert desk.engine.ownership.denied is None, "a publisher can name any consumer: that makes no instance unable"
    assert not desk.engine.is_troubled
    desk.at(121.5)
    assert (len(desk.asked(CheckFinished)), desk.reads) == (1, [])
