"""What arrives is parsed together where it can be, and is then the same as parsed one by one, in order.

Acknowledgements have the same outcomes as read as JSON; the frames of a consumer are the same whatever is between them.
"""

from random import Random

from nats_scheduler.engine.inputs import Outcome, Stored, Unknown
from nats_scheduler.jetstream.frame_runs import ACKNOWLEDGED, PURGED, AnswerFrames, ConsumerFrames
from nats_scheduler.jetstream.publish import outcome_of
from nats_scheduler.jetstream.wire import FrameParser, WireClient
from nats_scheduler.message.stored import StoredMessage
from tests.harness.seeds import draws, generator
from tests.hostile.effort import at_most


async def parse(parser: FrameParser, wire: bytes, *sizes: int) -> None:
    """Parse bytes that come in pieces of these sizes, repeatedly."""
    at = turn = 0
    while at < len(wire):
        size = sizes[turn % len(sizes)]
        await parser.parse(wire[at : at + size])
        at, turn = at + size, turn + 1


# -- acknowledgements ------------------------------------------------------------------------------------------------

INBOX = "_INBOX.x"

AS_SERVERS_WRITE_THEM = (
    b'{"stream":"ORDERS","seq":7}',
    b'{"stream":"ORDERS", "seq":7}',
    b'{"stream":"ORDERS","domain":"hub","seq":7}',
    b'{"stream":"ORDERS","domain":"hub", "seq":18446744073709551615}',
    b'{"stream":"ORDERS","seq":7,"duplicate": true}',
)

ODD = (
    b"",
    b"{}",
    b'{"stream":"ORDERS","seq":0}',
    b'{"stream":"ORDERS","seq":07}',
    b'{"stream":"ORDERS","seq":7',
    b'{"stream":"ORDERS","seq":7,"duplicate":false}',
    b'{"stream":"ORDERS","seq":7,"error":{"code":400,"err_code":10071,"description":"no"}}',
    b'{"stream":"ORDERS","seq":7}\n',
    b'{"stream":"ORDERS","seq":7}\r\n',
    b'{"stream":"ORDERS","seq":7}\r\nMSG _INBOX.x.1.8 3 27\r\n{"stream":"ORDERS","seq":8}',
    b'{"stream":"OTHER","seq":7}',
    b'{"seq":7}',
    b'{"stream":"ORDERSX","seq":7}',
    b'{"error":{"code":409,"err_code":10158,"description":"in process"},"stream":"ORDERS","seq":0}',
    b'{"stream":"\t","seq":7}',
    b'{"stream":"a\\"","seq":7}',
    b'{"seq":7,"stream":"ORDERS"}',
    b'{"stream":"ORDERS","seq":7.0}',
    b'{"stream":"ORDERS","seq":-7}',
)


class Acknowledged:
    """Reads acknowledgements from the wire, together or one by one, and notes the fire of each."""

    def __init__(self, stream: str, *, at_once: bool) -> None:
        self.read: list[tuple[bytes, Outcome | None]] = []
        self.taken_at_once = 0
        streams = {b"%d" % key: stream.encode("utf-8", "replace") for key in range(100)}
        self._frames = AnswerFrames(INBOX, streams, ACKNOWLEDGED)
        client = WireClient()
        client.sinks[3] = lambda subject, _reply, block, body: self.read.append(
            (subject.removeprefix(b"_INBOX.x."), outcome_of(stream, block, body))
        )
        if at_once:
            client.runs[3] = self._run
        self.parser = FrameParser(client)

    def _run(self, buffer: bytes, position: int) -> int:
        groups, position = self._frames.read(buffer, position)
        for key, tokens, sequences in groups:
            self.taken_at_once += len(tokens)
            self.read += [(key + b"." + token, Stored(at)) for token, at in zip(tokens, sequences, strict=True)]
        return position


