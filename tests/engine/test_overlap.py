"""Fires that come due while the fire before is unfinished: what is sent, what is skipped, and what waits."""

import pytest

from nats_scheduler.engine.events import (
    Ending,
    FinishUnknown,
    FireReadBack,
    FiresMissed,
    FiresSkipped,
    FireTimedOut,
    ScheduleEnded,
)
from nats_scheduler.engine.fire import (
    Fire,
    ReadContent,
)
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.schedule.instants import HOUR, MINUTE
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.network import Fate, Perfect
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET
from tests.engine.overlap_worlds import (
    GUARDS,
    KEPT_STREAM,
    QUEUE_STREAM,
    RETENTIONS,
    SLACK,
    WORKERS,
    Counting,
    events,
    finish,
    headers,
    hours,
    world_with,
)


@GUARDS
@RETENTIONS
def test_skip_sends_nothing_while_the_fire_before_is_unfinished(kept: bool, guard: bool) -> None:
    world = world_with("skip", kept=kept, guard=guard)
    world.advance("3h30m")
    assert hours(world) == [1]
    finish(world)
    world.advance("1h")
    assert hours(world) == [1, 4], "no fire is made up for those that were skipped"
    assert [one.header("Nats-Schedule-Next") for one in world.generated] == [
        "2026-01-01T02:00:00Z",
        "2026-01-01T05:00:00Z",
    ]
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + hour * HOUR, 1, "skip") for hour in (2, 3)]
    assert events(world, FiresMissed) == []
    assert events(world, FinishUnknown) == []


@GUARDS
@RETENTIONS
def test_queue_sends_the_latest_fire_that_waited_once_the_one_before_is_finished(kept: bool, guard: bool) -> None:
    world = world_with("queue", kept=kept, guard=guard)
    world.advance("4h30m")
    assert hours(world) == [1]
    finish(world)
    ends = world.now
    world.advance(SLACK)
    assert hours(world) == [1, 4]
    assert ends <= world.generated[-1].stored_at <= ends + SLACK
    assert world.generated[-1].header("Nats-Schedule-Next") == "2026-01-01T05:00:00Z"
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * HOUR, 2, "queue")]
    assert events(world, FiresMissed) == [], "what waits is not missed"
    (read_back,) = [event for event in events(world, FireReadBack) if event.fire_time > START + HOUR]
    assert read_back.waited, "and not late"
    world.advance_to(START + 5 * HOUR + MINUTE)
    assert hours(world) == [1, 4], "the fire that was sent is the one before now"
    finish(world)
    world.advance(SLACK)
    assert hours(world) == [1, 4, 5]


@RETENTIONS
@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_fire_whose_fire_before_is_finished_is_sent_at_its_time(overlap: str, kept: bool) -> None:
    world = world_with(overlap, kept=kept)
    for hour in range(1, 5):
        world.advance("1h")
        assert hours(world) == list(range(1, hour + 1))
        assert world.generated[-1].stored_at == START + hour * HOUR
        finish(world)
    for kind in (FiresSkipped, FireTimedOut, FinishUnknown):
        assert events(world, kind) == []


def test_allow_asks_nothing() -> None:
    world = Counting()
    world.publish(SCHEDULE, headers("allow"))
    world.advance("5h")
    assert hours(world) == [1, 2, 3, 4, 5]
    assert world.questions == []


def test_an_at_has_no_fire_before() -> None:
    world = world_with("skip", "@at 2026-01-01T01:00:00Z")
    world.advance("2h")
    assert hours(world) == [1]
    assert world.next_fire(SCHEDULE) is None


def test_a_replacement_does_not_wait_for_the_fires_of_the_version_before() -> None:
    world = world_with("skip")
    world.advance("1h30m")
    world.publish(SCHEDULE, headers("skip"))
    world.advance("1h1m")
    assert hours(world) == [1, 2.5]


def test_other_schedules_fire_at_their_times_meanwhile() -> None:
    world = world_with("queue")
    world.publish("s.other", {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "t.other"})
    world.advance("5h")
    assert hours(world) == [1]
    assert [one.stored_at - one.fire_time for one in world.generated if one.subject == "t.other"] == [0] * 5


# -- X-Timeout ------------------------------------------------------------------------------------------------------


@RETENTIONS
def test_queue_sends_the_waiting_fire_when_the_one_before_is_timed_out(kept: bool) -> None:
    world = world_with("queue", kept=kept, Timeout="2h20m")
    world.advance("4h")
    assert hours(world) == [1, 3]
    assert world.generated[-1].stored_at == START + HOUR + 140 * MINUTE
    sequence = world.generated[0].sequence
    assert events(world, FireTimedOut) == [FireTimedOut(SCHEDULE, 1, sequence, START + HOUR, START + 2 * HOUR)]
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * HOUR, 1, "queue")]


@RETENTIONS
def test_skip_sends_the_first_fire_that_is_due_after_the_timeout(kept: bool) -> None:
    world = world_with("skip", kept=kept, Timeout="90m")
    world.advance("4h1m")
    assert hours(world) == [1, 3]
    assert [event.due for event in events(world, FireTimedOut)] == [START + 3 * HOUR]


def test_a_fire_that_is_finished_before_its_timeout_is_not_reported() -> None:
    world = world_with("skip", Timeout="30m")
    world.advance("1h1m")
    finish(world)
    world.advance("1h")
    assert hours(world) == [1, 2]
    assert events(world, FireTimedOut) == []


