"""Frames come in pieces of any size, and small pieces cost no more than their bytes."""

import random

import pytest
from nats.errors import ProtocolError

from nats_scheduler.jetstream.wire import FrameParser, WireClient
from tests.hostile.effort import EFFORT, at_most, seeded

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

    async def pour(self, wire: bytes, sizes: list[int]) -> None:
        """Hand over the bytes in pieces of these sizes, again and again."""
        at = turn = 0
        while at < len(wire):
            size = sizes[turn % len(sizes)]
            await self.parser.parse(wire[at : at + size])
            at, turn = at + size, turn + 1


def frames(rng: random.Random, count: int) -> tuple[bytes, list[Message]]:
    """Draw messages, and write them as a server does."""
    wire, messages = [], []
    for number in range(count):
        subject, reply = b"s.%d" % number, rng.choice([b"", b"r.%d" % number])
        body = rng.choice([b"", b"\r\n", b"MSG a 7 3\r\nxyz\r\n", rng.randbytes(rng.randrange(300))])
        block = rng.choice([b"", b"NATS/1.0\r\n", b"\r\n\r\n", b"no block at all", rng.randbytes(rng.randrange(1, 90))])
        middle = b" " + reply if reply else b""
        if block:
            wire.append(
                b"HMSG %b 7%b %d %d\r\n%b%b\r\n" % (subject, middle, len(block), len(block + body), block, body)
            )
        else:
            wire.append(b"MSG %b 7%b %d\r\n%b\r\n" % (subject, middle, len(body), body))
        messages.append((subject, reply, block, body))
    return b"".join(wire), messages


@pytest.mark.parametrize("sizes", [[1], [2], [3, 1], [7, 1, 13], [64, 1], [500, 2, 1]])
async def test_split_at_any_byte_the_messages_are_the_same(sizes: list[int]) -> None:
    rng = seeded()
    for _ in range(3 * EFFORT):
        bytes_sent, messages = frames(rng, 30)
        wire = Wire()
        await wire.pour(bytes_sent, sizes)
        assert wire.messages == messages


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 1_000])
async def test_a_large_message_in_small_pieces_costs_no_more_than_its_bytes(size: int) -> None:
    body = b"x" * 1_000_000
    wire = Wire()
    with at_most(SECONDS_A_MEGABYTE):
        await wire.pour(b"MSG a 7 %d\r\n%b\r\nMSG b 7 0\r\n\r\n" % (len(body), body), [size])
    assert wire.messages == [(b"a", b"", b"", body), (b"b", b"", b"", b"")]


async def test_a_control_line_without_an_end_is_not_waited_for() -> None:
    with at_most(SECONDS_A_MEGABYTE), pytest.raises(ProtocolError):
        await Wire().pour(b"x" * 1_000_000, [1])


@pytest.mark.parametrize("line", [b"MSG a 7 -20", b"HMSG a 7 9 3", b"HMSG a 7 -1 3", b"MSG a 7 " + b"9" * 5_000])
async def test_sizes_that_cannot_be_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        await Wire().pour(line + b"\r\n" + b"x" * 40, [1_000])


async def test_a_new_connection_begins_with_a_new_frame() -> None:
    wire = Wire()
    await wire.parser.parse(b"MSG a 7 10\r\nhalf")
    wire.parser.reset()
    await wire.parser.parse(b"MSG b 7 1\r\nx\r\n")
    assert wire.messages == [(b"b", b"", b"", b"x")]
