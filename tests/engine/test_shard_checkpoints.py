"""The claims of a checkpoint when shards change hands."""

from nats_scheduler.engine.inputs import CaughtUp, MessagesRead, Refused
from nats_scheduler.engine.sharing.holdings import MAX_UNSETTLED_PER_SHARD
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, shard_of
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule
from tests.engine.test_shards import EVERY, NONE, hold


def test_the_checkpoint_speaks_for_what_is_still_held() -> None:
    message = schedule(EVERY)
    desk = Desk(message)
    desk.in_flight(message, 5)
    mine = ALL_SHARDS - {shard_of(SCHEDULE)}
    hold(desk, mine)
    desk.at(8)
    settled = desk.engine.checkpoint(desk.now)
    assert (settled.through, settled.shards) == (desk.now, mine)


def test_what_is_refused_or_rejected_elsewhere_is_no_exception_of_this_checkpoint() -> None:
    message = schedule(EVERY)
    desk = Desk(message, schedule("@every soon", 2, "s.two"))
    desk.concluded(desk.in_flight(message, 5), Refused(503, 10077, "maximum messages exceeded"))
    assert desk.engine.checkpoint(desk.now).unsettled == {1, 2}
    hold(desk, NONE)
    assert desk.engine.checkpoint(desk.now).unsettled == frozenset()


def test_what_is_refused_and_finds_no_room_holds_it_back() -> None:
    """Otherwise the next holder would consider it settled, and purge it unfired."""
    subjects = [name for name in map("s.{}".format, range(10_000)) if shard_of(name) == 0]
    subjects = subjects[: MAX_UNSETTLED_PER_SHARD + 5]
    messages = [
        schedule(f"@at 2026-01-01T00:00:{10 + number:02}Z", number + 1, subject)
        for number, subject in enumerate(subjects)
    ]
    desk = Desk(*messages)
    hold(desk, frozenset({0}))
    for number, message in enumerate(messages):
        fire = desk.in_flight(message, 10 + number)
        desk.concluded(fire, Refused(503, 10077, "maximum messages exceeded"))
    settled = desk.engine.checkpoint(desk.now)
    assert settled.unsettled == set(range(1, MAX_UNSETTLED_PER_SHARD + 1))
    assert settled.through == START + (10 + MAX_UNSETTLED_PER_SHARD) * SECOND - 1
    later = Desk(live=False)
    later.now = desk.now
    later.step(settled, MessagesRead(messages), CaughtUp())
    assert (later.purges, len(later.reads)) == ([], len(messages))
