"""Frames in small pieces cost no more than their bytes, and what is no frame is refused."""

import pytest
from nats.errors import ProtocolError

from nats_scheduler.jetstream.wire import FrameParser, WireClient
from tests.hostile.effort import at_most

SECONDS_A_MESSAGE = 6.0
"""Process time for a message of 300,000 bytes in pieces of one byte: the truth is 0.15 s."""


class Wire:
    """A parser, and what it delivered."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes, bytes, bytes]] = []
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


@pytest.mark.slow
async def test_a_large_message_in_small_pieces_costs_no_more_than_its_bytes() -> None:
    body = b"x" * 300_000
    for size in (1, 1_000):
        wire = Wire()
        with at_most(SECONDS_A_MESSAGE, size):
            await wire.pour(b"MSG a 7 %d\r\n%b\r\nMSG b 7 0\r\n\r\n" % (len(body), body), size)
        assert wire.messages == [(b"a", b"", b"", body), (b"b", b"", b"", b"")]


async def test_a_control_line_that_cannot_be_is_refused() -> None:
    """And a new connection begins with a new frame."""
    with at_most(SECONDS_A_MESSAGE), pytest.raises(ProtocolError):
        await Wire().pour(b"x" * 300_000, 1)
    for line in (b"MSG a 7 -20", b"HMSG a 7 9 3", b"HMSG a 7 -1 3", b"MSG a 7 " + b"9" * 5_000):
        with pytest.raises(ProtocolError):
            await Wire().pour(line + b"\r\n" + b"x" * 40, 1_000)
    wire = Wire()
    await wire.parser.parse(b"MSG a 7 10\r\nhalf")
    wire.parser.reset()
    await wire.parser.parse(b"MSG b 7 1\r\nx\r\n")
    assert wire.messages == [(b"b", b"", b"", b"x")]
