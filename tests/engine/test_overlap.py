"""Fires that come due while the fire before is unfinished: what is sent, what is skipped, and what waits.

It tests `engine/firing/blocking.py`.
"""

from collections.abc import Sequence
from itertools import product

import pytest

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import (
    Ending,
    FinishUnknown,
    FireConfirmed,
    FiresMissed,
    FiresSkipped,
    FireTimedOut,
    ScheduleEnded,
)
from nats_scheduler.engine.fire import CheckFinished, FetchContent, Fire
from nats_scheduler.engine.holding.ownership import UNFIRED_LIMIT_NS
from nats_scheduler.engine.inputs import (
    CaughtUp,
    Checkpoint,
    FinishChecked,
    MessagesRead,
    OwnershipChanged,
    Refused,
    RemovalRequested,
    ServerLimits,
    Stored,
    Unanswered,
)
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.views.seen import done
from nats_scheduler.message.dialect import DIALECTS
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


GUARDS = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])


RETENTIONS = pytest.mark.parametrize("kept", [False, True], ids=["work queue", "limits"])


BOTH = (False, True)


def headers(overlap: str, pattern: str = "@every 1m", **more: str) -> dict[str, str]:
    policies = {f"Nats-Schedule-X-{name}": value for name, value in {"Overlap": overlap, **more}.items()}
    return {"Nats-Schedule": pattern, "Nats-Schedule-Target": TARGET, **policies}


def world_with(
    overlap: str, pattern: str = "@every 1m", *, guard: bool = True, kept: bool = False, **more: str
) -> ScheduleWorld:
    """Begin a world with a schedule, and with a consumer where the stream keeps what was acknowledged."""
    world = ScheduleWorld(guard=guard, config=KEPT_STREAM if kept else QUEUE_STREAM)
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


@GUARDS
@RETENTIONS
def test_skip_sends_nothing_while_the_fire_before_is_unfinished(kept: bool, guard: bool) -> None:
    world = world_with("skip", kept=kept, guard=guard)
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


@GUARDS
@RETENTIONS
def test_queue_sends_the_latest_fire_that_waited_once_the_one_before_is_finished(kept: bool, guard: bool) -> None:
    world = world_with("queue", kept=kept, guard=guard)
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


def test_a_fire_whose_fire_before_is_finished_is_sent_at_its_time() -> None:
    for overlap, kept in product(("skip", "queue"), BOTH):
        world = world_with(overlap, kept=kept, Timeout="30s")
        for number in range(1, 5):
            world.advance("1m")
            assert minutes(world) == list(range(1, number + 1)), (overlap, kept)
            assert world.generated[-1].stored_at == START + number * MINUTE
            finish(world)
        for kind in (FiresSkipped, FireTimedOut, FinishUnknown):
            assert events(world, kind) == [], (overlap, kept)


def test_allow_asks_nothing_and_an_at_has_no_fire_before() -> None:
    world = Counting()
    world.publish(SCHEDULE, headers("allow"))
    world.advance("5m")
    assert (minutes(world), world.questions) == ([1, 2, 3, 4, 5], [])
    once = world_with("skip", "@at 2026-01-01T00:01:00Z")
    once.advance("2m")
    assert (minutes(once), once.next_fire(SCHEDULE)) == ([1], None)


def test_a_replacement_does_not_wait_for_the_fires_of_the_version_before() -> None:
    world = world_with("skip")
    world.advance("1m30s")
    world.publish(SCHEDULE, headers("skip"))
    world.advance("1m1s")
    assert minutes(world) == [1, 2.5]


# -- X-Timeout ------------------------------------------------------------------------------------------------------


@RETENTIONS
def test_queue_sends_the_waiting_fire_when_the_one_before_is_timed_out_and_skip_the_next_one(kept: bool) -> None:
    world = world_with("queue", kept=kept, Timeout="2m20s")
    world.advance("4m")
    assert minutes(world) == [1, 3]
    assert world.generated[-1].stored_at == START + MINUTE + 140 * SECOND
    sequence = world.generated[0].sequence
    assert events(world, FireTimedOut) == [FireTimedOut(SCHEDULE, 1, sequence, START + MINUTE, START + 2 * MINUTE)]
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * MINUTE, 1, "queue")]
    world = world_with("skip", kept=kept, Timeout="90s")
    world.advance("4m1s")
    assert minutes(world) == [1, 3]
    assert [event.due for event in events(world, FireTimedOut)] == [START + 3 * MINUTE]


