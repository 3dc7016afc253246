"""A fire that may be in flight at the leader is not sent before that is concluded, on a stream with replicas."""

import pytest

from nats_scheduler.engine.fire import AwaitProposals
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    DuplicateRead,
    Outcome,
    ProposalsApplied,
    PublishConcluded,
    ShardsHeld,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from tests.engine.direct import SCHEDULE, Desk, schedule, stored_fire

SILENCE = Unknown("no acknowledgement")
IN_PROCESS = Unknown("in process", in_process=True)
NOT_RECEIVED = Unknown("no leader", may_be_stored=False)
EVERY = schedule("@every 20s")


def sent(**more: bool) -> Desk:
    """Return a desk with the fire of 20 s in flight."""
    desk = Desk(EVERY, **{"replicated": True, **more})
    desk.in_flight(EVERY, 20)
    return desk


def found_and_sent(desk: Desk) -> list[int]:
    """Answer reads of the schedule, and return the fire times (s) of what is sent then."""
    while desk.reads:
        desk.found(EVERY)
    return [(fire.fire_time - EVERY.stored_at) // 1_000_000_000 for fire in desk.fires]


@pytest.mark.parametrize("outcome", [SILENCE, IN_PROCESS])
@pytest.mark.parametrize("guard", [True, False])
def test_after_an_unknown_outcome_the_leader_is_asked_before_it_is_sent_again(outcome: Outcome, guard: bool) -> None:
    desk = sent(guard=guard)
    first = desk.fire
    desk.concluded(first, outcome)
    assert found_and_sent(desk.at(20.1)) == []
    assert desk.asked(AwaitProposals) == [AwaitProposals(first)]
    assert found_and_sent(desk.at(24)) == []
    desk.step(ProposalsApplied(first))
    assert found_and_sent(desk) == [20]
    again = desk.fire
    assert again.block == first.block
    desk.concluded(again, Stored(5, duplicate=True))
    desk.step(DuplicateRead(again, 5, stored_fire(again, 5, desk.now), desk.now))
    assert found_and_sent(desk.at(40)) == [40]


def test_a_question_that_was_asked_before_the_outcome_proves_nothing() -> None:
    other = schedule("@every 20s", 2, "s.other")
    desk = Desk(EVERY, other, replicated=True)
    desk.at(20)
    desk.found(EVERY)
    first = desk.fire
    desk.found(other)
    second = desk.fire
    desk.concluded(first, SILENCE)
    desk.at(20.1)
    [question] = desk.asked(AwaitProposals)
    desk.concluded(second, SILENCE)
    desk.at(20.2)
    desk.step(ProposalsApplied(question.fire))
    assert [fire.schedule for fire in desk.fires] == [SCHEDULE]
    assert desk.asked(AwaitProposals) == [AwaitProposals(second)]


def test_without_an_answer_it_is_asked_again_soon() -> None:
    desk = sent()
    fire = desk.fire
    desk.concluded(fire, SILENCE)
    for tenth in range(1, 100, 5):
        desk.at(20 + tenth / 10)
        assert found_and_sent(desk) == []
        assert desk.asked(AwaitProposals) == [AwaitProposals(fire)]
        desk.step(Unanswered(AwaitProposals(fire), "no answer"))


def test_a_leader_that_cannot_be_asked_keeps_no_fire_waiting() -> None:
    desk = sent()
    desk.concluded(desk.fire, SILENCE)
    [question] = desk.at(20.1).asked(AwaitProposals)
    desk.step(Unanswered(AwaitProposals(question.fire), "purge not permitted", denied=True))
    assert found_and_sent(desk.at(20.2)) == [20]


@pytest.mark.parametrize("outcome", [NOT_RECEIVED, SILENCE])
def test_nothing_is_asked_about_what_cannot_be_in_flight(outcome: Outcome) -> None:
    desk = sent(replicated=outcome is NOT_RECEIVED)
    desk.concluded(desk.fire, outcome)
    assert found_and_sent(desk.at(20.1)) == [20]
    assert desk.asked(AwaitProposals) == []


def test_what_was_due_before_the_contact_may_be_in_flight_from_an_earlier_life() -> None:
    desk = Desk(EVERY, replicated=True, live=False)
    desk.at(25)
    desk.step(CaughtUp())
    assert found_and_sent(desk) == []
    [question] = desk.asked(AwaitProposals)
    desk.step(ProposalsApplied(question.fire))
    assert found_and_sent(desk) == [20]
    desk.concluded(desk.fire, Stored(5))
    assert found_and_sent(desk.at(40)) == [40]


def test_what_was_due_before_a_shard_was_held_may_be_in_flight_from_its_holder() -> None:
    desk = Desk(EVERY, replicated=True)
    desk.step(ShardsHeld(frozenset()))
    desk.at(21)
    desk.step(ShardsHeld(ALL_SHARDS))
    assert found_and_sent(desk) == []
    [question] = desk.asked(AwaitProposals)
    desk.at(61)
    desk.step(ProposalsApplied(question.fire))
    assert found_and_sent(desk) == [60], "what came due meanwhile is one fire"


def test_the_end_of_the_contact_leaves_nothing_waiting() -> None:
    desk = sent()
    fire = desk.fire
    desk.concluded(fire, SILENCE)
    desk.at(20.1)
    desk.step(ContactLost("cut"), Unanswered(AwaitProposals(fire), "cut"))
    desk.at(22)
    desk.step(CaughtUp())
    assert found_and_sent(desk) == []
    assert desk.asked(AwaitProposals) == [AwaitProposals(fire)]
    desk.step(ProposalsApplied(fire))
    assert found_and_sent(desk) == [20]
    desk.step(PublishConcluded(desk.fire, Stored(5)))
