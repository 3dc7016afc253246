"""Targets in other streams: what is stored there, by crashes and outages too, and when it is looked for."""

from collections.abc import Sequence

import pytest

from nats_scheduler.engine.actions import Action
from nats_scheduler.engine.events import FireForged, FireReadBack, FireRefused, FiresMissed, FireStored, ScheduleEnded
from nats_scheduler.engine.fire import (
    Fire,
    LookForFire,
    ReadContent,
)
from nats_scheduler.engine.inputs import CheckpointLoaded, Refused, ShardsHeld
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.message.headers import header_value, with_headers
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.memory_stream import MemoryStream
from nats_scheduler.testing.network import DONE, Fate, Perfect
from nats_scheduler.testing.world import ScheduleWorld

EVERY_5S = {"X-Nats-Schedule": "@every 5s", "X-Nats-Schedule-X-Target": "jobs.run"}
AT_10S = {"X-Nats-Schedule": "@at 2026-01-01T00:00:10Z", "X-Nats-Schedule-X-Target": "jobs.run"}
SHORT = {"duplicate_window": SECOND}
NO_CHECKPOINT = CheckpointLoaded(through=-1, sequence=0)


class Watched(Perfect):
    """A network that records fires and reads, and gives them the fates that a test has set."""

    def __init__(self) -> None:
        self.fires: list[Fire] = []
        self.reads: list[ReadContent] = []
        self.fate = DONE
        self.fate_of_reads = DONE

    def publish(self, fire: Fire) -> Fate:
        self.fires.append(fire)
        return self.fate

    def read(self, request: ReadContent) -> Fate:
        self.reads.append(request)
        return self.fate_of_reads


def world_of(
    network: Watched | None = None, *, guard: bool = True, **config: int
) -> tuple[ScheduleWorld, MemoryStream]:
    world = ScheduleWorld(["cron.>"], network=network, guard=guard)
    return world, world.add_stream("JOBS", ["jobs.>"], SHORT | config)