# -- what cannot be found out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_consumer_that_does_not_exist_finishes_nothing_and_is_reported_once(overlap: str) -> None:
    world = ScheduleWorld(config=KEPT_STREAM)
    world.publish(SCHEDULE, headers(overlap, Consumer="nobody"))
    world.advance("6m")
    assert minutes(world) == [1]
    reason = "stream WORLD has no consumer 'nobody'"
    assert events(world, FinishUnknown) == [FinishUnknown(SCHEDULE, 1, START + 2 * MINUTE, reason)]
    world.stream.add_consumer("nobody", TARGET).acknowledge_all()
    world.advance("1m")
    assert len(minutes(world)) > 1, "it fires again once the consumer says that the fire is finished"
    other = ScheduleWorld(config=KEPT_STREAM)
    other.stream.add_consumer(WORKERS, "t.else")
    other.publish(SCHEDULE, headers(overlap, Consumer=WORKERS))
    other.advance("3m")
    reasons = [event.reason for event in events(other, FinishUnknown)]
    assert reasons == [f"consumer 'workers' does not receive '{TARGET}'"]


class Failing(Perfect):
    """A network that refuses fires, or answers no question about a schedule after its fire was stored."""

    refuses_fires = refuses_reads = False

    def publish(self, fire: Fire) -> Fate:
        refusal = Refused(503, 10077, "maximum messages exceeded")
        return Fate(refusal=refusal) if self.refuses_fires else super().publish(fire)

    def read(self, request: FetchContent) -> Fate:
        return Fate(refusal=Refused(503, 10008, "not now")) if self.refuses_reads else super().read(request)


def failing_world(overlap: str, **more: str) -> tuple[ScheduleWorld, Failing]:
    network = Failing()
    world = ScheduleWorld(config=QUEUE_STREAM, network=network)
    world.publish(SCHEDULE, headers(overlap, **more))
    return world, network


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_question_without_an_answer_holds_the_fire_back_and_is_asked_again(overlap: str) -> None:
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


def test_it_is_reported_that_the_third_question_in_a_row_had_no_answer() -> None:
    message = schedule("@every 1m", Nats_Schedule_X_Overlap="queue", Nats_Schedule_X_Consumer=WORKERS)
    desk = Desk(message)
    fire = desk.in_flight(message, 60)
    desk.concluded(fire, Stored(2))
    desk.read(stored_fire(fire, 2, desk.now))
    desk.at(120)
    reported = []
    for is_answered in (False, False, True, False, False, False, False):
        if desk.reads:
            desk.found(message)
        (question,) = desk.asked(CheckFinished)
        desk.step(FinishChecked(question, 2, desk.now) if is_answered else Unanswered(question, "no answer"))
        reported.append(len(desk.reported(FinishUnknown)))
        desk.at(desk.wake)
    assert reported == [0, 0, 0, 0, 0, 1, 0]


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


@pytest.mark.parametrize(("missed", "stored"), [("once", [1, 3]), ("all", [1, 2, 3])])
def test_what_comes_due_after_the_wait_while_the_fire_is_refused_did_not_wait(missed: str, stored: list[int]) -> None:
    world, network = failing_world("queue", Missed=missed)
    world.advance("2m30s")
    network.refuses_fires = True
    finish(world)
    world.advance("35s")
    network.refuses_fires = False
    for _ in stored:
        world.advance("15s")
        finish(world)
    assert minutes(world) == stored
    assert events(world, FiresSkipped) == [], "the fire before was finished"


# -- ends ------------------------------------------------------------------------------------------------------------


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


@GUARDS
@pytest.mark.parametrize("how", ["purge", "delete", "overwrite", "ttl"])
def test_a_schedule_that_ends_while_it_waits_fires_no_more_and_says_what_it_skipped(how: str, guard: bool) -> None:
    world = ScheduleWorld(guard=guard, config=QUEUE_STREAM)
    world.publish(SCHEDULE, {**headers("queue"), **({"Nats-TTL": "3m20s"} if how == "ttl" else {})})
    world.advance("3m30s")
    if how == "purge":
        world.purge(SCHEDULE)
    elif how == "delete":
        world.delete(1)
    elif how == "overwrite":
        world.publish(SCHEDULE)
    finish(world)
    world.advance("2m")
    assert (minutes(world), world.next_fire(SCHEDULE)) == ([1], None)
    assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * MINUTE, 2, "queue")]


