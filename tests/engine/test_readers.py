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

    def fill(self, *names: str) -> None:
        """Let some of the instances have no room for what they do not read."""
        self.stances |= {name: self.stances[name]._replace(has_room=self.stances[name].reads) for name in names}

    def decide(self, *passive: str) -> list[str]:
        """Have all but the `passive` ones decide once, by the same heartbeats; return the readers in their order."""
        before = dict(self.stances)
        for name in before.keys() - set(passive):
            others = {other: stance for other, stance in before.items() if other != name}
            readers = self._readers.setdefault(name, Readers(2))
            readers.met(others, self.now)
            reads = readers.includes(name, KEY, before[name], others, self.now)
            begun = before[name] if before[name].reads else READS
            self.stances[name] = begun if reads else before[name]._replace(reads=False, serves=False)
        return self.readers

    def serve(self) -> None:
        """Let all readers have read the stream to its end."""
        self.stances = {name: stance._replace(serves=stance.reads) for name, stance in self.stances.items()}

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


def test_those_that_start_together_leave_to_others_what_they_have_not_read_yet() -> None:
    world = World(FIVE[2:])
    assert world.decide() == FIVE[2:4]
    world.stances |= dict.fromkeys(FIVE[:2], NOBODY)
    assert world.decide() == FIVE[:4]
    assert world.decide() == FIVE[:2], "they have begun as well, and nobody has lost anything"
    world.serve()
    world.stances[FIVE[2]] = READS
    world.now += REPLACED_AFTER_NS
    world.stances[FIVE[0]] = READS
    assert world.decide() == FIVE[:3], "one that has run for long goes on until there are enough that have read it"


def test_one_without_room_begins_to_read_only_what_nobody_else_can() -> None:
    world = World(FIVE)
    world.fill(*FIVE[:3])
    assert world.decide() == FIVE[3:], "nobody waits for those that have no room"
    world.serve()
    world.now += LATER
    del world.stances[FIVE[3]]
    world.now += REPLACED_AFTER_NS
    assert world.decide() == FIVE[4:], "one that has room reads it: a full one does not begin for the second place"
    del world.stances[FIVE[4]]
    assert world.decide() == FIVE[:1], "nobody else reads it, or has room"
    world.serve()
    world.now += LATER
    world.stances[FIVE[1]] = NOBODY
    assert world.decide() == FIVE[:2], "one that has room again"


def test_one_without_room_waits_at_its_start_for_others_that_may_have() -> None:
    world = World(FIVE[:1])
    world.fill(FIVE[0])
    assert world.decide() == []
    world.now += PATIENCE_NS - 1
    assert world.decide() == []
    world.now += 1
    assert world.decide() == FIVE[:1], "it is alone"
    world = World(FIVE, ALL_INSTANCES)
    world.fill(*FIVE[:2])
    world.now += PATIENCE_NS
    assert world.decide() == FIVE[2:], "all that have room"


def test_one_that_holds_too_much_is_replaced_by_those_that_have_room() -> None:
    world = settled(FIVE)
    world.stances[FIVE[0]] = SERVES._replace(has_room=False)
    world.fill(FIVE[2])
    assert world.decide() == FIVE[:2]
    world.now += REPLACED_AFTER_NS
    assert world.decide() == [*FIVE[:2], FIVE[3]], "it serves on until another one does"
    assert world.decide() == [*FIVE[:2], FIVE[3]]
    world.serve()
    assert world.decide() == [FIVE[1], FIVE[3]]
    world = settled(FIVE[:2])
    world.stances |= dict.fromkeys(FIVE[:2], SERVES._replace(has_room=False))
    assert world.decide() == FIVE[:2], "nobody else is there"


def test_there_is_a_surplus_from_a_quarter_more_than_the_capacity_until_all_of_it_is_gone() -> None:
    readers, sizes = Readers(2, capacity=100), {f"emulated.S{number}": 30 for number in range(4)}
    readers.holds("a", sizes)
    assert (readers.room, readers.surplus) == (-20, frozenset())
    sizes["emulated.S4"] = 30
    readers.holds("a", sizes)
    surplus = readers.surplus
    assert len(surplus) == 2
    sizes |= dict.fromkeys(surplus, 29)
    readers.holds("a", sizes)
    assert readers.surplus == surplus, "others may be about to read them"
    gone = min(surplus)
    del sizes[gone]
    readers.holds("a", sizes)
    assert readers.surplus == surplus - {gone}, "there is room for three"
    del sizes[max(surplus)]
    readers.holds("a", sizes)
    assert (readers.room, readers.surplus) == (10, frozenset())
    readers.holds("a", {**sizes, "emulated.LARGE": 1_000})
    assert readers.surplus == {"emulated.LARGE"}


def test_there_is_room_for_what_is_left_of_the_capacity_and_others_say_what_they_have() -> None:
    me, other = FIVE[:2]
    leases = Leases(me, readers=Readers(1, capacity=1_000, held=400))
    leases.received(other, [], 0, 0, room=900)
    assert not leases.reads(KEY, 0, 0, is_reading=False), "it is not known who is alive, and there is a limit"
    leases.received(me, [], 0, 0)
    assert leases.reads(KEY, 600, 0, is_reading=False)
    assert not leases.reads(KEY, 601, 0, is_reading=False), "the other one has room for that"
    assert leases.reads(KEY, 2_000, 0, is_reading=True), "what is read is kept"
    assert not leases.reads(KEY, 901, 0, is_reading=False)
    for name in (other, me):
        leases.received(name, [], PATIENCE_NS, 0, room=900)
    assert leases.reads(KEY, 901, PATIENCE_NS, is_reading=False), "no one has, and it is the first"
    for name in (other, me):
        leases.received(name, [KEY] if name == other else [], PATIENCE_NS, 0, room=900, surplus=[KEY])
    assert leases.reads(KEY, 600, PATIENCE_NS, is_reading=False), "the other one wants to be rid of it"
    leases.readers.read_all()
    assert leases.reads(KEY, 2_000, PATIENCE_NS, is_reading=False)


def test_nothing_is_begun_or_left_while_it_is_not_known_who_is_alive_or_by_one_that_ends_or_cannot_serve() -> None:
    me, *others = reversed(FIVE)
    leases = Leases(me, frozenset({KEY}), readers=Readers(2))

    def decisions() -> tuple[bool, bool]:
        return leases.reads(KEY, 0, 0, is_reading=False), leases.reads(KEY, 0, 0, is_reading=True)

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
        assert leases.reads(KEY, 0, 0, is_reading=False) is (wanted is None)
        for name in FIVE:
            leases.received(name, [], 0, 0)
        assert not leases.reads(KEY, 0, 0, is_reading=False), "others come first"