def stored(stream: MemoryStream) -> list[int]:
    """Return the fire times (s since the start) of what is stored in a stream."""
    found = []
    for message in stream.messages():
        identity = header_value(message.block, b"Nats-Msg-Id")
        assert identity is not None
        found.append((int(identity.split(b":")[2]) - START) // SECOND)
    return found


@pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
def test_a_fire_is_stored_in_the_stream_that_has_its_target(guard: bool) -> None:
    world, jobs = world_of(guard=guard)
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


def test_a_fire_elsewhere_is_reported_like_any_other() -> None:
    world, _jobs = world_of()
    world.publish("cron.a", AT_10S)
    world.advance("10s")
    [acknowledged] = [event for event in world.events if isinstance(event, FireStored)]
    [read_back] = [event for event in world.events if isinstance(event, FireReadBack)]
    assert (acknowledged.fire.target, acknowledged.stored_sequence, acknowledged.duplicate) == ("jobs.run", 1, False)
    assert (read_back.target, read_back.stored_at - read_back.send_time, read_back.overdue) == ("jobs.run", 0, False)
    assert any(isinstance(event, ScheduleEnded) for event in world.events)
    assert len(world.stream) == 0, "an @at is purged after its fire, wherever that is"


def test_in_time_nothing_is_looked_for() -> None:
    network = Watched()
    world, jobs = world_of(network)
    world.publish("cron.a", EVERY_5S)
    world.advance("1m")
    assert len(stored(jobs)) == 12
    assert len(network.reads) == 12, "one look at the schedule before each fire, and none into the other stream"


@pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
def test_what_is_replaced_or_purged_before_the_look_does_not_fire(guard: bool) -> None:
    world, jobs = world_of(guard=guard)
    world.publish("cron.a", AT_10S, b"old")
    world.publish("cron.b", AT_10S, b"purged")
    world.advance("9900ms")
    world.publish("cron.a", AT_10S, b"new")
    world.purge("cron.b")
    world.advance("10s")
    assert [message.body for message in jobs.messages()] == [b"new"]


def test_what_is_purged_after_the_look_does_not_fire_if_the_request_is_seen() -> None:
    world, jobs = world_of()
    world.publish("cron.a", AT_10S)
    world.advance("9990ms")
    world.purge("cron.a")
    world.advance("10s")
    assert stored(jobs) == []


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_crash_beyond_the_duplicate_window_stores_no_fire_twice(with_checkpoint: bool) -> None:
    world, jobs = world_of()
    world.publish("cron.a", EVERY_5S)
    world.publish("cron.b", AT_10S)
    world.advance("10s")
    world.checkpoint = NO_CHECKPOINT
    world.stream.publish("cron.c", b"", b"")
    world.restart("3s", with_checkpoint=with_checkpoint)
    world.advance("2s")
    assert sorted(stored(jobs)) == [5, 10, 10, 15]


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


def test_what_an_outage_left_unknown_is_looked_for_before_it_is_repeated() -> None:
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


def test_what_was_lost_is_repeated_after_the_look() -> None:
    network = Watched()
    world, jobs = world_of(network)
    world.publish("cron.a", AT_10S)
    world.advance("9s")
    network.fate = Fate(arrives=False)
    world.advance("2s")
    network.fate = DONE
    world.advance("10s")
    assert stored(jobs) == [10]
    first, second = network.fires
    assert first is second, "the same bytes"


def test_what_was_missed_is_made_up_once() -> None:
    world, jobs = world_of()
    world.publish("cron.a", EVERY_5S)
    world.advance("7s")
    world.restart("20s")
    world.advance("3s")
    assert stored(jobs) == [5, 25, 30]
    [missed] = [event for event in world.events if isinstance(event, FiresMissed)]
    assert (missed.first, missed.made_up) == (START + 10 * SECOND, START + 25 * SECOND)


def test_a_fire_that_another_instance_made_up_is_not_made_up_again() -> None:
    world, jobs = world_of()
    world.publish("cron.a", EVERY_5S)
    world.advance("7s")
    before = world.checkpoint
    world.restart("20s")
    assert stored(jobs) == [5, 25]
    world.checkpoint = before
    world.restart("2s")
    assert stored(jobs) == [5, 25]
    world.advance("2s")
    assert stored(jobs) == [5, 25, 30]


def test_many_messages_of_others_on_the_target_hide_no_fire() -> None:
    world, jobs = world_of()
    world.publish("cron.a", AT_10S)
    world.advance("10s")
    for _ in range(100):
        jobs.publish("jobs.run", b"", b"of others")
    world.publish("cron.b", AT_10S)
    world.restart("1m", with_checkpoint=False)
    assert len(jobs) == 102, "that of cron.b, which was overdue when it was stored"


def test_a_target_that_no_stream_has_is_refused_and_retried_until_one_has_it() -> None:
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


def test_the_rules_of_the_other_stream_decide() -> None:
    world = ScheduleWorld(["cron.>"])
    jobs = world.add_stream("JOBS", ["jobs.>"], {"allow_msg_ttl": False, "allow_rollup_hdrs": False})
    world.publish("cron.ttl", {**AT_10S, "X-Nats-Schedule-TTL": "5m"})
    world.publish("cron.rollup", {**AT_10S, "X-Nats-Schedule-Rollup": "sub"})
    world.advance("10s")
    assert {event.code for event in world.events if isinstance(event, FireRefused)} == {10166, 10111}
    assert len(jobs) == 0


def test_an_identity_that_somebody_else_wrote_stops_no_fire() -> None:
    world, jobs = world_of(duplicate_window=MINUTE)
    sequence = world.publish("cron.a", AT_10S)
    identity = fire_identity("cron.a", sequence, START + 10 * SECOND).encode()
    jobs.publish("jobs.run", with_headers(b"", [(b"Nats-Msg-Id", identity)]), b"forged")
    world.advance("10s")
    assert [message.body for message in jobs.messages()] == [b"forged", b""]
    assert any(isinstance(event, FireForged) for event in world.events)


def test_a_forged_fire_of_a_later_time_hides_no_genuine_one() -> None:
    world, jobs = world_of()
    sequence = world.publish("cron.a", EVERY_5S)
    world.advance("5s")
    claims = [
        (b"X-Nats-Scheduler", b"cron.a"),
        (b"X-Nats-Schedule-Next", b"2027-01-01T00:00:00Z"),
        (b"Nats-Msg-Id", fire_identity("cron.a", sequence, START + 3_600 * SECOND).encode()),
    ]
    jobs.publish("jobs.run", with_headers(b"", claims), b"forged")
    world.restart("1s", with_checkpoint=False)
    world.advance("4s")
    assert [fire for fire in stored(jobs) if fire != 3_600] == [5, 10]


def test_a_message_in_its_own_stream_is_no_fire_of_it() -> None:
    world, jobs = world_of()
    sequence = world.publish("cron.a", EVERY_5S)
    claims = [
        (b"X-Nats-Scheduler", b"cron.a"),
        (b"X-Nats-Schedule-Next", b"2027-01-01T00:00:00Z"),
        (b"Nats-Msg-Id", fire_identity("cron.a", sequence, START + 5 * SECOND).encode()),
    ]
    world.advance("4s")
    world.publish("cron.forged", with_headers(b"", claims))
    world.advance("1s")
    assert stored(jobs) == [5]


def test_a_look_that_is_not_answered_is_repeated() -> None:
    network = Watched()
    world, jobs = world_of(network)
    world.publish("cron.a", AT_10S)
    network.fate_of_reads = Fate(answered=False)
    world.restart("20s", with_checkpoint=False)
    world.advance("3s")
    assert stored(jobs) == []
    network.fate_of_reads = DONE
    world.advance("10s")
    assert stored(jobs) == [10]


def test_a_look_names_the_earliest_instant_that_matters() -> None:
    asked: list[LookForFire] = []

    class Seen(ScheduleWorld):
        def _carry_out(self, actions: Sequence[Action]) -> None:
            asked.extend(action for action in actions if isinstance(action, LookForFire))
            super()._carry_out(actions)

    world = Seen(["cron.>"])
    world.add_stream("JOBS", ["jobs.>"])
    world.publish("cron.a", EVERY_5S)
    world.advance("1s")
    world.publish("cron.past", {**AT_10S, "X-Nats-Schedule": "@at 2020-01-01T00:00:00Z"})
    assert asked == [], "what this instance received itself, nobody else can have fired"
    world.advance("7s")
    world.restart("1h", with_checkpoint=False)
    assert [(look.fire.schedule, look.since - START) for look in asked] == [("cron.a", 3_605 * SECOND)]


@pytest.mark.parametrize(("away", "again"), [("500ms", []), ("2s", [10])], ids=["within-the-window", "beyond-it"])
def test_a_fire_that_the_other_stream_does_not_keep_is_stored_again_beyond_the_window(
    away: str, again: list[int]
) -> None:
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


def test_fires_of_another_stream_are_not_counted_where_they_land() -> None:
    world = ScheduleWorld(["jobs.>"])
    claims = [
        (b"X-Nats-Scheduler", b"cron.a"),
        (b"X-Nats-Schedule-Next", b"purge"),
        (b"Nats-Msg-Id", fire_identity("cron.a", 1, START).encode()),
    ]
    fire = with_headers(b"", claims)
    for _ in range(3):
        world.publish("jobs.other")
    world.publish("jobs.due", {"X-Nats-Schedule": "@every 5s", "X-Nats-Schedule-Target": "jobs.out"})
    world.publish("jobs.run", fire)
    assert not any(isinstance(event, FireReadBack) for event in world.events)
    world.publish(
        "jobs.due", with_headers(b"", [*claims[:2], (b"Nats-Msg-Id", fire_identity("cron.a", 2, START).encode())])
    )
    assert world.next_fire("jobs.due") is None, "it ends the schedule on which it lands, as any message does"


def test_all_owes_what_comes_due_after_a_start_that_knew_nothing() -> None:
    """The stored fires of the time before are not known, so the latest fire of that time is made up."""
    network = Watched()
    world, jobs = world_of(network)
    world.publish("cron.a", {**EVERY_5S, "X-Nats-Schedule-X-Missed": "all"})
    world.advance("7s")
    network.fate = Fate(refusal=Refused(503, 10077, "maximum messages exceeded"))
    world.restart("20s", with_checkpoint=False)
    for shards in (frozenset[int](), ALL_SHARDS):
        world._pass_on(ShardsHeld(shards))
    world.advance("10s")
    assert stored(jobs) == [5]
    network.fate = DONE
    world.advance("2s")
    assert stored(jobs) == [5, 25, 30, 35]


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "after an outage"])
@pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
def test_a_fire_of_the_stream_before_is_none_of_the_one_that_was_created_again(guard: bool, is_late: bool) -> None:
    """Sequences begin again, so the same schedule has the identity again, which the other stream has kept."""
    world, jobs = world_of(guard=guard, duplicate_window=MINUTE)
    for _ in range(3):
        assert world.publish("cron.a", AT_10S, b"on") == 1
        if is_late:
            world.restart("12s", with_checkpoint=False)
        world.advance("12s")
        assert len(world.stream) == 0, "it fired and was purged"
        world.stream.go_back(0, ())
        world.restart(with_checkpoint=False)
    assert stored(jobs) == [10, 10, 10]