# -- restarts and outages --------------------------------------------------------------------------------------------


def test_a_restart_while_a_fire_waits_loses_nothing_and_sends_nothing_early() -> None:
    for with_checkpoint, kept, guard in product(BOTH, BOTH, BOTH):
        case = f"{with_checkpoint=} {kept=} {guard=}"
        world = world_with("queue", kept=kept, guard=guard)
        world.advance("2m20s")
        world.restart("5s", with_checkpoint=with_checkpoint)
        world.advance("10s")
        assert minutes(world) == [1], case
        finish(world)
        world.restart("5s", with_checkpoint=with_checkpoint)
        world.advance(SLACK)
        assert minutes(world) == [1, 2], case
        world.advance_to(START + 3 * MINUTE + SECOND)
        assert minutes(world) == [1, 2], case


@RETENTIONS
def test_a_restart_while_the_fire_before_is_unfinished_skips_as_before(kept: bool) -> None:
    world = world_with("skip", kept=kept)
    world.advance("1m30s")
    world.restart("1m", with_checkpoint=False)
    world.advance("1m")
    assert minutes(world) == [1]
    finish(world)
    world.advance("1m")
    assert minutes(world) == [1, 4]


def test_a_fire_that_was_consumed_during_a_takeover_is_finished() -> None:
    world = world_with("queue")
    world.advance("1m30s")
    finish(world)
    world.checkpoint = world.engine.checkpoint(world.now)
    world.restart("10s")
    world.advance("30s")
    assert minutes(world) == [1, 2]


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_fire_under_those_of_others_is_found_after_a_restart(overlap: str) -> None:
    """Where not every message is read, an instance that starts knows only the last message on each subject."""
    world = world_with(overlap)
    world.publish("s.other", {"Nats-Schedule": "@every 7s", "Nats-Schedule-Target": TARGET})
    world.advance("1m50s")
    mine = next(one for one in world.generated if one.header("Nats-Scheduler") == SCHEDULE)
    last = {message.subject: message for message in world.stream.messages()}
    desk = Desk()
    desk.engine = StreamEngine(world.stream.rules, DIALECTS, ServerLimits(guard=True), reads_all=False)
    desk.now, through = world.now, world.stream.last_sequence
    messages = sorted(last.values(), key=lambda message: message.sequence)
    desk.step(OwnershipChanged(True, Checkpoint(desk.now, through)), MessagesRead(messages), CaughtUp(through))
    desk.at(119.5)
    desk.found(last[SCHEDULE])
    [asked] = desk.at(120).asked(CheckFinished)
    assert (asked.after, asked.consumer, asked.through >= mine.sequence) == (1, None, True)
    assert desk.fires == []


@RETENTIONS
def test_an_outage_or_a_clock_step_while_a_fire_waits_changes_nothing(kept: bool) -> None:
    world = world_with("queue", kept=kept)
    world.advance("2m30s")
    world.lose_contact()
    world.advance("1m")
    finish(world)
    assert minutes(world) == [1]
    world.regain_contact()
    world.advance(SLACK)
    assert minutes(world) == [1, 3]
    assert events(world, FiresMissed) == []
    world = world_with("queue", kept=kept)
    world.advance("2m30s")
    world.step_clock(-20 * SECOND)
    finish(world)
    world.advance(SLACK)
    assert minutes(world) == [1, 2], "a clock that goes back makes no fire wait longer"


# -- beside X-Missed ---------------------------------------------------------------------------------------------------


def test_what_waits_is_not_missed_whatever_happens_to_missed_fires() -> None:
    for missed, guard in product(("skip", "all", "all 2", "once"), BOTH):
        world = world_with("queue", guard=guard, Missed=missed, Grace="1s")
        world.advance("4m30s")
        finish(world)
        world.advance(SLACK)
        assert minutes(world) == [1, 4], (missed, guard)
        assert events(world, FiresMissed) == [], (missed, guard)
        assert events(world, FiresSkipped) == [FiresSkipped(SCHEDULE, 1, START + 2 * MINUTE, 2, "queue")]


