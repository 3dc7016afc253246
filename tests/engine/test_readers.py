"""Which instances read a stream (`engine/sharing/readers.py`), as each of them decides about itself."""

from collections import Counter
from collections.abc import Iterable

from nats_scheduler.engine.sharing.leases import Leases
from nats_scheduler.engine.sharing.readers import (
    ALL_INSTANCES,
    PATIENCE_NS,
    REPLACED_AFTER_NS,
    Readers,
    Stance,
    order_of,
)
from nats_scheduler.schedule.instants import SECOND

KEY = "emulated.ORDERS"
NOBODY, READS, SERVES = Stance(False, False), Stance(True, False), Stance(True, True)
FIVE = order_of(KEY, "abcde")
LATER = REPLACED_AFTER_NS + 10 * PATIENCE_NS


class World:
    """Instances that decide about one stream, and what they have begun to read or serve."""

    def __init__(self, alive: Iterable[str], per_stream: int | None = 2, *, has_one_stream: bool = False) -> None:
        self.now = 0
        self.stances = dict.fromkeys(alive, NOBODY)
        self._readers = {name: Readers(per_stream, has_one_stream) for name in self.stances}

    def decide(self, *passive: str) -> list[str]:
        """Have all but the `passive` ones decide once, by the same heartbeats; return the readers in their order."""
        before = dict(self.stances)
        for name in before.keys() - set(passive):
            others = {other: stance for other, stance in before.items() if other != name}
            readers = self._readers.setdefault(name, Readers(2))
            readers.met(others, self.now)
            reads = readers.includes(name, KEY, others, self.now, is_reading=before[name].reads)
            self.stances[name] = (before[name] if before[name].reads else READS) if reads else NOBODY
        return self.readers

    def serve(self) -> None:
        """Let all readers have read the stream to its end."""
        self.stances = {name: SERVES if stance.reads else stance for name, stance in self.stances.items()}

    @property
    def readers(self) -> list[str]:
        return [name for name in order_of(KEY, self.stances) if self.stances[name].reads]


def settled(alive: Iterable[str], per_stream: int = 2) -> World:
    """Return instances of which the right ones serve the stream, for long."""
    world = World(alive, per_stream)
    assert world.decide() == order_of(KEY, world.stances)[:per_stream]
    world.serve()
    world.now += LATER
    assert world.decide() == order_of(KEY, world.stances)[:per_stream]
    return world


def test_streams_are_spread_evenly_and_one_that_goes_moves_only_its_own() -> None:
    keys = [f"emulated.S{number}" for number in range(1_000)]
    counts = Counter(name for key in keys for name in order_of(key, "abcde")[:2])
    assert all(350 < count < 450 for count in counts.values()), counts
    for key in keys:
        assert [name for name in order_of(key, "abcde") if name != "c"] == order_of(key, "abde")


def test_as_many_read_as_are_asked_for_and_otherwise_two_unless_there_is_one_stream_only() -> None:
    for per_stream in (ALL_INSTANCES, 5):
        assert World(FIVE, per_stream).decide() == FIVE
    assert World(FIVE, 1).decide() == FIVE[:1]
    assert World(FIVE, None).decide() == FIVE[:2]
    assert World(FIVE[:2], None).decide() == FIVE[:2]
    assert World(FIVE, None, has_one_stream=True).decide() == FIVE


def test_one_that_goes_is_replaced_by_the_next_after_a_while_and_at_once_where_nobody_else_serves() -> None:
    world = settled(FIVE)
    del world.stances[FIVE[0]]
    for _ in range(2):
        assert world.decide() == [FIVE[1]]
    world.now += REPLACED_AFTER_NS
    assert world.decide() == [FIVE[1], FIVE[2]]
    del world.stances[FIVE[1]], world.stances[FIVE[2]]
    assert world.decide() == FIVE[3:], "both were lost, and those that are left have to read it"


def test_one_that_joins_reads_at_once_what_is_its_own_and_who_is_not_needed_leaves_when_that_is_done() -> None:
    world = settled(FIVE[1:])
    world.stances[FIVE[0]] = NOBODY
    assert world.decide() == FIVE[:3]
    assert world.decide() == FIVE[:3], "what is read is not given up for what is yet to be read"
    world.serve()
    assert world.decide() == FIVE[:2]


def test_one_that_does_not_begin_is_passed_over_by_one_after_the_other() -> None:
    world = World(FIVE)
    assert world.decide(*FIVE[:2]) == []
    world.now += PATIENCE_NS
    assert world.decide(*FIVE[:3]) == [], "the third is waited for, as the others were"
    world.now += PATIENCE_NS
    assert world.decide(*FIVE[:3]) == [FIVE[3]]
    world.serve()
    world.now += LATER
    assert world.decide(*FIVE[:3]) == FIVE[3:]
    assert world.decide() == FIVE, "they can again, and what is read is kept until they have read it"
    world.serve()
    assert world.decide() == FIVE[:2]


def test_nothing_is_begun_or_left_while_it_is_not_known_who_is_alive_or_by_one_that_ends_or_cannot_serve() -> None:
    me, *others = reversed(FIVE)
    leases = Leases(me, readers=Readers(2))

    def decisions() -> tuple[bool, bool]:
        return leases.reads(KEY, 0, is_reading=False), leases.reads(KEY, 0, is_reading=True)

    def received() -> None:
        for name in (*others, me):
            leases.received(name, {KEY} if name != me else (), 0, 0)

    assert decisions() == (False, True), "our own heartbeats are not received"
    received()
    assert decisions() == (False, True), "the first heartbeat of each may have been stored long before"
    received()
    assert decisions() == (False, False), "four others serve it"
    leases.listening_anew()
    leases.received(me, (), 0, 0)
    assert decisions() == (False, True), "nothing was received of them since"
    received()
    received()
    leases.received(FIVE[0], {KEY}, 0, 0, unable=[KEY])
    leases.received(FIVE[1], {KEY}, 0, 0, is_ending=True)
    leases.received(FIVE[2], (), 0, 0, reading=[KEY])
    assert decisions() == (False, True), "one is unable, one ends, and one has not read it: only one counts"
    leases.received(FIVE[2], {KEY}, 0, 0)
    assert decisions() == (False, False)
    leases.ability.denied(KEY, 0, "denied", 0)
    assert decisions() == (False, True), "one that is unable is to be tested with it"
    leases.ability.passed(100 * SECOND)
    leases.is_ending = True
    assert decisions() == (False, True)


def test_one_that_ends_waits_for_those_that_read_or_are_to_read_what_it_serves() -> None:
    me, one, other = FIVE[:3]
    for per_stream, reading, serves, is_awaited in (
        (2, [], [], False),
        (2, [KEY], [], True),
        (2, [], [KEY], False),
        (1, [], [], True),
        (1, [], [KEY], False),
    ):
        leases = Leases(me, frozenset({KEY}), readers=Readers(per_stream))
        assert leases.has_successor(KEY), "nobody is left"
        leases.received(one, serves, 0, 0, reading=reading)
        leases.received(other, [KEY], 0, 0, is_ending=True)
        assert leases.has_successor(KEY) is not is_awaited, (per_stream, reading, serves)


def test_where_no_number_is_given_a_stream_is_read_before_it_is_known_who_is_alive() -> None:
    for wanted in (None, 2):
        leases = Leases(FIVE[-1], readers=Readers(wanted))
        assert leases.reads(KEY, 0, is_reading=False) is (wanted is None)
        for name in FIVE:
            leases.received(name, [], 0, 0)
        assert not leases.reads(KEY, 0, is_reading=False), "others come first"
