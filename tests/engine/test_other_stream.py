"""Targets in other streams: what is stored there, by crashes, outages and takeovers too, and when it is looked for."""

import pytest

from nats_scheduler.engine.events import FireConfirmed, FireRefused, FiresMissed, FireStored
from nats_scheduler.engine.fire import Fire, LookForFire
from nats_scheduler.engine.inputs import (
    NOTHING_SETTLED,
    CaughtUp,
    Checkpoint,
    FireLookedFor,
    MessagesRead,
    OwnershipChanged,
)
from nats_scheduler.message.headers import header_value, with_headers
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.memory_stream import MemoryStream
from nats_scheduler.testing.network import DONE, Fate, Perfect
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, Desk, events, message_on

EVERY_5S = {"X-Nats-Schedule": "@every 5s", "X-Nats-Schedule-X-Target": "jobs.run"}
AT_10S = {"X-Nats-Schedule": "@at 2026-01-01T00:00:10Z", "X-Nats-Schedule-X-Target": "jobs.run"}
SHORT = {"duplicate_window": SECOND}


class Watched(Perfect):
    """A network that records fires, and gives them the fate that a test has set."""

    def __init__(self) -> None:
        self.fires: list[Fire] = []
        self.fate = DONE

    def publish(self, fire: Fire) -> Fate:
        self.fires.append(fire)
        return self.fate


def world_of(network: Watched | None = None, **config: int) -> tuple[ScheduleWorld, MemoryStream]:
    world = ScheduleWorld(["cron.>"], network=network)
    return world, world.add_stream("JOBS", ["jobs.>"], SHORT | config)


def stored(stream: MemoryStream) -> list[int]:
    """Return the fire times (s since the start) of what is stored in a stream."""
    identities = [header_value(message.block, b"Nats-Msg-Id") or b"" for message in stream.messages()]
    return [(int(identity.split(b":")[2]) - START) // SECOND for identity in identities]


def claims(fire_time: int, following: bytes, sequence: int = 1) -> bytes:
    """Return the headers of a message that claims to be a fire of `cron.a` for a time (s since the start)."""
    identity = fire_identity("cron.a", sequence, START + fire_time * SECOND).encode()
    named = [(b"X-Nats-Scheduler", b"cron.a"), (b"X-Nats-Schedule-Next", following), (b"Nats-Msg-Id", identity)]
    return with_headers(b"", named)


def test_a_fire_is_stored_in_the_stream_that_has_its_target() -> None:
    world, jobs = world_of()
    sequence = world.publish("cron.a", {**EVERY_5S, "Lamp": "kitchen"}, b"on")
    world.advance("10s")
    assert stored(jobs) == [5, 10]
    [first, _second] = jobs.messages()
    assert (first.subject, first.body) == ("jobs.run", b"on")
    assert first.block == with_headers(
        b"NATS/1.0\r\n\r\n",
        [
            (b"Lamp", b"kitchen"),
            (b"X-Nats-Scheduler", b"cron.a"),
            (b"X-Nats-Schedule-Next", b"2026-01-01T00:00:10Z"),
            (b"Nats-Msg-Id", fire_identity("cron.a", sequence, START + 5 * SECOND).encode()),
        ],
    ), "no guard: it would be compared with a message of this stream"
    assert len(world.stream) == 1
    assert [fire.target for fire in events(world, FireConfirmed)] == ["jobs.run"] * 2


def test_what_is_replaced_or_purged_before_the_look_does_not_fire() -> None:
    """A purge after the look is in time too if the request is seen."""
    world, jobs = world_of()
    for subject, body in (("cron.a", b"old"), ("cron.b", b"purged"), ("cron.c", b"purged at last")):
        world.publish(subject, AT_10S, body)
    world.advance("9900ms")
    world.publish("cron.a", AT_10S, b"new")
    world.purge("cron.b")
    world.advance("90ms")
    world.purge("cron.c")
    world.advance("10s")
    assert [message.body for message in jobs.messages()] == [b"new"]


def test_a_crash_beyond_the_duplicate_window_stores_no_fire_twice() -> None:
    world, jobs = world_of()
    world.publish("cron.a", EVERY_5S)
    world.publish("cron.b", AT_10S)
    world.advance("10s")
    world.checkpoint = NOTHING_SETTLED
    world.stream.publish("cron.c", b"", b"")
    world.restart("3s", with_checkpoint=False)
    world.advance("2s")
    assert sorted(stored(jobs)) == [5, 10, 10, 15]
    world.checkpoint = NOTHING_SETTLED
    world.restart("8s", with_checkpoint=False)
    assert sorted(stored(jobs)) == [5, 10, 10, 15, 20]
    assert events(world, FiresMissed) == [], "one that is merely late is not missed"


def test_a_crash_between_storing_and_purging_stores_an_at_once() -> None:
    network = Watched()
    world, jobs = world_of(network)
    world.publish("cron.a", AT_10S)
    world.advance("9999ms")
    network.fate = Fate(answered=False)
    world.advance("2ms")
    assert stored(jobs) == [10]
    network.fate = DONE
    world.restart("1h", with_checkpoint=False)
    assert stored(jobs) == [10]
    assert len(world.stream) == 0, "it was found, and its schedule is done"
    [found] = [event for event in world.events if isinstance(event, FireStored)]
    assert (found.stored_sequence, found.duplicate) == (1, True)


def test_what_an_outage_left_unknown_is_looked_for_and_not_repeated() -> None:
    network = Watched()
    world, jobs = world_of(network)
    world.publish("cron.a", EVERY_5S)
    world.advance("4s")
    network.fate = Fate(answered=False)
    world.advance("1s")
    network.fate = DONE
    assert stored(jobs) == [5]
    world.advance("14s")
    assert stored(jobs) == [5, 10, 15]
    assert [fire.fire_time for fire in network.fires] == sorted({fire.fire_time for fire in network.fires})


def test_a_target_that_no_stream_has_is_retried_until_one_has_it() -> None:
    world = ScheduleWorld(["cron.>"])
    world.publish("cron.a", EVERY_5S)
    world.advance("12s")
    [refused] = [event for event in world.events if isinstance(event, FireRefused)]
    assert (refused.code, refused.description) == (
        10059,
        "no stream has the target as one of its subjects, or that stream has no leader",
    )
    assert world.engine.failing_count == 1
    jobs = world.add_stream("JOBS", ["jobs.>"])
    world.advance("2s")
    assert stored(jobs) == [10], "the make-up fire of the latest"
    assert world.engine.failing_count == 0


def test_a_forged_fire_of_a_later_time_hides_no_genuine_one() -> None:
    world, jobs = world_of()
    sequence = world.publish("cron.a", EVERY_5S)
    world.advance("5s")
    jobs.publish("jobs.run", claims(3_600, b"2027-01-01T00:00:00Z", sequence), b"forged")
    world.restart("1s", with_checkpoint=False)
    world.advance("4s")
    assert [fire for fire in stored(jobs) if fire != 3_600] == [5, 10]


@pytest.mark.parametrize(("away", "again"), [("500ms", []), ("2s", [10])], ids=["within-the-window", "beyond-it"])
def test_a_fire_that_the_other_stream_does_not_keep_is_stored_again(away: str, again: list[int]) -> None:
    """Here *Unique* ends: a consumer of a work queue removed it, and no checkpoint contains it."""
    network = Watched()
    world, jobs = world_of(network)
    world.publish("cron.a", AT_10S)
    world.advance("9999ms")
    network.fate = Fate(answered=False)
    world.advance("1ms")
    assert [message.subject for message in jobs.take()] == ["jobs.run"]
    network.fate = DONE
    world.restart(away, with_checkpoint=False)
    assert stored(jobs) == again


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "after an outage"])
def test_a_fire_of_the_stream_before_is_none_of_the_one_created_again(is_late: bool) -> None:
    """Sequences begin again, so the same schedule has the identity again, which the other stream has kept."""
    world, jobs = world_of(duplicate_window=MINUTE)
    for _ in range(3):
        assert world.publish("cron.a", AT_10S, b"on") == 1
        if is_late:
            world.restart("12s", with_checkpoint=False)
        world.advance("12s")
        assert len(world.stream) == 0, "it fired and was purged"
        world.stream.go_back(0, ())
        world.restart(with_checkpoint=False)
    assert stored(jobs) == [10, 10, 10]


