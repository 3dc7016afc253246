"""A fire of ours that a mapping of the account has moved is ours, and a message of a stranger is not."""

import pytest

from nats_scheduler.engine.events import FireConfirmed, FireForged, TargetMapped
from nats_scheduler.engine.firing.outcomes import ANSWERED_ELSEWHERE_ATTEMPTS, NO_STREAM_ATTEMPTS
from nats_scheduler.engine.holding.stored_over import MAX_MAPPED_TARGETS, Moves
from nats_scheduler.engine.inputs import Stored, Unknown
from tests.engine.direct import SCHEDULE, TARGET, Desk, plain, schedule, stored_fire

EVERY = schedule("@every 5s")


def test_what_was_acknowledged_is_ours_on_whatever_subject_it_is() -> None:
    desk = Desk(EVERY)
    for number in (1, 2, 3):
        fire = desk.in_flight(EVERY, 5) if number == 1 else desk.at(5 * number).fire
        moved = stored_fire(fire, 10 + number, desk.now)._replace(subject="moved")
        desk.concluded(fire, Stored(10 + number))
        desk.read(moved)
        mapped = TargetMapped(SCHEDULE, 1, TARGET, "its fires are stored on moved, so the account has a mapping")
        assert desk.reported(TargetMapped) == ([mapped] if number == 1 else [])
        assert [event.target for event in desk.reported(FireConfirmed)] == [TARGET]
        assert desk.reported(FireForged) == []


def test_another_sequence_or_no_identity_is_none_of_ours() -> None:
    for sequence, is_ours in ((12, True), (11, False)):
        desk = Desk(EVERY)
        fire = desk.in_flight(EVERY, 5)
        message = stored_fire(fire, sequence, desk.now)._replace(subject="moved")
        desk.concluded(fire, Stored(11))
        desk.read(message if is_ours else plain("moved", 11))
        assert desk.reported(TargetMapped) == []


@pytest.mark.parametrize(
    ("outcome", "reported_at"),
    [
        (Unknown("another stream answered", is_misplaced=True), ANSWERED_ELSEWHERE_ATTEMPTS),
        (Unknown("no stream answered", may_be_stored=False, is_misplaced=True), NO_STREAM_ATTEMPTS),
        (Unknown("no answer"), None),
    ],
)
def test_a_target_is_reported_once_when_it_was_answered_for_elsewhere(
    outcome: Unknown, reported_at: int | None
) -> None:
    desk, found = Desk(EVERY), []
    fire = desk.in_flight(EVERY, 5)
    for attempt in range(1, NO_STREAM_ATTEMPTS + 3):
        desk.concluded(fire, outcome)
        found += [(attempt, event.reason) for event in desk.reported(TargetMapped)]
        desk.now = desk.held().wake
        desk.step()
        if desk.reads:
            desk.found(EVERY)
        fire = desk.fire
    assert found == ([] if reported_at is None else [(reported_at, outcome.reason)])


def test_once_a_target_is_known_as_mapped_fires_of_others_are_believed() -> None:
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    first = stored_fire(fire, 11, desk.now)._replace(subject="moved")
    desk.concluded(fire, Stored(11))
    desk.read(first)
    following = desk.at(10).fire
    desk.read(stored_fire(following, 12, desk.now)._replace(subject="moved.again"))
    assert desk.reported(FireForged) == []
    assert desk.due == 15


def test_the_targets_that_are_known_are_bounded() -> None:
    moves = Moves(moves_all=False)
    news = [moves.is_news(f"t.{number}") for number in range(MAX_MAPPED_TARGETS + 10)]
    assert (sum(news), moves.moves("t.0"), moves.moves(f"t.{MAX_MAPPED_TARGETS}")) == (MAX_MAPPED_TARGETS, True, False)
    assert not moves.is_news("t.0")