# -- what cannot be found out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_consumer_that_does_not_exist_finishes_nothing_and_is_reported_once(overlap: str) -> None:
    world = ScheduleWorld(config=KEPT_STREAM)
    world.publish(SCHEDULE, headers(overlap, Consumer="nobody"))
    world.advance("6h")
    assert hours(world) == [1]
    reason = "stream WORLD has no consumer 'nobody'"
    assert events(world, FinishUnknown) == [FinishUnknown(SCHEDULE, 1, START + 2 * HOUR, reason)]
    world.stream.add_consumer("nobody", TARGET).acknowledge_all()
    world.advance("1h")
    assert len(hours(world)) > 1, "it fires again once the consumer says that the fire is finished"


def test_a_consumer_that_does_not_receive_the_target_is_reported() -> None:
    world = ScheduleWorld(config=KEPT_STREAM)
    world.stream.add_consumer(WORKERS, "t.else")
    world.publish(SCHEDULE, headers("skip", Consumer=WORKERS))
    world.advance("3h")
    assert [event.reason for event in events(world, FinishUnknown)] == [
        f"consumer 'workers' does not receive '{TARGET}'"
    ]


class Unanswering(Perfect):
    """A network that, while `refuses` is set, answers no question about a schedule after its fire was stored."""

    def __init__(self) -> None:
        self.refuses = False

    def read(self, request: ReadContent) -> Fate:
        return Fate(refusal=Refused(503, 10008, "not now")) if self.refuses else super().read(request)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_question_without_an_answer_holds_the_fire_back_and_is_asked_again(overlap: str) -> None:
    network = Unanswering()
    world = ScheduleWorld(config=QUEUE_STREAM, network=network)
    world.publish(SCHEDULE, headers(overlap))
    world.advance("1h59m59s950ms")
    finish(world)
    network.refuses = True
    world.advance("1m")
    assert hours(world) == [1]
    assert [event.reason for event in events(world, FinishUnknown)] == ["not now"]
    network.refuses = False
    world.advance(SLACK)
    assert hours(world) == [1, 2], "it is not skipped, since nothing says that the one before was unfinished"


def test_a_timeout_ends_the_wait_for_an_answer() -> None:
    network = Unanswering()
    world = ScheduleWorld(config=QUEUE_STREAM, network=network)
    world.publish(SCHEDULE, headers("skip", Timeout="61m"))
    world.advance("1h59m59s950ms")
    network.refuses = True
    world.advance("59s")
    assert hours(world) == [1]
    world.advance("1m2s")
    network.refuses = False
    world.advance("1s")
    assert hours(world) == [1, 2]
    assert [event.reason for event in events(world, FireTimedOut)] == ["not now"]


# -- ends ------------------------------------------------------------------------------------------------------------


def test_the_last_fire_that_is_skipped_ends_the_schedule() -> None:
    world = world_with("skip", Limit="2")
    world.advance("2h1m")
    assert hours(world) == [1]
    assert world.stream.last(SCHEDULE) is None
    assert [event.ending for event in events(world, ScheduleEnded)] == [Ending.SKIPPED]


def test_the_last_fire_that_waits_is_sent_and_ends_the_schedule() -> None:
    world = world_with("queue", Limit="3")
    world.advance("5h")
    finish(world)
    world.advance(SLACK)
    assert hours(world) == [1, 3]
    assert world.generated[-1].header("Nats-Schedule-Next") == "purge"
    assert world.stream.last(SCHEDULE) is None


@GUARDS
@pytest.mark.parametrize("how", ["purge", "delete", "overwrite"])
def test_a_schedule_that_ends_while_it_waits_fires_no_more_and_says_what_it_skipped(how: str, guard: bool) -> None:
    world = world_with("queue", guard=guard)
    world.advance("3h30m")
    if how == "purge":
        world.purge(SCHEDULE)
    elif how == "delete":
        world.delete(1)
    else:
        world.publish(SCHEDULE)
    finish(world)
    world.advance("2h")
    assert hours(world) == [1]
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * HOUR, 2, "queue")]


class Full(Perfect):
    """A network of a stream that takes no fire while it is full."""

    def __init__(self) -> None:
        self.is_full = False

    def publish(self, fire: Fire) -> Fate:
        return Fate(refusal=Refused(503, 10077, "maximum messages exceeded")) if self.is_full else super().publish(fire)


@pytest.mark.parametrize(("missed", "stored"), [("once", [1, 3]), ("all", [1, 2, 3])])
def test_what_comes_due_after_the_wait_while_the_fire_is_refused_did_not_wait(missed: str, stored: list[int]) -> None:
    network = Full()
    world = ScheduleWorld(config=QUEUE_STREAM, network=network)
    world.publish(SCHEDULE, headers("queue", Missed=missed))
    world.advance("2h30m")
    network.is_full = True
    finish(world)
    world.advance("40m")
    network.is_full = False
    for _ in stored:
        world.advance("1m")
        finish(world)
    assert hours(world) == stored
    assert events(world, FiresSkipped) == [], "the fire before was finished"


@GUARDS
def test_a_schedule_whose_ttl_runs_out_while_it_waits_ends(guard: bool) -> None:
    world = ScheduleWorld(guard=guard, config=QUEUE_STREAM)
    world.publish(SCHEDULE, {**headers("queue"), "Nats-TTL": "3h"})
    world.advance("3h10m")
    finish(world)
    world.advance("2h")
    assert hours(world) == [1]
    assert world.next_fire(SCHEDULE) is None
    assert world.stream.last(SCHEDULE) is None
    assert len(events(world, FiresSkipped)) == 1