def test_a_backlog_is_sent_only_as_far_as_each_fire_is_finished() -> None:
    world = world_with("skip", Missed="all")
    world.advance("1m30s")
    finish(world)
    world.checkpoint = world.engine.checkpoint(world.now)
    world.restart("3m", with_checkpoint=True)
    world.advance("1s")
    assert minutes(world) == [1, 2], "the first of the backlog is unfinished when the next one is to be sent"
    assert [event.count for event in events(world, FiresSkipped)] == [2]


# -- how much is asked and kept --------------------------------------------------------------------------------------


def crowd(overlap: str, pattern: str, size: int) -> Counting:
    world = Counting()
    for number in range(size):
        world.publish(f"s.{number}", {**headers(overlap, pattern), "Nats-Schedule-Target": f"t.{number}"})
    return world


def asked_in(world: Counting, span: str) -> list[CheckFinished]:
    """Let time pass, and return what was asked meanwhile."""
    world.questions.clear()
    world.advance(span)
    return world.questions


def test_hundreds_of_waiting_fires_ask_at_most_two_hundred_questions_a_second() -> None:
    world = crowd("queue", "@every 1m", 220)
    world.advance("2m")
    asked = asked_in(world, "2s")
    assert 220 < len(asked) <= 401
    assert len({one.schedule for one in asked}) == 220, "each gets its turn"
    assert len(world.generated) == 220
    world.stream.take("t.*")
    world.advance("8s")
    assert len(world.generated) == 440


def test_schedules_that_skip_each_second_ask_no_more_either() -> None:
    world = crowd("skip", "@every 1s", 220)
    world.advance("2s")
    assert 200 < len(asked_in(world, "2s")) <= 401
    world.stream.take("t.*")
    before = len(world.generated)
    world.advance("2s")
    assert len(world.generated) >= before + 220


def test_one_waiting_fire_is_asked_about_less_and_less_often() -> None:
    world = crowd("queue", "@every 1h", 1)
    world.advance("2h")
    counts = [len(asked_in(world, span)) for span in ("1s", "10s", "1m", "10m")]
    assert (counts[0] <= 10, counts[2] <= 20, counts[3]) == (True, True, 120)


def test_a_schedule_that_waits_is_held_back_and_not_overdue_keeps_no_content_and_disturbs_no_other() -> None:
    world = world_with("queue")
    world.publish("s.other", {"Nats-Schedule": "@every 1m", "Nats-Schedule-Target": "t.other"})
    world.advance("2m30s")
    held, figures, checkpoint = (
        world.engine.held.on(SCHEDULE),
        done(world.engine.figures(world.now)),
        world.engine.checkpoint(world.now),
    )
    assert held is not None
    assert held.flight is not None
    assert held.flight.is_blocked
    assert (held.flight.content, held.flight.fire) == (None, None)
    assert (checkpoint.through, checkpoint.unsettled) == (world.now, frozenset({1})), "it holds nothing back"
    assert (figures.blocked, figures.blocked_since, figures.overdue) == (1, START + 2 * MINUTE, 0)
    world.purge("s.other")
    assert world.engine.urgency[0] == 1, "it is no urgent one"
    assert not any(isinstance(action, Report) for action in world.engine.step(world.now, ()))
    world.restart("2m")
    world.advance("20s")
    assert done(world.engine.figures(world.now)).blocked_since == START + 2 * MINUTE, "it goes on waiting"
    finish(world)
    world.advance(SLACK)
    figures = done(world.engine.figures(world.now))
    assert (figures.blocked, figures.blocked_since) == (0, None)
    assert [one.stored_at - one.fire_time for one in world.generated if one.subject == "t.other"] == [0] * 2


# -- several instances: who asks, who waits, who is blamed ------------------------------------------------------------


def overlapping(overlap: str) -> StoredMessage:
    return schedule("@every 1m", Nats_Schedule_X_Overlap=overlap, Nats_Schedule_X_Consumer=WORKERS)


def waiting(overlap: str = "queue") -> tuple[Desk, StoredMessage, CheckFinished]:
    """Return an engine that asks, at two minutes, about the first fire, which is stored as message 2."""
    message = overlapping(overlap)
    desk = Desk(message)
    fire = desk.in_flight(message, 60)
    desk.concluded(fire, Stored(2))
    desk.read(stored_fire(fire, 2, START + MINUTE))
    desk.at(119.5)
    desk.found(message)
    [question] = desk.at(120).asked(CheckFinished)
    return desk, message, question