class Other(Desk):
    """An instance that begins as a standby, of a stream with one schedule into another stream."""

    def __init__(self) -> None:
        super().__init__(only_schedules=True, live=False)
        into = {"X_Nats_Schedule": "@every 5s", "X_Nats_Schedule_X_Target": "jobs.run"}
        self.message = message_on(SCHEDULE, 1, **into)
        self.step(OwnershipChanged(False), MessagesRead([self.message]), CaughtUp())

    def takes_over_with(self, seconds: float, checkpoint: Checkpoint | None) -> None:
        """Own the stream from a time in seconds since the start on."""
        self.now = START + int(seconds * SECOND)
        self.step(OwnershipChanged(True, checkpoint))

    def takes_over(self, seconds: float) -> LookForFire:
        """Take over without a checkpoint, and return the look for the fire that may be stored."""
        self.takes_over_with(seconds, None)
        self.found(self.message)
        [look] = self.asked(LookForFire)
        return look


def test_an_instance_is_not_taken_for_one_that_does_not_fire() -> None:
    other = Other()
    for seconds in range(1, 300):
        assert other.at(seconds).reads == []
    assert not other.engine.ownership.unfired
    assert other.at(306).reads == [(SCHEDULE, 1)], "it is read now and then, to notice that it is gone"
    other.found(None, of=other.message)
    assert not other.is_held()


def test_a_takeover_looks_for_what_no_checkpoint_contains_alone() -> None:
    assert Other().takes_over(18).fire.fire_time == START + 15 * SECOND
    settled = Other()
    settled.takes_over_with(18, Checkpoint(START + 17 * SECOND, 1))
    assert settled.at(18).reads == []
    settled.at(19.96).found(settled.message)
    assert settled.at(20).fire.fire_time == START + 20 * SECOND


@pytest.mark.parametrize(
    ("schedule", "sequence", "is_it"), [(SCHEDULE, 1, True), (SCHEDULE, 2, False), ("s.other", 1, False)]
)
def test_a_fire_of_another_version_or_schedule_is_not_the_one_that_is_looked_for(
    schedule: str, sequence: int, is_it: bool
) -> None:
    other = Other()
    look = other.takes_over(18)
    fire_time = look.fire.fire_time
    named: dict[str, str] = {"X_Nats_Scheduler": schedule, "X_Nats_Schedule_Next": "2026-01-01T00:00:20Z"}
    found = message_on("jobs.run", 7, Nats_Msg_Id=fire_identity(schedule, sequence, fire_time), **named)
    other.step(FireLookedFor(look.fire, [found._replace(stored_at=fire_time)], look.first))
    assert other.reads == ([] if is_it else [(SCHEDULE, 1)]), "it is read to be sent, if it is not stored"
