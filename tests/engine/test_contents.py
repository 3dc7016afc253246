"""Contents in memory: their bytes never exceed the limit, small ones pass by large ones, and each comes to its turn."""

from nats_scheduler.engine.actions import WakeAt
from nats_scheduler.engine.fire import FetchContent, Fire
from nats_scheduler.engine.holding.contents import ContentMemory, size_of
from nats_scheduler.engine.inputs import ContactLost, Stored
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, plain, schedule

LIMIT = 1 << 20
LARGE = 100_000
SMALL = 100


class SharingDesk(Desk):
    """An engine that has its memory in common with others."""

    def __init__(self, memory: ContentMemory) -> None:
        self.memory = memory
        super().__init__(max_payload=1 << 24)


class Loaded:
    """Engines with one memory, whose reads and fires are answered one by one; it checks the limit after each step."""

    def __init__(self, *loads: list[StoredMessage], has_sizes: bool = True) -> None:
        self.memory = ContentMemory(LIMIT)
        self.stored = [{message.sequence: message for message in load} for load in loads]
        self.desks = [SharingDesk(self.memory) for _load in loads]
        self.most = 0
        self.fired: list[int] = []
        for desk, load in zip(self.desks, loads, strict=True):
            desk.read(*(as_followed(message) if has_sizes else message._replace(body=None) for message in load))
        self.reads: list[tuple[int, FetchContent]] = []
        self.fires: list[tuple[int, Fire]] = []

    def _collect(self, number: int) -> None:
        desk = self.desks[number]
        self.reads += [(number, one) for one in desk.asked(FetchContent)]
        self.fires += [(number, one) for one in desk.fires]
        in_use = sum(desk.engine.contents.used for desk in self.desks)
        assert in_use == self.memory.small + self.memory.large
        self.most = max(self.most, in_use)

    def to(self, seconds: float) -> None:
        """Let all engines step at an instant."""
        for number, desk in enumerate(self.desks):
            desk.at(seconds)
            self._collect(number)

    def run(self, until: float, step: float = 0.02) -> None:
        """Answer up to three of the oldest reads and fires at each step."""
        seconds = (self.desks[0].now - START) / 1e9
        while seconds < until:
            seconds += step
            self.to(seconds)
            for _ in range(3):
                if self.reads:
                    number, request = self.reads.pop(0)
                    self.desks[number].found(self.stored[number][request.sequence])
                    self._collect(number)
                if self.fires:
                    number, fire = self.fires.pop(0)
                    self.fired.append(fire.sequence)
                    self.desks[number].concluded(fire, Stored(1_000_000 + len(self.fired)))
                    self._collect(number)


def as_followed(message: StoredMessage) -> StoredMessage:
    size = b"Nats-Msg-Size: %d\r\n\r\n" % len(message.body or b"")
    return message._replace(block=message.block[:-2] + size, body=None)


def load(count: int, size: int, *, seconds: float = 5, first: int = 1) -> list[StoredMessage]:
    """Make schedules of one size for one instant."""
    pattern = f"@at {format_rfc3339(START + int(seconds * SECOND))}"
    return [schedule(pattern, number, f"s.{number}", body=b"x" * size) for number in range(first, first + count)]


def test_large_contents_are_read_as_far_as_there_is_room() -> None:
    world = Loaded(load(40, LARGE))
    world.to(4.7)
    assert world.reads == [], "a sample that is due meanwhile would wait for the room of a fire that is not"
    world.to(4.8)
    assert 1 <= len(world.reads) <= 7
    world.run(10)
    assert sorted(world.fired) == [*range(1, 41)]
    assert world.most <= LIMIT


def test_it_looks_for_room_when_that_may_be_there() -> None:
    later, soon = load(1, LARGE, seconds=6), load(1, LARGE, first=2)
    (desk,) = Loaded([*later, *soon]).desks
    assert desk.at(4.2).reads == []
    assert desk.wake == 4.75, "a quarter of a second before the first of them"
    world = Loaded(load(40, LARGE))
    (desk,) = world.desks
    world.to(4.8)
    assert desk.wake == 4.81, "others may have made room"
    desk.read(*(plain(f"s.{number}", 100 + number) for number in range(1, 41)))
    assert desk.asked(WakeAt) == [], "nothing waits"


def test_small_contents_pass_by_large_ones_of_any_stream() -> None:
    world = Loaded(load(40, LARGE) + load(20, SMALL, first=101), load(20, SMALL, first=201))
    world.to(4.5)
    assert {request.sequence for _number, request in world.reads} >= {*range(101, 121), *range(201, 221)}


def test_large_contents_of_two_streams_take_turns() -> None:
    world = Loaded(load(60, LARGE), load(2, LARGE, first=101))
    world.run(5.6)
    assert {101, 102} <= {*world.fired}


def test_small_contents_are_bounded_and_a_large_one_gets_its_turn() -> None:
    many = [message for second in range(2, 6) for message in load(200, 7_000, seconds=second, first=second * 1_000)]
    world = Loaded([*many, *load(1, 3 * LIMIT // 4 - 300, seconds=4, first=1)])
    world.run(5.5)
    assert 1 in world.fired
    assert world.most <= LIMIT


def test_a_content_that_is_larger_than_the_memory_goes_alone() -> None:
    size = 3 * LIMIT
    world = Loaded(load(3, size) + load(5, SMALL, first=101))
    world.run(8)
    assert sorted(world.fired) == [1, 2, 3, *range(101, 106)]
    assert world.most <= size + 300 + LIMIT // 4


def test_a_content_takes_room_together_with_its_source() -> None:
    content, source = plain("s.1", 1), plain("source", 2)._replace(block=b"x" * 40, body=b"y" * 7)
    assert size_of(content, source) == size_of(content) + 47
    assert size_of(content, source._replace(body=None)) == size_of(content) + 40


def test_contents_of_unknown_size_are_dropped_without_room() -> None:
    world = Loaded(load(40, LARGE), has_sizes=False)
    world.run(10)
    assert sorted(world.fired) == [*range(1, 41)]
    assert world.most <= LIMIT
    cut = Loaded(load(40, LARGE), has_sizes=False)
    cut.to(4.8)
    assert cut.reads
    cut.desks[0].step(ContactLost("the connection was cut"))
    assert cut.memory.large + cut.memory.small <= LIMIT


def test_what_ends_leaves_its_room() -> None:
    world, other = Loaded(load(40, LARGE)), Loaded(load(40, LARGE))
    for one in (world, other):
        one.to(4.8)
        assert one.memory.large > 0
    world.desks[0].read(*(plain(f"s.{number}", 1_000 + number) for number in range(1, 41)))
    other.desks[0].engine.contents.end()
    for one in (world, other):
        assert (one.memory.small, one.memory.large) == (0, 0)