def test_the_question_names_the_last_stored_fire_also_if_another_owner_stored_it() -> None:
    desk, message, question = waiting()
    assert question == CheckFinished(message.subject, 1, "t.out", 1, 2, None)
    assert question.names_one
    desk.step(FinishChecked(question, unfinished=2))
    desk.step(FinishChecked(question), Unanswered(question, "late"))
    assert desk.fires == [], "an answer to an earlier question changes nothing"
    theirs = Desk(message).in_flight(message, 120)
    desk.read(stored_fire(theirs, 3, START + 2 * MINUTE))
    desk.at(179.5)
    desk.found(message)
    [again] = desk.at(180).asked(CheckFinished)
    assert (again.after, again.through) == (2, 3)


def test_one_that_owns_the_stream_no_more_asks_no_more_and_the_answer_is_nothing_to_it() -> None:
    desk, message, question = waiting()
    desk.step(OwnershipChanged(False))
    desk.step(FinishChecked(question))
    desk.at(140)
    assert (desk.fires, desk.asked(CheckFinished)) == ([], [])
    desk.step(OwnershipChanged(True))
    assert desk.reads == [(message.subject, 1)]
    desk.found(message)
    [again] = desk.asked(CheckFinished)
    desk.step(FinishChecked(again))
    assert [fire.fire_time for fire in desk.fires] == [START + 2 * MINUTE]


def test_a_schedule_that_waits_at_the_owner_does_not_count_as_unfired_and_a_standby_rarely_reads_it() -> None:
    for overlap in ("skip", "queue"):
        message = overlapping(overlap)
        desk = Desk(message)
        desk.step(OwnershipChanged(False))
        reads = 0
        for second in range(60, 1_000):
            reads += len(desk.at(second).asked(FetchContent))
            if desk.reads:
                desk.found(message)
        assert desk.engine.ownership.unfired == 0
        assert 1 <= reads <= 4
    message = schedule("@every 1m", Nats_Schedule_X_Jitter="1s")
    desk = Desk(message)
    desk.step(OwnershipChanged(False))
    desk.at(62 + UNFIRED_LIMIT_NS / SECOND)
    desk.found(message)
    assert desk.engine.ownership.unfired, "one without an overlap is"


def test_a_new_owner_goes_on_waiting_for_what_the_checkpoint_names() -> None:
    message = overlapping("queue")
    fire = Desk(message).in_flight(message, 60)
    desk = Desk(message, stored_fire(fire, 2, START + MINUTE))
    desk.step(OwnershipChanged(False))
    desk.at(150)
    desk.step(OwnershipChanged(True, Checkpoint(START + 149 * SECOND, 2, frozenset({1}))))
    desk.found(message)
    [question] = desk.asked(CheckFinished)
    assert (question.after, question.through) == (1, 2)
    desk.step(FinishChecked(question, unfinished=2, stored_at=START + MINUTE))
    assert desk.fires == []
    [again] = desk.at(151).asked(CheckFinished)
    desk.step(FinishChecked(again))
    desk.found(message)
    assert [fire.fire_time for fire in desk.fires] == [START + 2 * MINUTE]
    assert (desk.reported(FiresMissed), desk.reported(FiresSkipped)) == ([], [])


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_an_answer_that_comes_while_the_schedule_is_read_again_is_asked_for_again(overlap: str) -> None:
    for is_answered in BOTH:
        desk, message, question = waiting(overlap)
        desk.step(RemovalRequested(message.subject, below=1))
        assert desk.reads == [(message.subject, 1)]
        desk.step(FinishChecked(question, unfinished=2) if is_answered else Unanswered(question, "lost"))
        desk.found(message)
        assert desk.asked(CheckFinished) == [question]
        desk.step(FinishChecked(question))
        assert [fire.fire_time for fire in desk.fires] == [START + 2 * MINUTE]


def test_a_skip_that_is_denied_waits_and_reads_nothing_meanwhile() -> None:
    desk, _message, question = waiting("skip")
    desk.step(Unanswered(question, "may not", denied=True))
    assert desk.engine.ownership.denied is None, "a publisher can name any consumer: that makes no instance unable"
    assert not desk.engine.is_troubled
    desk.at(121.5)
    assert (len(desk.asked(CheckFinished)), desk.reads) == (1, [])
