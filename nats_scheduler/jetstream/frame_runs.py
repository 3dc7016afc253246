"""Parse many frames of one kind out of the bytes that were read, at once.

During a start and in a burst the server sends a consumer's messages one behind the other, all of one shape. In a
burst it sends acknowledgements in the same way. A regular expression parses them without a turn of Python code for
each.

The rule: a run takes only what the plain path would take in the same way. A frame of another shape or subscription,
or one that is not complete, ends the run. So do sizes that do not fit: a body may contain what looks like its end.
The plain path continues from there.

Limit: replies of the long form, which servers send only if they are configured to, are left to the plain path.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from nats_scheduler.message.runs import MessageRun

_DELIVERED = (
    rb"HMSG (\S++) %d \$JS\.ACK\.%b\.%b\.1\.([0-9]{1,20}+)\.([0-9]{1,20}+)\.([0-9]{1,20}+)\.([0-9]{1,20}+) "
    rb"([0-9]{1,9}+) \6\r\n(NATS/1\.0\r\n(?:[^\r]++\r\n)++\r\n)\r\n"
)
_TEXT = rb'"[^"\\\x00-\x1f]*+"'
ACKNOWLEDGED = rb'\{"stream":"([^"\\\x00-\x1f]*+)", ?(?:"domain":%b, ?)?"seq": ?([1-9][0-9]{0,17})\}' % _TEXT
PURGED = rb'()\{"type":"io\.nats\.jetstream\.api\.v1\.stream_purge_response","success":true,"purged":([0-9]{1,18}+)\}'
"""The usual answers; their groups are the stream that they name, or none, and a number of the server."""


_groups = re.Match[bytes].groups


def _run(shape: re.Pattern[bytes], buffer: bytes, position: int) -> Iterator[re.Match[bytes]]:
    """Return the consecutive frames of a shape from a position on."""
    # Each match begins where the one before ended. typeshed omits `scanner` because the manual does.
    return iter(shape.scanner(buffer, position).match, None)  # type: ignore[attr-defined]


class FoundRun(NamedTuple):
    """The messages of a consumer that were found in a buffer, one behind the other."""

    messages: MessageRun
    pending: Sequence[bytes]
    """For each of them, how many more the consumer had to deliver behind it, as decimal digits."""
    end: int
    """Where the last one ends in the buffer."""


class ConsumerFrames:
    """The frames of one subscription to one consumer."""

    def __init__(self, sid: int, stream: str, consumer: str) -> None:
        self._names = sid, re.escape(stream.encode("utf-8", "surrogateescape")), re.escape(consumer.encode())

    @cached_property
    def _shape(self) -> re.Pattern[bytes]:
        """Their shape; compiled at the first use: that takes 0.25 ms, and most streams are short."""
        return re.compile(_DELIVERED % self._names)

    def read(self, buffer: bytes, position: int, delivered: int) -> FoundRun | None:
        """Return the messages at a position, behind the one that was delivered last; None if there is none."""
        found = list(_run(self._shape, buffer, position))
        if not found:
            return None
        columns = list(zip(*map(_groups, found), strict=True))
        usual = _count_usual(columns, delivered + 1)
        if not usual:
            return None
        if usual < len(found):
            columns = [column[:usual] for column in columns]
        subjects, sequences, _orders, times, pending, _sizes, blocks = columns
        # No subject contains a line end, and one that is not UTF-8 is decoded alike between two line ends.
        names = b"\n".join(subjects).decode("utf-8", "surrogateescape").split("\n")
        return FoundRun(MessageRun(names, sequences, times, blocks), pending, found[usual - 1].end())


def _count_usual(columns: Sequence[Sequence[bytes]], first: int) -> int:
    """Return how many of these frames have the size that they name, and are in the order that begins with `first`."""
    _subjects, _sequences, orders, _times, _pending, sizes, blocks = columns
    numbers, lengths = list(map(int, orders)), list(map(int, sizes))
    if lengths == list(map(len, blocks)) and numbers == [*range(first, first + len(numbers))]:
        return len(numbers)
    frames = enumerate(zip(numbers, lengths, blocks, strict=True), first)
    return sum(takewhile(bool, (number == order and size == len(block) for order, (number, size, block) in frames)))


AnsweredGroup = tuple[bytes, list[bytes], list[int]]
"""For neighbours of one sender: its number (the last token but one), those of its requests, and those of the server.

The server's number is the sequence of a fire that it stored, or how many messages a purge removed.
"""


class AnswerFrames:
    """The frames of answers below one inbox, of those that say what is usual.

    Each sender has a number below the inbox and a stream, and the answer has to name that stream, or none if it is "".
    """

    def __init__(self, inbox: str, streams: Mapping[bytes, bytes], usual: bytes) -> None:
        """Read the frames to an inbox; `streams` has the stream of each sender, by its number."""
        line = rb"MSG %b\.([0-9]++)\.([0-9]++) [0-9]++ ([0-9]{1,9}+)\r\n(" % re.escape(inbox.encode())
        self._shape = re.compile(line + usual + rb")\r\n")
        self._streams = streams

    def read(self, buffer: bytes, position: int) -> tuple[list[AnsweredGroup], int]:
        """Return the answers at a position, grouped by sender while they are consecutive, and their end."""
        groups: list[AnsweredGroup] = []
        sender, tokens, numbers = b"", list[bytes](), list[int]()
        for found in _run(self._shape, buffer, position):
            key, token, size, body, stream, number = found.groups()
            if int(size) != len(body) or self._streams.get(key) != stream:
                break
            if key != sender:
                sender, tokens, numbers = key, [], []
                groups.append((sender, tokens, numbers))
            tokens.append(token)
            numbers.append(int(number))
            position = found.end()
        return groups, position
