"""The streams that an instance takes over first: those with the earliest fires."""

from nats_scheduler.engine.inputs import ShardsHeld
from tests.engine.direct import Desk, schedule


def test_streams_are_ordered_by_their_next_fires_whichever_instance_holds_them() -> None:
    due_first, due_next = Desk(schedule("@every 5s")), Desk(schedule("@every 20s"))
    later, never = Desk(schedule("@every 1h")), Desk()
    for desk in (due_first, due_next, later, never):
        desk.step(ShardsHeld(frozenset()))
        desk.at(19.5)
    ordered = sorted((never, later, due_next, due_first), key=lambda desk: desk.engine.urgency)
    assert ordered == [due_first, due_next, later, never]
