"""Fires that wait for the fire before, where several instances hold the shards: who asks, who waits, who is blamed."""

import pytest

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import FiresMissed, FiresSkipped
from nats_scheduler.engine.fire import (
    CheckFinished,
    ReadContent,
)
from nats_scheduler.engine.firing.course import NEGLECT_LIMIT_NS
from nats_scheduler.engine.inputs import (
    CheckpointLoaded,
    FinishChecked,
    RemovalRequested,
    ShardsHeld,
    Stored,
    Unanswered,
)
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import Desk, schedule, stored_fire


def overlapping(overlap: str) -> StoredMessage:
    return schedule("@every 1m", Nats_Schedule_X_Overlap=overlap, Nats_Schedule_X_Consumer="workers")


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


def test_the_question_names_the_last_stored_fire() -> None:
    _desk, message, question = waiting()
    assert question == CheckFinished(message.subject, 1, "t.out", 1, 2, None)
    assert question.names_one


def test_a_holder_that_loses_its_shards_asks_no_more_and_the_answer_is_nothing_to_it() -> None:
    desk, message, question = waiting()
    desk.step(ShardsHeld(frozenset()))
    desk.step(FinishChecked(question))
    desk.at(140)
    assert (desk.fires, desk.asked(CheckFinished)) == ([], [])
    desk.step(ShardsHeld(ALL_SHARDS))
    assert desk.reads == [(message.subject, 1)]
    desk.found(message)
    [again] = desk.asked(CheckFinished)
    desk.step(FinishChecked(again))
    assert [fire.fire_time for fire in desk.fires] == [START + 2 * MINUTE]


def test_a_schedule_that_waits_at_another_holder_is_not_neglected_and_rarely_read() -> None:
    for overlap in ("skip", "queue"):
        message = overlapping(overlap)
        desk = Desk(message)
        desk.step(ShardsHeld(frozenset()))
        reads = 0
        for second in range(60, 1_000):
            desk.at(second)
            reads += len(desk.asked(ReadContent))
            if desk.reads:
                desk.found(message)
        assert desk.engine.ownership.neglected == {}
        assert 1 <= reads <= 4


def test_a_schedule_without_overlap_is_still_neglected() -> None:
    message = schedule("@every 1m", Nats_Schedule_X_Jitter="1s")
    desk = Desk(message)
    desk.step(ShardsHeld(frozenset()))
    desk.at(62 + NEGLECT_LIMIT_NS / SECOND)
    desk.found(message)
    assert desk.engine.ownership.neglected


def test_a_new_holder_goes_on_waiting_for_what_the_checkpoint_names() -> None:
    message = overlapping("queue")
    first = Desk(message)
    fire = first.in_flight(message, 60)
    stored = stored_fire(fire, 2, START + MINUTE)
    second = Desk(message, stored)
    second.step(ShardsHeld(frozenset()))
    second.at(150)
    checkpoint = CheckpointLoaded(START + 149 * SECOND, 2, frozenset({1}))
    second.step(checkpoint, ShardsHeld(ALL_SHARDS))
    second.found(message)
    [question] = second.asked(CheckFinished)
    assert (question.after, question.through) == (1, 2)
    second.step(FinishChecked(question, unfinished=2, stored_at=START + MINUTE))
    assert second.fires == []
    second.at(151)
    [again] = second.asked(CheckFinished)
    second.step(FinishChecked(again))
    second.found(message)
    assert [fire.fire_time for fire in second.fires] == [START + 2 * MINUTE]
    reported = [report.event for report in second.asked(Report)]
    assert [event for event in reported if isinstance(event, FiresMissed | FiresSkipped)] == []


def test_a_fire_that_another_holder_stored_meanwhile_is_the_one_before() -> None:
    desk, message, question = waiting()
    desk.step(FinishChecked(question, unfinished=2))
    other = Desk(message)
    theirs = other.in_flight(message, 120)
    desk.read(stored_fire(theirs, 3, START + 2 * MINUTE))
    desk.at(179.5)
    desk.found(message)
    [again] = desk.at(180).asked(CheckFinished)
    assert (again.after, again.through) == (2, 3)


def test_an_answer_to_an_earlier_question_changes_nothing() -> None:
    desk, _message, question = waiting()
    desk.step(FinishChecked(question, unfinished=2))
    desk.step(FinishChecked(question))
    desk.step(Unanswered(question, "late"))
    assert desk.fires == []


@pytest.mark.parametrize("overlap", ["skip", "queue"])
@pytest.mark.parametrize("is_answered", [True, False])
def test_an_answer_that_comes_while_the_schedule_is_read_again_is_asked_for_again(
    overlap: str, is_answered: bool
) -> None:
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
    assert len(desk.asked(CheckFinished)) == 1
    assert desk.reads == []
