"""Frames that are parsed together are the same as parsed one by one, whatever is between them."""

import random

import pytest

from nats_scheduler.jetstream.wire import ConsumerFrames, FrameParser, WireClient
from nats_scheduler.message.stored import StoredMessage
from tests.hostile.effort import EFFORT, at_most, seeded

SID, STREAM, CONSUMER = 7, "größe+", "nats-scheduler-0123"
PREFIX = f"$JS.ACK.{STREAM}.{CONSUMER}".encode()
BLOCKS = [
    b"NATS/1.0\r\nNats-Schedule: @at 2030-01-01T00:00:00Z\r\nNats-Msg-Size: 128\r\n\r\n",
    b"NATS/1.0\r\nA:\t\xff\n \r\nNats-Msg-Size: 0\r\n\r\n",
]
ODD_BLOCKS = [
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0\r\nA: 1\r\n\r\n\r\n",
    b"NATS/1.0\r\nA: 1\r\n\r\n\r\nHMSG a 7 b 9 9\r\n",
    b"NATS/1.0\r\nA: 1\r\n\r\nB: 2\r\n\r\n",
    b"NATS/1.0\r\nA: \r 1\r\n\r\n",
    b"no block",
]
SUBJECTS = ["s.1", "größe.ф", "s.\udcff", "HMSG", "$JS.ACK"]

SECONDS_A_CHUNK = 0.8
"""Longest process time for 4,000 frames of one read: it takes about a hundredth of it."""


def written(subject: str, reply: bytes, block: bytes, body: bytes = b"", sid: int = SID) -> bytes:
    """Write a frame as a server does."""
    name = subject.encode("utf-8", "surrogateescape")
    size = len(block)
    return b"HMSG %b %d %b %d %d\r\n%b%b\r\n" % (name, sid, reply, size, size + len(body), block, body)


def usual(rng: random.Random, number: int) -> bytes:
    """Write the frame that the consumer delivers as its `number`th message."""
    reply = b"%b.1.%d.%d.%d.%d" % (PREFIX, number * 3, number, 10**18 + number, rng.randrange(1, 10**6))
    return written(rng.choice(SUBJECTS), reply, rng.choice(BLOCKS))


def odd(rng: random.Random, number: int) -> bytes:
    """Write a frame that differs in one thing, or in several."""
    place = rng.choice([PREFIX, PREFIX[:-1], PREFIX.replace(b"ACK.", b"ACK.domain.hash.")])
    times, in_order, pending = rng.choice([1, 2]), rng.choice([1, number]), rng.choice([0, 1, 5])
    reply = b"%b.%d.%d.%d.%d.%d" % (place, times, number, in_order, 10**18, pending)
    return rng.choice(
        [
            written("s.1", reply, rng.choice(BLOCKS + ODD_BLOCKS)),
            written("s.1", reply, BLOCKS[0], body=rng.choice([b"x", b"\r\n"])),
            written("s.1", reply, BLOCKS[0], sid=rng.choice([7, 8, 77])),
            written("s.1", b"an.answer.1.2.3.4.5.6.7", BLOCKS[0]),
            b"MSG s.1 7 %b 2\r\nxy\r\n" % reply,
            b"HMSG s.1 \t7 %b  %d  %d \r\n%b\r\n" % (reply, len(BLOCKS[0]), len(BLOCKS[0]), BLOCKS[0]),
            b"+OK\r\n",
        ]
    )


