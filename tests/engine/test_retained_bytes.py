"""The memory that the engine keeps for stored fires: it is small, however large they were.

Bytes are counted in everything that can be reached from the engine, and not in a process.
"""

import gc
from types import FunctionType, MethodType, ModuleType

from nats_scheduler.engine.events import FireConfirmed
from nats_scheduler.engine.inputs import FiresStored, MessagesRead
from nats_scheduler.message.stored import StoredMessage
from tests.engine.direct import TARGET, Desk, plain, schedule

BODY = 50_000
LARGE = 4_096
"""A body of a test is larger than this (bytes); nothing of the engine's own is."""


def large_bytes(root: object) -> int:
    """Return how many bytes the large byte strings have that are kept alive by an object."""
    seen: set[int] = set()
    found, todo = 0, [root]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType, MethodType)):
            continue
        seen.add(id(one))
        if isinstance(one, bytes):
            found += len(one) if len(one) > LARGE else 0
        else:
            todo.extend(gc.get_referents(one))
    return found


def sampled(number: int) -> list[tuple[StoredMessage, StoredMessage]]:
    """Return schedules, each with what is stored on its source."""
    source = plain("in", 500, body=bytes(BODY))
    return [
        (schedule("@every 5s", n, f"s.{n}", Nats_Schedule_Source="in", Nats_Schedule_Rollup="sub"), source)
        for n in range(1, number + 1)
    ]


def fired_rounds(desk: Desk, schedules: list[tuple[StoredMessage, StoredMessage]], rounds: int) -> int:
    """Let all schedules fire several times; returns the sequence of the last fire that was stored."""
    sequence = 1_000
    for number in range(1, rounds + 1):
        desk.at(5 * number)
        fires = []
        for message, source in schedules:
            desk.found(message, source._replace(body=bytes(BODY)))  # new bytes, as those of a socket
            fires += desk.fires
        desk.step(FiresStored(fires, range(sequence + 1, sequence + 1 + len(fires))))
        sequence += len(fires)
    return sequence


def test_fires_that_were_rolled_up_before_they_were_read_keep_no_bodies() -> None:
    """They are passed by once something behind them was read."""
    schedules = sampled(10)
    desk = Desk(*(message for message, _source in schedules))
    last = fired_rounds(desk, schedules, 10)
    assert large_bytes(desk.engine) == 0
    desk.step(MessagesRead([plain(TARGET, last)]))
    seen = {event.stored_sequence for event in desk.reported(FireConfirmed)}
    while desk.step() and (more := desk.reported(FireConfirmed)):
        seen |= {event.stored_sequence for event in more}
    assert len(seen) == 100
