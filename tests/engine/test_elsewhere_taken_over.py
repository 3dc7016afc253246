"""Schedules with targets in other streams when several instances serve their stream: none sees what another fires."""

from nats_scheduler.engine.actions import (
    Action,
    PublishFires,
    Report,
    WakeAt,
)
from nats_scheduler.engine.fire import (
    Fire,
    LookForFire,
    ReadContent,
)
from nats_scheduler.engine.firing.building import ServerLimits
from nats_scheduler.engine.inputs import (
    CaughtUp,
    CheckpointLoaded,
    ContentRead,
    FireLookedFor,
    Input,
    MessagesRead,
    PublishConcluded,
    ShardsHeld,
    Stored,
)
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.generated import MISSED, PREVIOUS
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.harness.blocks import block_of

NO_CHECKPOINT = CheckpointLoaded(through=-1, sequence=0)


class Other:
    """The engine of an instance that begins without a shard, of a stream with one schedule into another stream."""

    def __init__(self, pattern: str, *more: tuple[str, str]) -> None:
        rules = StreamRules("CRON", ("cron.>",))
        self.engine = StreamEngine(rules, DIALECTS, ServerLimits(guard=True))
        block = block_of(("X-Nats-Schedule", pattern), ("X-Nats-Schedule-X-Target", "jobs.run"), *more)
        self.message = StoredMessage("cron.a", 1, START, block, b"")
        self.step(0, ShardsHeld(frozenset()), MessagesRead([self.message]), CaughtUp())

    def step(self, seconds: float, *given: Input) -> list[Action]:
        """Step at a time in seconds since the start; return what it asks for, without waking it and reports."""
        actions = self.engine.step(START + int(seconds * SECOND), given)
        return [action for action in actions if not isinstance(action, WakeAt | Report)]

    def takes_over(self, seconds: float, settled: int | None = None) -> Fire:
        """Hold all shards, and return the fire that is looked for; a checkpoint may settle the first seconds."""
        checkpoint = NO_CHECKPOINT if settled is None else CheckpointLoaded(START + settled * SECOND, 1)
        [read] = self.step(seconds, checkpoint, ShardsHeld(ALL_SHARDS))
        assert isinstance(read, ReadContent)
        [look] = self.step(seconds, ContentRead("cron.a", 1, self.message, None))
        assert isinstance(look, LookForFire)
        return look.fire

    def fires(self, seconds: int) -> tuple[int, bytes]:
        """Fire at a time in seconds since the start, and have that stored; return the fire time and the headers."""
        [read] = self.step(seconds - 0.04)
        assert isinstance(read, ReadContent)
        self.step(seconds - 0.03, ContentRead("cron.a", 1, self.message, None))
        [publish] = self.step(seconds)
        assert isinstance(publish, PublishFires)
        [fire] = publish.fires
        sent = fire.fire_time, fire.block
        self.step(seconds + 0.01, PublishConcluded(fire, Stored(seconds)))
        return sent

    def reports(self, seconds: int) -> tuple[bytes | None, bytes | None]:
        """Fire, and return which fire the new one says was before it, and how many were dropped between."""
        _fire_time, block = self.fires(seconds)
        return header_value(block, PREVIOUS), header_value(block, MISSED)


def test_an_instance_is_not_taken_for_one_that_does_not_fire() -> None:
    other = Other("@every 5s")
    for seconds in range(1, 300):
        assert other.step(seconds) == []
    assert not other.engine.ownership.neglected
    [read] = other.step(306)
    assert isinstance(read, ReadContent), "it is read now and then, to notice that it is gone"


def test_a_takeover_looks_for_what_no_checkpoint_contains_and_for_nothing_else() -> None:
    fire = Other("@every 5s").takes_over(18.0)
    assert fire.fire_time == START + 15 * SECOND
    settled = Other("@every 5s")
    settled.step(18.0, CheckpointLoaded(START + 17 * SECOND, 1), ShardsHeld(ALL_SHARDS))
    assert settled.step(18.0) == []
    assert settled.fires(20)[0] == START + 20 * SECOND


def test_what_another_instance_fired_meanwhile_is_not_reported_as_missed() -> None:
    other = Other("@every 5s", ("X-Nats-Schedule-X-Report", "true"))
    other.step(18.0, CheckpointLoaded(START + 17 * SECOND, 1), ShardsHeld(ALL_SHARDS))
    assert other.reports(20) == (None, b"0"), "it is not known which one was before"
    assert other.reports(25) == (b"2026-01-01T00:00:20Z", b"0")
    other.step(26, ShardsHeld(frozenset()))
    other.step(48, CheckpointLoaded(START + 47 * SECOND, 2), ShardsHeld(ALL_SHARDS))
    assert other.reports(50) == (None, b"0")
    assert other.reports(55) == (b"2026-01-01T00:00:50Z", b"0")


def test_a_schedule_that_was_lost_during_the_look_is_left_to_its_holder() -> None:
    other = Other("@every 5s")
    fire = other.takes_over(18.0)
    other.step(18.1, ShardsHeld(frozenset()))
    assert other.step(18.2, FireLookedFor(fire, (), fire.fire_time)) == []
    assert other.engine.is_idle
    again = other.takes_over(40.0)
    assert again.fire_time == START + 40 * SECOND


def test_a_schedule_that_ends_during_the_look_is_not_fired() -> None:
    other = Other("@every 5s")
    fire = other.takes_over(18.0)
    other.step(18.1, MessagesRead([StoredMessage("cron.a", 2, START + 18 * SECOND, b"", b"")]))
    assert other.step(18.2, FireLookedFor(fire, (), fire.fire_time)) == []
    assert other.engine.is_idle


def test_a_schedule_of_another_holder_that_is_gone_is_noticed_after_a_while() -> None:
    other = Other("@at 2026-01-01T00:00:05Z")
    assert other.step(34.9) == []
    [read] = other.step(35.1)
    assert isinstance(read, ReadContent)
    other.step(35.2, ContentRead("cron.a", 1, None, None))
    assert other.engine.held.on("cron.a") is None
