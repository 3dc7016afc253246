"""Parse many frames of one kind out of the bytes that were read, at once.

During a start and in a burst the server sends a consumer's messages one behind the other, all of one shape. In a burst
it sends acknowledgements in the same way.
A regular expression parses them without a turn of Python code for each.

The rule: a run takes only what the plain path would take in the same way.
A frame of another shape or subscription, or one that is not complete, ends the run. So do sizes that do not fit: a body
may contain what looks like its end. The plain path continues from there.

Cost: 1 µs a message, half of that an acknowledgement.
Limit: replies of the long form, which servers send only if they are configured to, are left to the plain path.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import repeat

from nats_scheduler.message.stored import StoredMessage

_LINE = (
    rb"HMSG (\S++) %d \$JS\.ACK\.%b\.%b\.1\.([0-9]{1,20}+)\.([0-9]{1,20}+)\.([0-9]{1,20}+)\.%b "
    rb"([0-9]{1,9}+) \5\r\n"
)
_REST = rb"(NATS/1\.0\r\n(?:[^\r]++\r\n)++\r\n)\r\n"
_TEXT = rb'"[^"\\\x00-\x1f]*+"'
_ACKNOWLEDGED = rb'\{"stream":"([^"\\\x00-\x1f]*+)", ?(?:"domain":%b, ?)?"seq": ?([1-9][0-9]{0,17})\}' % _TEXT
_SOME, _ANY = rb"[1-9][0-9]*+", rb"[0-9]++"


def _run(shape: re.Pattern[bytes], buffer: bytes, position: int) -> Iterator[re.Match[bytes]]:
    """Return the consecutive frames of a shape from a position on."""
    # Each match begins where the one before ended. typeshed omits `scanner` because the manual does.
    return iter(shape.scanner(buffer, position).match, None)  # type: ignore[attr-defined]


class ConsumerFrames:
    """The frames of one subscription to one consumer."""

    def __init__(self, sid: int, stream: str, consumer: str) -> None:
        self._names = sid, re.escape(stream.encode("utf-8", "surrogateescape")), re.escape(consumer.encode())

    @cached_property
    def _behind(self) -> re.Pattern[bytes]:
        """The shape before all is read; compiled at the first use: that takes 0.25 ms, and most streams are short."""
        return re.compile(_LINE % (*self._names, _SOME) + _REST)

    @cached_property
    def _live(self) -> re.Pattern[bytes]:
        return re.compile(_LINE % (*self._names, _ANY) + _REST)

    def read(self, buffer: bytes, position: int, delivered: int, *, is_live: bool) -> tuple[list[StoredMessage], int]:
        """Return the messages at a position, behind the one that was delivered last, and the position of their end.

        Unless the follower is live, a message behind which none is pending is left: it means that all has been read.
        """
        rows, end = [], position
        for found in _run(self._live if is_live else self._behind, buffer, position):
            row = found.groups()
            if int(row[4]) != len(row[5]):
                break  # here, and not after the loop: what follows it would be parsed again and again
            rows.append(row)
            end = found.end()
        if not rows:
            return [], position
        subjects, sequences, orders, times, _sizes, blocks = zip(*rows, strict=True)
        if list(map(int, orders)) != list(range(delivered + 1, delivered + 1 + len(rows))):
            return [], position
        names = [subject.decode("utf-8", "surrogateescape") for subject in subjects]
        messages = map(StoredMessage, names, map(int, sequences), map(int, times), blocks, repeat(None))
        return list(messages), end


AcknowledgedGroup = tuple[bytes, list[bytes], list[int]]
"""For neighbours of one sender: its number (the last token but one), the fires' numbers and the sequences."""


class AcknowledgementFrames:
    """The frames of acknowledgements below one inbox, of those that say that something was stored anew.

    Each sender has a number below the inbox and a stream, and the answer has to name that stream.
    """

    def __init__(self, inbox: str, streams: Mapping[bytes, bytes]) -> None:
        """Read the frames to an inbox; `streams` has the stream of each sender, by its number."""
        line = rb"MSG %b\.([0-9]++)\.([0-9]++) [0-9]++ ([0-9]{1,9}+)\r\n(" % re.escape(inbox.encode())
        self._shape = re.compile(line + _ACKNOWLEDGED + rb")\r\n")
        self._streams = streams

    def read(self, buffer: bytes, position: int) -> tuple[list[AcknowledgedGroup], int]:
        """Return the acknowledgements at a position, grouped by sender while they are consecutive.

        Returns also the position of their end.
        """
        groups: list[AcknowledgedGroup] = []
        sender, tokens, sequences = b"", list[bytes](), list[int]()
        for found in _run(self._shape, buffer, position):
            key, token, size, body, stream, sequence = found.groups()
            if int(size) != len(body) or self._streams.get(key) != stream:
                break
            if key != sender:
                sender, tokens, sequences = key, [], []
                groups.append((sender, tokens, sequences))
            tokens.append(token)
            sequences.append(int(sequence))
            position = found.end()
        return groups, position