class Listener:
    """Receives messages, together or one by one, as a follower does."""

    def __init__(self, *, at_once: bool, is_live: bool) -> None:
        self._is_live = is_live
        self.received: list[StoredMessage] = []
        self.taken_at_once = 0
        self._delivered = 0
        self._frames = ConsumerFrames(SID, STREAM, CONSUMER)
        client = WireClient()
        client.sinks[SID] = self._one
        if at_once:
            client.runs[SID] = self._many
        self.parser = FrameParser(client)

    def _one(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        fields = reply.split(b".")
        first = 5 if len(fields) == 9 else 7
        sequence, self._delivered, stored_at = (int(field) for field in fields[first : first + 3])
        self.received.append(
            StoredMessage(subject.decode("utf-8", "surrogateescape"), sequence, stored_at, block, None)
        )

    def _many(self, buffer: bytes, position: int) -> int:
        run, position = self._frames.read(buffer, position, self._delivered, is_live=self._is_live)
        if run is not None:
            self.received += run
            self._delivered += len(run)
            self.taken_at_once += len(run)
        return position


async def poured(wire: bytes, sizes: list[int], *, at_once: bool, is_live: bool = False) -> Listener:
    """Deliver the bytes in pieces of these sizes, repeatedly."""
    listener, at, turn = Listener(at_once=at_once, is_live=is_live), 0, 0
    while at < len(wire):
        size = sizes[turn % len(sizes)]
        await listener.parser.parse(wire[at : at + size])
        at, turn = at + size, turn + 1
    return listener


@pytest.mark.parametrize("odds", [0.0, 0.005, 0.1])
@pytest.mark.parametrize("sizes", [[1 << 30], [32_768], [5_000, 4_096, 9_001], [20_000, 1, 7_000, 3]])
@pytest.mark.parametrize("is_live", [False, True])
async def test_at_once_or_one_by_one_the_messages_are_the_same(odds: float, sizes: list[int], is_live: bool) -> None:
    rng = seeded()
    for _ in range(5 * EFFORT):
        numbers = range(1, 400)
        wire = b"".join(odd(rng, number) if rng.random() < odds else usual(rng, number) for number in numbers)
        plain, fast = await poured(wire, sizes, at_once=False), await poured(wire, sizes, at_once=True, is_live=is_live)
        assert fast.received == plain.received
        assert odds or (len(fast.received), fast.taken_at_once > 300) == (399, True)


@pytest.mark.parametrize(
    "other",
    [
        written("s.1", PREFIX + b".1.2.3.2.1", BLOCKS[0]),
        written("s.1", PREFIX + b".1.2.2.2.1", BLOCKS[0], sid=8),
        written("s.1", PREFIX + b".1.2.2.2.0", BLOCKS[0]),
        written("s.1", PREFIX + b".1.2.2.2.1", BLOCKS[0], body=b"x"),
        written("s.1", PREFIX + b".1.2.2.2.1", ODD_BLOCKS[0]),
        written("s.1", PREFIX + b".1.2.2.2.1", BLOCKS[0]).replace(b" 73 73", b" 72 72"),
    ],
)
def test_a_gap_or_another_frame_ends_what_is_taken(other: bytes) -> None:
    rng = seeded()
    first, *rest = [usual(rng, number) for number in range(1, 100)]
    run, position = ConsumerFrames(SID, STREAM, CONSUMER).read(b"".join([first, other, *rest]), 0, 0, is_live=False)
    assert run is not None
    assert (len(run), position) == (1, len(first))


async def test_a_block_that_looks_like_two_costs_no_more_than_its_bytes() -> None:
    """The frames before it are taken at once; the plain path does not make the rest be parsed again and again."""
    rng = seeded()
    many = [usual(rng, number) for number in range(1, 4_000)]
    odd_one = written("s.1", PREFIX + b".1.4000.4000.2.1", b"NATS/1.0\r\nA: 1\r\n\r\n\r\n")
    with at_most(SECONDS_A_CHUNK):
        listener = await poured(b"".join([*many, odd_one]), [1 << 30], at_once=True)
    assert (len(listener.received), listener.taken_at_once) == (4_000, 3_999)


async def test_many_blocks_that_look_like_two_cost_no_more_than_their_bytes() -> None:
    odd_block = b"NATS/1.0\r\nA: 1\r\n\r\n\r\n"
    many = [written("s.1", PREFIX + b".1.%d.%d.2.1" % (number, number), odd_block) for number in range(1, 4_000)]
    with at_most(SECONDS_A_CHUNK):
        listener = await poured(b"".join(many), [1 << 30], at_once=True)
    assert len(listener.received) == 3_999


def test_what_was_read_in_part_is_left() -> None:
    frame = usual(seeded(), 1)
    for end in range(len(frame)):
        assert ConsumerFrames(SID, STREAM, CONSUMER).read(frame[:end], 0, 0, is_live=True) == (None, 0)
