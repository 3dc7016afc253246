"""The limit of held schedules: those beyond it are rejected, and those that are held stay."""

from nats_scheduler.engine.events import ScheduleRejected
from nats_scheduler.engine.firing.building import ServerLimits
from nats_scheduler.engine.inputs import CaughtUp, MessagesRead
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import Restrictions, StreamRules
from nats_scheduler.testing.clock import START
from tests.engine.direct import Desk, plain, schedule


def desk_for(most: int, *messages: StoredMessage) -> Desk:
    """Make a desk whose operator limits the number of schedules."""
    desk = Desk()
    rules = StreamRules("DESK", (">",), allow_msg_ttl=True, restrictions=Restrictions(max_schedules=most))
    desk.engine = StreamEngine(rules, DIALECTS, ServerLimits(guard=True))
    desk.actions = desk.engine.step(START, [MessagesRead(messages), CaughtUp()])
    return desk


def held_by(desk: Desk) -> list[str]:
    return [held.subject for held in desk.engine.held]


def test_a_schedule_beyond_the_limit_is_rejected_and_told() -> None:
    desk = desk_for(2, schedule("@daily", 1, "s.1"), schedule("@daily", 2, "s.2"))
    desk.read(schedule("@hourly", 3, "s.3"))
    [rejected] = desk.reported(ScheduleRejected)
    assert (rejected.schedule, rejected.rejection.code, rejected.rejection.value) == ("s.3", 10023, "@hourly")
    assert held_by(desk) == ["s.1", "s.2"]


def test_a_replacement_is_not_one_schedule_more() -> None:
    desk = desk_for(2, schedule("@daily", 1, "s.1"), schedule("@daily", 2, "s.2"))
    desk.read(schedule("@hourly", 3, "s.1"))
    assert desk.reported(ScheduleRejected) == []
    assert desk.engine.held.exactly("s.1", 3) is not None


def test_a_place_that_became_free_can_be_taken() -> None:
    desk = desk_for(1, schedule("@daily", 1, "s.1"))
    desk.read(plain("s.1", 2), schedule("@hourly", 3, "s.3"))
    assert held_by(desk) == ["s.3"]


def test_those_stored_first_are_held_after_a_restart() -> None:
    desk = desk_for(2, *(schedule("@daily", number, f"s.{number}") for number in range(1, 5)))
    assert held_by(desk) == ["s.1", "s.2"]
    assert [rejected.schedule for rejected in desk.reported(ScheduleRejected)] == ["s.3", "s.4"]
