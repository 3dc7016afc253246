"""The extras of the stream and the contact in memory: messages expire by a given clock, requests fail on demand."""

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.fire import FetchContent, Fire
from nats_scheduler.engine.inputs import (
    Input,
    PublishConcluded,
    PurgeConcluded,
    Refused,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.message.headers import EMPTY_BLOCK, with_header
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import ManualClock
from nats_scheduler.testing.memory_contact import ANSWER_DEADLINE_NS, MemoryContact
from nats_scheduler.testing.memory_stream import MemoryStream
from nats_scheduler.testing.network import Fate, Perfect

FULL = Refused(503, 10077, "maximum messages exceeded")
NO_ANSWER = Unknown("no answer within 5 s")


class Fated(Perfect):
    """Gives every request the fate that was set last."""

    def __init__(self) -> None:
        self.fate = Fate()

    def publish(self, fire: Fire) -> Fate:
        return self.fate

    def read(self, request: FetchContent) -> Fate:
        return self.fate

    def purge(self, request: PurgeSchedule) -> Fate:
        return self.fate


class Bench:
    """A stream, a contact that the test drives, and the inputs that it delivered."""

    def __init__(self) -> None:
        self.clock, self.network, self.facts = ManualClock(), Fated(), list[Input]()
        self.stream = MemoryStream({"name": "S", "subjects": [">"], "allow_msg_ttl": True}, self.clock.now)
        self.contact = MemoryContact(self.stream, self.facts.append, self.clock, self.network)

    def publish(self, fate: Fate) -> Fire:
        self.network.fate = fate
        fire = Fire("s", 1, 0, None, "t", EMPTY_BLOCK, b"")
        self.contact.publish([fire])
        return fire

    def after(self, duration: int) -> list[Input]:
        """Return the inputs that are delivered when `duration` nanoseconds have passed."""
        self.facts.clear()
        self.clock.advance(duration)
        self.contact.deliver()
        return self.facts


def test_messages_expire_by_age_and_by_their_own_ttl() -> None:
    clock = ManualClock()
    config = {"name": "S", "subjects": [">"], "max_age": 10 * SECOND, "allow_msg_ttl": True}
    stream = MemoryStream(config, clock.now)
    stream.publish("aged")
    stream.publish("short", with_header(EMPTY_BLOCK, b"Nats-TTL", b"3s"))
    stream.publish("never", with_header(EMPTY_BLOCK, b"Nats-TTL", b"never"))
    remaining = []
    for _ in range(4):
        clock.advance(3 * SECOND)
        remaining.append([message.subject for message in stream.messages()])
    assert remaining == [["aged", "never"], ["aged", "never"], ["aged", "never"], ["never"]]
    for subject in ("a.1", "a.2"):
        stream.publish(subject)
    assert [message.subject for message in stream.take("a.*")] == ["a.1", "a.2"]
    assert [message.subject for message in stream.messages()] == ["never"]
    assert stream.publish("a.3") == Stored(6)


def test_a_lost_answer_or_request_is_unknown_after_the_deadline() -> None:
    for fate, stored in ((Fate(answered=False), 1), (Fate(arrives=False), 0)):
        bench = Bench()
        fire = bench.publish(fate)
        assert bench.after(ANSWER_DEADLINE_NS - 1) == []
        assert len(bench.stream) == stored
        assert bench.after(1) == [PublishConcluded(fire, NO_ANSWER)]


def test_a_doubled_request_arrives_twice_and_has_one_answer() -> None:
    bench, doubled = Bench(), Bench()
    fire = bench.publish(Fate(refusal=FULL))
    bench.contact.ask(FetchContent("s", 1, None))
    bench.contact.purge(PurgeSchedule("s", 1))
    assert bench.after(0) == [
        PublishConcluded(fire, FULL),
        Unanswered(FetchContent("s", 1, None), FULL.description),
        PurgeConcluded("s", 1, FULL.description, refused=True),
    ]
    assert len(bench.stream) == 0
    fire = doubled.publish(Fate(twice=True))
    assert doubled.after(0) == [PublishConcluded(fire, Stored(1))]
    assert len(doubled.stream) == 2


def test_a_slow_request_arrives_although_the_contact_ended() -> None:
    bench, cut = Bench(), Bench()
    slow, fast = bench.publish(Fate(request_takes=20)), bench.publish(Fate(answer_takes=5))
    assert bench.after(0) == []
    assert bench.after(5) == [PublishConcluded(fast, Stored(1))]
    assert bench.after(15) == [PublishConcluded(slow, Stored(2))]
    fire = cut.publish(Fate(request_takes=20))
    cut.contact.end("cut")
    assert cut.facts == [PublishConcluded(fire, Unknown("cut"))]
    assert cut.after(20) == []
    assert len(cut.stream) == 1
