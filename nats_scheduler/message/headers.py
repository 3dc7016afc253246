"""Read and change raw header blocks: `NATS/1.0\r\nA: b\r\n\r\n`.

Rule: everything that a call does not change stays the same, byte for byte, and no input raises an exception.
A parsed mapping would lose order, spacing, duplicates and bytes that are not UTF-8, and a generated message must keep
all of them. So every function works on the bytes, and treats special cases as the server's own functions do
(`sliceHeader`, `removeHeaderIfPresent`, `removeHeaderIfPrefixPresent`, `genHeader` in nats-server's client.go).
Cost: a look-up is one `bytes.find` if the header is absent; a change copies the block once. Both are linear.
Limit: the block is assumed to be at most 64 KiB, which is the server's own limit.
"""

from collections.abc import Callable, Iterable, Sequence

CRLF = b"\r\n"
HEADER_LINE = b"NATS/1.0\r\n"
EMPTY_BLOCK = b"NATS/1.0\r\n\r\n"

RELAYED = b"Nats-Stream"
"""A header of each message in the answer to a direct get, which a client may have the server send anywhere: no message
that a sidecar writes has it."""

MARKER_REASON = b"Nats-Marker-Reason"
"""The header of a message that says why the last one on its subject was removed."""

MSG_ID = b"Nats-Msg-Id"
"""The server stores only the first of several messages with the same value, within its duplicate window."""
MSG_TTL = b"Nats-TTL"
"""The time for which the server keeps the message; from 2.11 on."""
MSG_ROLLUP = b"Nats-Rollup"
"""The server deletes all earlier messages on its subject (`sub`) or in its stream (`all`) as it stores the message."""

_PROTOCOL_VERSION = b"NATS/1.0"
_COLON = ord(":")


def decoded(value: bytes) -> str:
    """Return a header's value as text; bytes that are not UTF-8 survive the way back."""
    return value.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Return the bytes of a header's value that was `decoded`: the same ones, whatever they are."""
    return text.encode("utf-8", "surrogateescape")


def header_value(block: bytes | None, name: bytes) -> bytes | None:
    """Return the value of the first header called `name`: None if it is absent, b"" if it is present and empty.

    Names are case-sensitive, directly after CRLF and directly before a colon. Leading spaces of the value are skipped;
    tabs and trailing spaces belong to it.
    """
    at = _position(block, name, 0) if block else -1
    if block is None or at < 0:
        return None
    start = at + len(name) + 1
    end = block.find(CRLF, start)
    return (block[start:] if end < 0 else block[start:end]).lstrip(b" ")


def header_items(block: bytes | None) -> list[tuple[bytes, bytes]]:
    """List all headers in order, duplicates too, as (name, value); lines without a colon are left out."""
    items = []
    for line in (block or b"").split(CRLF)[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            items.append((name, value.lstrip(b" ")))
    return items


def with_header(block: bytes | None, name: bytes, value: bytes) -> bytes:
    """Append `Name: value` at the end of the block; create the block if there is none."""
    return with_headers(block, ((name, value),))


def with_headers(block: bytes | None, items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Append several headers at the end of the block, in order.

    As the server does: white space around a value is removed, a CR or LF inside becomes a space
    (`test_an_appended_value_cannot_start_another_header`).
    """
    parts = [block[:-2] if block and len(block) > 2 else HEADER_LINE]
    for name, value in items:
        parts += (name, b": ", one_line(value), CRLF)
    parts.append(CRLF)
    return b"".join(parts)


def without_headers(block: bytes | None, names: Iterable[bytes] = (), prefixes: Iterable[bytes] = ()) -> bytes:
    """Remove every header that starts with one of `prefixes`, then every header called one of `names`.

    An inline status (`NATS/1.0 503 text`) is removed too. Return b"" if only the first line is left.
    """
    left = without_status(block)
    for prefix in prefixes:
        left = _without(left, prefix, _prefix_position)
    for name in names:
        left = _without(left, name, _position)
    return left


def without_status(block: bytes | None) -> bytes:
    """Remove an inline status and its description from the first line; b"" if there is nothing else.

    As the server does with every message that a client publishes, before it stores it.
    """
    if not block:
        return b""
    if block.startswith(HEADER_LINE) or not block.startswith(_PROTOCOL_VERSION):
        return block
    end = block.find(b"\r")
    if end <= len(_PROTOCOL_VERSION):
        return block
    left = _PROTOCOL_VERSION + block[end:]
    return b"" if len(left) == len(EMPTY_BLOCK) else left


def _position(block: bytes, name: bytes, offset: int) -> int:
    """Return the first position of the header `name` at or after `offset`; -1 if there is none.

    As the server does: the search stops if the name occurs in the first two bytes of the block
    (`test_a_name_that_the_block_starts_with_is_never_found`), or less than two bytes after an occurrence that is no
    header (`test_a_doubled_look_alike_hides_the_header_behind_it`).
    """
    size = len(name)
    while True:
        at = block.find(name, offset)
        if at - offset < 2:
            return -1
        offset = at + size
        if block[at - 2 : at] != CRLF:
            continue
        if offset >= len(block):
            return -1
        if block[offset] == _COLON:
            return at


def _prefix_position(block: bytes, prefix: bytes, offset: int) -> int:
    """Return the first position of a header whose name starts with `prefix`, at or after `offset`; -1 if there is none.

    As the server does: here a bare LF is enough to start a header
    (`test_a_prefix_behind_a_bare_line_feed_is_stripped_too`).
    """
    at = block.find(b"\n" + prefix, offset)
    return at if at < 0 else at + 1


def _without(block: bytes, name: bytes, position: Callable[[bytes, bytes, int], int]) -> bytes:
    """Remove every header that `position` finds; return b"" if then only the first line is left."""
    pieces, kept = [], 0
    at = position(block, name, 0)
    while at >= 0 and (end := block.find(CRLF, at)) >= 0:
        pieces.append(block[kept:at])
        kept = end + 2
        at = position(block, name, end)
    if not kept:
        return block
    left = b"".join((*pieces, block[kept:]))
    return b"" if len(left) <= len(EMPTY_BLOCK) else left


def one_line(value: bytes) -> bytes:
    """Make `value` safe for one header line."""
    return value.replace(b"\n", b" ").replace(b"\r", b" ").strip(b" \t")


# Place the headers that the server acts on so that every release finds them, whatever the publisher's own headers
# are.
#
# A server searches the whole block for the bytes of a name, values included, and the releases search differently
# (measured on 2.10.26, 2.11.0, 2.11.4, 2.11.8, 2.11.11 and the newer ones): up to 2.11.4 only the first occurrence
# counts, 2.11.8 stops at the first one that is followed by a colon, and later releases at two that are close
# together. The rule: the first occurrence of each name in the block is the header itself, which all of them find. So
# headers are appended, as always; if an earlier occurrence would hide one, they are the first in the block instead.
#
# Cost: a search of the block for each name; more only if a name is found.
# Limit: if the values themselves contain the names, there may be no such order, and then no block.

Header = tuple[bytes, bytes]


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
