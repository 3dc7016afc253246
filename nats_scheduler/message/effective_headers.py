"""Place the headers that the server acts on so that every release finds them, whatever the publisher's headers are.

A server searches the whole block for the bytes of a name, values included, and the releases search differently
(measured on 2.10.26, 2.11.0, 2.11.4, 2.11.8, 2.11.11 and the newer ones): up to 2.11.4 only the first occurrence
counts, 2.11.8 stops at the first one that is followed by a colon, and later releases at two that are close together.

The rule: the first occurrence of each name in the block is the header itself, which all of them find. Headers are
appended; if an earlier occurrence would hide one, they are the first in the block instead.

Limit: if the values themselves contain the names, there may be no such order, and then no block.
"""

from collections.abc import Iterable, Sequence

from nats_scheduler.message.headers import CRLF, HEADER_LINE, Header, one_line, with_headers


def with_effective_headers(block: bytes, headers: Sequence[Header]) -> bytes | None:
    """Add headers so that every server finds them; None if that is impossible.

    The order counts if the name of one header is the beginning of another's: the shorter one comes first.
    A value may contain such a name only if the block contains it too, as in a fire whose headers name its schedule.
    """
    appended = with_headers(block, headers)
    if not any(block.find(name) >= 0 for name, _value in headers) or are_effective(appended, headers):
        return appended
    for order in _orders(headers):
        first = _with_first(block, order)
        if are_effective(first, headers):
            return first
    return None


def are_effective(block: bytes, headers: Iterable[Header]) -> bool:
    """Return whether every server finds these headers with these values."""
    return all(_is_effective(block, name, value) for name, value in headers)


def _is_effective(block: bytes, name: bytes, value: bytes) -> bool:
    at = block.find(name)
    return at >= 2 and block.startswith(CRLF + name + b": " + one_line(value) + CRLF, at - 2)


def _orders(headers: Sequence[Header]) -> Iterable[Sequence[Header]]:
    """Yield orders in which names with the same beginning are not adjacent: each header moved to each later place."""
    yield headers
    for index in range(len(headers)):
        rest = [*headers[:index], *headers[index + 1 :]]
        for place in range(index + 1, len(headers)):
            yield [*rest[:place], headers[index], *rest[place:]]


def _with_first(block: bytes, headers: Sequence[Header]) -> bytes:
    """Insert headers after the first line of a block."""
    end = len(HEADER_LINE) if block.startswith(HEADER_LINE) else block.find(CRLF) + 2
    ours = with_headers(None, headers)[len(HEADER_LINE) : -2]
    return block[:end] + ours + block[end:]