def wire_of(*bodies: bytes) -> bytes:
    """Return the frames of acknowledgements, with a pong and a refusal without a body between them."""
    shape = b"MSG _INBOX.x.%d.%d 3 %d\r\n%b\r\n"
    frames = [shape % (number // 7, number, len(body), body) for number, body in enumerate(bodies)]
    refusal = b"NATS/1.0 503\r\n\r\n"
    frames.insert(len(frames) // 2, b"HMSG _INBOX.x.9.99 3 %d %d\r\n%b\r\n" % (len(refusal), len(refusal), refusal))
    return b"".join(frames)


async def assert_read_alike(wire: bytes, pieces: int = 1 << 20, stream: str = "ORDERS") -> Acknowledged:
    """Read the same bytes both ways; return the reader that reads them together."""
    at_once, one_by_one = Acknowledged(stream, at_once=True), Acknowledged(stream, at_once=False)
    for reader in (at_once, one_by_one):
        await parse(reader.parser, wire, pieces)
    assert at_once.read == one_by_one.read, pieces
    return at_once


async def test_an_acknowledgement_says_what_it_says_in_json() -> None:
    wire = wire_of(*AS_SERVERS_WRITE_THEM * 5, *ODD, *AS_SERVERS_WRITE_THEM * 5)
    for pieces in (1, 2, 5, 64, 1_024, 1_100, 1 << 20):
        await assert_read_alike(wire, pieces)


async def test_what_servers_write_is_understood_at_once() -> None:
    reader = await assert_read_alike(wire_of(*AS_SERVERS_WRITE_THEM * 4))
    outcomes = [outcome for token, outcome in reader.read if token != b"9.99"]
    assert outcomes == [Stored(7), Stored(7), Stored(7), None, Stored(7, duplicate=True)] * 4
    assert reader.taken_at_once == 4 * (len(AS_SERVERS_WRITE_THEM) - 2), "neither the huge one nor the duplicate"
    for stream in ("\u00dcbung", "a+b", "a(b", "100%"):
        body = b'{"stream":"%b","seq":7}' % stream.encode()
        assert (await assert_read_alike(wire_of(*[body] * 40), stream=stream)).taken_at_once == 40, stream


def test_an_identity_in_process_is_an_unknown_outcome() -> None:
    for said in (
        b'{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"S"}',
        b'{"stream":"S", "seq":0,"duplicate": true}',  # as 2.10 says it
    ):
        outcome = outcome_of("S", b"", said)
        assert isinstance(outcome, Unknown)
        assert outcome.in_process


DONE = b'{"type":"io.nats.jetstream.api.v1.stream_purge_response","success":true,"purged":%d}'
ODD_PURGES = (
    DONE[:-2],
    DONE % 1 + b" ",
    b'{"type":"io.nats.jetstream.api.v1.stream_purge_response","purged":0}',
    b'{"type":"io.nats.jetstream.api.v1.stream_purge_response","error":{"code":500,"err_code":10110,'
    b'"description":"stream purge not permitted"},"purged":0}',
    b"",
    b"[]",
)


def read_purges(bodies: list[bytes], keys: dict[bytes, bytes]) -> list[bytes]:
    """Return the numbers of those of these answers that are read at once, up to the first that is not."""
    groups, _position = AnswerFrames(INBOX, keys, PURGED).read(wire_of(*bodies), 0)
    return [number for _key, numbers, _counts in groups for number in numbers]


def test_answers_to_purges_are_read_at_once_up_to_another() -> None:
    keys = {b"0": b"", b"1": b""}
    usual = [DONE % count for count in (0, 1, 70)]
    assert read_purges([*usual, *usual], keys) == [b"0", b"1", b"2"]  # a pong and a refusal lie between
    for odd in ODD_PURGES:
        assert read_purges([usual[0], odd, *usual, *usual, *usual], keys) == [b"0"]
    assert read_purges([*usual, *usual], {}) == []


# -- the frames of a consumer ----------------------------------------------------------------------------------------

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
"""Longest process time for 4,000 frames of one read."""


def written(subject: str, reply: bytes, block: bytes, body: bytes = b"", sid: int = SID) -> bytes:
    """Write a frame as a server does."""
    name = subject.encode("utf-8", "surrogateescape")
    size = len(block)
    return b"HMSG %b %d %b %d %d\r\n%b%b\r\n" % (name, sid, reply, size, size + len(body), block, body)


def usual(rng: Random, number: int) -> bytes:
    """Write the frame that the consumer delivers as its `number`th message."""
    reply = b"%b.1.%d.%d.%d.%d" % (PREFIX, number * 3, number, 10**18 + number, rng.randrange(1, 10**6))
    return written(rng.choice(SUBJECTS), reply, rng.choice(BLOCKS))


def odd(rng: Random, number: int) -> bytes:
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


class Followed:
    """Receives messages, together or one by one, as a follower does."""

    def __init__(self, *, at_once: bool) -> None:
        self.received: list[StoredMessage] = []
        self.pending: list[int] = []
        """For each message, how many were to follow it."""
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
        sequence, self._delivered, stored_at, pending = (int(field) for field in fields[first : first + 4])
        self.pending.append(pending)
        self.received.append(
            StoredMessage(subject.decode("utf-8", "surrogateescape"), sequence, stored_at, block, None)
        )

    def _many(self, buffer: bytes, position: int) -> int:
        found = self._frames.read(buffer, position, self._delivered)
        if found is None:
            return position
        self.received += found.messages
        self.pending += map(int, found.pending)
        self._delivered += len(found.messages)
        self.taken_at_once += len(found.messages)
        return found.end


async def poured(wire: bytes, *sizes: int, at_once: bool) -> Followed:
    """Deliver the bytes in pieces of these sizes, repeatedly."""
    listener = Followed(at_once=at_once)
    await parse(listener.parser, wire, *sizes)
    return listener


async def test_frames_of_a_consumer_are_the_same_at_once_or_one_by_one() -> None:
    rng = generator("frames of a consumer")
    for odds in [0.0, 0.005, 0.1] * draws(1):
        for sizes in ((1 << 30,), (32_768,), (5_000, 4_096, 9_001), (20_000, 1, 7_000, 3)):
            wire = b"".join(odd(rng, n) if rng.random() < odds else usual(rng, n) for n in range(1, 400))
            plain = await poured(wire, *sizes, at_once=False)
            fast = await poured(wire, *sizes, at_once=True)
            assert (fast.received, fast.pending) == (plain.received, plain.pending)
            assert odds or (len(fast.received), fast.taken_at_once > 300) == (399, True)


async def test_blocks_that_look_like_two_are_read_once() -> None:
    """The plain path does not have the rest parsed again and again: it takes about a hundredth of what is allowed."""
    rng, odd_block = generator("blocks that look like two"), b"NATS/1.0\r\nA: 1\r\n\r\n\r\n"
    many = [usual(rng, number) for number in range(1, 4_000)]
    odd_one = written("s.1", PREFIX + b".1.4000.4000.2.1", odd_block)
    with at_most(SECONDS_A_CHUNK):
        listener = await poured(b"".join([*many, odd_one]), 1 << 30, at_once=True)
    assert (len(listener.received), listener.taken_at_once) == (4_000, 3_999)
    many = [written("s.1", PREFIX + b".1.%d.%d.2.1" % (number, number), odd_block) for number in range(1, 4_000)]
    with at_most(SECONDS_A_CHUNK):
        listener = await poured(b"".join(many), 1 << 30, at_once=True)
    assert len(listener.received) == 3_999
