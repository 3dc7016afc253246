"""Place headers by which the server is to act so that it finds them, whatever the publisher's own headers hold.

A server searches the whole block for the bytes of a name, values included, and the releases search differently
(measured on 2.10.26, 2.11.0, 2.11.4, 2.11.8, 2.11.11 and the newer ones): up to 2.11.4 only the first occurrence
counts, 2.11.8 gives up at the first that is followed by a colon, and later ones at two that stand close to each other.
The rule: the first occurrence of each name in the block is the header itself, which all of them find.
So headers are appended, as always; where an earlier occurrence would hide one, they stand first in the block instead.

Cost: a search of the block for each name; anything more only where one is found.
Limit: where the values themselves hold the names there may be no such order; then there is no block.
"""

from collections.abc import Iterable, Sequence

from nats_scheduler.message.headers import CRLF, HEADER_LINE, one_line, with_headers

Header = tuple[bytes, bytes]


def with_obeyed(block: bytes, headers: Sequence[Header]) -> bytes | None:
    """Add headers that every server finds; None if that is impossible.

    The order counts where the name of one is the beginning of another's: the shorter one comes first.
    A value may hold such a name only where the block holds it too, as that of a fire does which names its schedule.
    """
    appended = with_headers(block, headers)
    if not any(block.find(name) >= 0 for name, _value in headers) or are_obeyed(appended, headers):
        return appended
    for order in _orders(headers):
        first = _with_first(block, order)
        if are_obeyed(first, headers):
            return first
    return None


def are_obeyed(block: bytes, headers: Iterable[Header]) -> bool:
    """Return whether every server finds these headers with these values."""
    return all(_is_obeyed(block, name, value) for name, value in headers)


def _is_obeyed(block: bytes, name: bytes, value: bytes) -> bool:
    at = block.find(name)
    return at >= 2 and block.startswith(CRLF + name + b": " + one_line(value) + CRLF, at - 2)


def _orders(headers: Sequence[Header]) -> Iterable[Sequence[Header]]:
    """Yield the orders that keep those apart whose names begin alike: each header moved to each later place."""
    yield headers
    for index in range(len(headers)):
        rest = [*headers[:index], *headers[index + 1 :]]
        for place in range(index + 1, len(headers)):
            yield [*rest[:place], headers[index], *rest[place:]]


def _with_first(block: bytes, headers: Sequence[Header]) -> bytes:
    """Put headers behind the first line of a block."""
    end = len(HEADER_LINE) if block.startswith(HEADER_LINE) else block.find(CRLF) + 2
    ours = with_headers(None, headers)[len(HEADER_LINE) : -2]
    return block[:end] + ours + block[end:]
