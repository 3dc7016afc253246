"""Read and change raw header blocks: `NATS/1.0\r\nA: b\r\n\r\n`.

Rule: everything that a call does not change stays the same, byte for byte, and no input raises an exception.
A parsed mapping would lose order, spacing, duplicates and bytes that are not UTF-8, and a generated message must keep
all of them. So every function works on the bytes, and treats special cases as the server's own functions do
(`sliceHeader`, `removeHeaderIfPresent`, `removeHeaderIfPrefixPresent`, `genHeader` in nats-server's client.go).
Cost: a look-up is one `bytes.find` if the header is absent; a change copies the block once. Both are linear.
Limit: the block is assumed to be at most 64 KiB, which is the server's own limit.
"""

from collections.abc import Callable, Iterable

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

Header = tuple[bytes, bytes]
"""A name and a value."""

_PROTOCOL_VERSION = b"NATS/1.0"
_COLON = ord(":")


def decoded(value: bytes) -> str:
    """Return a header's value as text; bytes that are not UTF-8 survive the way back."""
    return value.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Return the bytes of a header's value that was `decoded`: the same ones, whatever they are."""
    return text.encode("utf-8", "surrogateescape")


def shown(text: bytes) -> str:
    """Return a name or a value as it is shown to people; bytes that are not UTF-8 are escaped."""
    return text.decode("utf-8", "backslashreplace")


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


def block_of(items: Iterable[Header]) -> bytes:
    """Return the block that has these headers, byte for byte: whether it reads to them is for the caller to know."""
    return block_of_lines(b"%b: %b" % item for item in items)


def block_of_lines(lines: Iterable[bytes]) -> bytes:
    """Return the header block with these lines."""
    return b"".join((HEADER_LINE, *(line + CRLF for line in lines), CRLF))


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
