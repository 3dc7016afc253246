"""Which instances read a stream (`engine/ownership/order.py`), as each of them decides about itself."""

from collections import Counter
from collections.abc import Iterable

from nats_scheduler.engine.ownership.order import ALL_INSTANCES, PATIENCE_NS, REPLACED_AFTER_NS, Order, Stance, order_of
from nats_scheduler.engine.ownership.owners import FIRST_HEARTBEAT_LIMIT_NS, Owners
from nats_scheduler.schedule.instants import SECOND

KEY = "emulated.ORDERS"
NOBODY, READS = Stance(False, False), Stance(True, False)
FIVE = order_of(KEY, "abcde")
LATER = REPLACED_AFTER_NS + 10 * PATIENCE_NS


class World:
    """Instances that decide about one stream, and what they have begun to read or serve."""

    def __init__(self, alive: Iterable[str], standbys: int = 1) -> None:
        self.now = 0
        self.stances = dict.fromkeys(alive, NOBODY)
        self._orders = {name: Order(standbys) for name in self.stances}

    def decide(self, *passive: str) -> list[str]:
        """Have all but the `passive` ones decide once, by the same heartbeats; return the readers in their order."""
        before = dict(self.stances)
        for name in before.keys() - set(passive):
            others = {other: stance for other, stance in before.items() if other != name}
            order = self._orders.setdefault(name, Order())
            order.met(others, self.now)
            reads = order.includes(name, KEY, before[name], others, self.now)
            begun = before[name] if before[name].reads else READS
            self.stances[name] = begun if reads else NOBODY
        return self.readers

    def serve(self) -> None:
        """Let all readers have read the stream to its end."""
        self.stances = {name: stance._replace(serves=stance.reads) for name, stance in self.stances.items()}

    @property
    def readers(self) -> list[str]:
        return [name for name in order_of(KEY, self.stances) if self.stances[name].reads]


def settled(alive: Iterable[str]) -> World:
    """Return instances of which the first two serve the stream, for long."""
    world = World(alive)
    assert world.decide() == order_of(KEY, world.stances)[:2]
    world.serve()
    world.now += LATER
    assert world.decide() == order_of(KEY, world.stances)[:2]
    return world


def test_streams_are_spread_evenly_and_one_that_goes_moves_only_its_own() -> None:
    keys = [f"emulated.S{number}" for number in range(1_000)]
    counts = Counter(name for key in keys for name in order_of(key, "abcde")[:2])
    assert all(350 < count < 450 for count in counts.values()), counts
    for key in keys:
        assert [name for name in order_of(key, "abcde") if name != "c"] == order_of(key, "abde")


def test_the_order_is_drawn_the_same_for_ever() -> None:
    """Instances of two versions share the streams during an update: these may never change."""
    drawn = ["".join(order_of(f"emulated.S{number}", "abcd")) for number in range(6)]
    assert drawn == ["cbda", "cabd", "cbad", "dcab", "acbd", "acdb"]
    assert order_of("emulated.\udcff", ["a", "b\udcfe", "c"]) == ["a", "c", "b\udcfe"]


def test_the_owner_and_as_many_standbys_as_are_wanted_read_a_stream() -> None:
    for standbys in (ALL_INSTANCES, 4):
        assert World(FIVE, standbys).decide() == FIVE
    assert World(FIVE, 2).decide() == FIVE[:3]
    assert World(FIVE, 0).decide() == FIVE[:1]
    assert World(FIVE).decide() == FIVE[:2]
    assert World(FIVE[:2]).decide() == FIVE[:2]


def test_one_that_goes_is_replaced_by_the_next_one_after_a_while() -> None:
    world = settled(FIVE)
    del world.stances[FIVE[0]]
    for _ in range(2):
        assert world.decide() == [FIVE[1]]
    world.now += REPLACED_AFTER_NS
    assert world.decide() == [FIVE[1], FIVE[2]]
    del world.stances[FIVE[1]], world.stances[FIVE[2]]
    assert world.decide() == FIVE[3:], "both were lost, and those that are left have to read it"


def test_one_that_joins_reads_its_own_before_another_one_leaves_it() -> None:
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


def test_nothing_is_begun_or_left_until_it_is_known_who_is_alive() -> None:
    me, *others = reversed(FIVE)
    owners = Owners(me, frozenset({KEY}))

    def decisions() -> tuple[bool, bool]:
        return owners.reads(KEY, 0, is_reading=False), owners.reads(KEY, 0, is_reading=True)

    def received() -> None:
        for name in (*others, me):
            owners.received(name, {KEY} if name != me else (), 0, 0)

    assert decisions() == (False, True), "our own heartbeats are not received"
    received()
    assert decisions() == (False, True), "the first heartbeat of each may have been stored long before"
    received()
    assert decisions() == (False, False), "four others serve it"
    owners.listening_anew()
    owners.received(me, (), 0, 0)
    assert decisions() == (False, True), "nothing was received of them since"
    received()
    received()
    owners.received(FIVE[0], {KEY}, 0, 0, unable=[KEY])
    owners.received(FIVE[1], {KEY}, 0, 0, is_ending=True)
    owners.received(FIVE[2], (), 0, 0, reading=[KEY])
    assert decisions() == (False, True), "one is unable, one ends, and one has not read it: only one counts"
    owners.received(FIVE[2], {KEY}, 0, 0)
    assert decisions() == (False, False)
    owners.ability.denied(KEY, "denied", 0)
    assert decisions() == (False, True), "one that is unable is to be tested with it"
    owners.ability.passed(100 * SECOND)
    owners.is_ending = True
    assert decisions() == (False, True)


def test_no_stream_is_read_before_it_is_known_who_is_alive_for_a_while() -> None:
    owners = Owners(FIVE[0])
    assert owners.awaits_others(5) == FIRST_HEARTBEAT_LIMIT_NS
    assert not owners.reads(KEY, 5 + FIRST_HEARTBEAT_LIMIT_NS - 1, is_reading=False)
    assert owners.awaits_others(5 + FIRST_HEARTBEAT_LIMIT_NS) == 0
    assert owners.reads(KEY, 5 + FIRST_HEARTBEAT_LIMIT_NS, is_reading=False), "nothing of the bucket is received"
    for me, reads in (FIVE[0], True), (FIVE[-1], False):
        owners = Owners(me)
        for name in FIVE:
            owners.received(name, [], 0, 0)
        assert (owners.awaits_others(0), owners.reads(KEY, 0, is_reading=False)) == (0, reads)
