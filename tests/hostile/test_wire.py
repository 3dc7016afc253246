"""Frames come in pieces of any size, and small pieces cost no more than their bytes."""

import random

import pytest
from nats.errors import ProtocolError

from nats_scheduler.jetstream.wire import FrameParser, WireClient
from tests.harness.seeds import draws, generator
from tests.hostile.effort import at_most

Message = tuple[bytes, bytes, bytes, bytes]

SECONDS_A_MEGABYTE = 15.0
"""Process time for a message of a megabyte in pieces of one byte: the truth is half a second."""


class Wire:
    """A parser, and what it delivered."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        client = WireClient()
        client.sinks[7] = lambda *message: self.messages.append(message)
        self.parser = FrameParser(client)

    async def pour(self, wire: bytes, *sizes: int) -> None:
        """Hand over the bytes in pieces of these sizes, again and again."""
        at = turn = 0
        while at < len(wire):
            size = sizes[turn % len(sizes)]
            await self.parser.parse(wire[at : at + size])
            at, turn = at + size, turn + 1


def drawn(rng: random.Random, number: int) -> tuple[bytes, Message]:
    """Draw a message, and write it as a server does."""
    subject, reply = b"s.%d" % number, rng.choice([b"", b"r.%d" % number])
    body = rng.choice([b"", b"\r\n", b"MSG a 7 3\r\nxyz\r\n", rng.randbytes(rng.randrange(300))])
    block = rng.choice([b"", b"NATS/1.0\r\n", b"\r\n\r\n", b"no block at all", rng.randbytes(rng.randrange(1, 90))])
    to = b"%b 7%b" % (subject, b" " + reply if reply else b"")
    if block:
        wire = b"HMSG %b %d %d\r\n%b%b\r\n" % (to, len(block), len(block + body), block, body)
    else:
        wire = b"MSG %b %d\r\n%b\r\n" % (to, len(body), body)
    return wire, (subject, reply, block, body)


async def test_split_at_any_byte_the_messages_are_the_same() -> None:
    rng = generator(__name__)
    for sizes in ([1], [2], [3, 1], [7, 1, 13], [64, 1], [500, 2, 1]):
        for _ in range(draws(2)):
            frames = [drawn(rng, number) for number in range(30)]
            wire = Wire()
            await wire.pour(b"".join(bytes_sent for bytes_sent, _message in frames), *sizes)
            assert wire.messages == [message for _bytes_sent, message in frames], sizes


@pytest.mark.slow
async def test_a_large_message_in_small_pieces_costs_no_more_than_its_bytes() -> None:
    body = b"x" * 1_000_000
    for size in (1, 1_000):
        wire = Wire()
        with at_most(SECONDS_A_MEGABYTE, size):
            await wire.pour(b"MSG a 7 %d\r\n%b\r\nMSG b 7 0\r\n\r\n" % (len(body), body), size)
        assert wire.messages == [(b"a", b"", b"", body), (b"b", b"", b"", b"")]


async def test_a_control_line_without_an_end_or_with_sizes_that_cannot_be_is_refused() -> None:
    """And a new connection begins with a new frame."""
    with at_most(SECONDS_A_MEGABYTE), pytest.raises(ProtocolError):
        await Wire().pour(b"x" * 1_000_000, 1)
    for line in (b"MSG a 7 -20", b"HMSG a 7 9 3", b"HMSG a 7 -1 3", b"MSG a 7 " + b"9" * 5_000):
        with pytest.raises(ProtocolError):
            await Wire().pour(line + b"\r\n" + b"x" * 40, 1_000)
    wire = Wire()
    await wire.parser.parse(b"MSG a 7 10\r\nhalf")
    wire.parser.reset()
    await wire.parser.parse(b"MSG b 7 1\r\nx\r\n")
    assert wire.messages == [(b"b", b"", b"", b"x")]
