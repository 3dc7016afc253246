"""The content of a stored message, its headers and its body: as a document, and as lines that people read.

The rules:

- A document has the beginning of a body, and as many headers as fit: its size does not depend on the message.
- A body is a text if its beginning is UTF-8, and base64 otherwise. Nothing of it is interpreted, but that lines of JSON
  are indented: only blanks between its tokens differ from what is stored.
- Lines are as they are stored; who shows them makes visible what is not printable.

Cost: at most some milliseconds for a document. Limits: `MAX_BODY_BYTES` and the other constants; JSON that nests deeper
than `MAX_LEVELS` is not indented.
"""

import base64
import json
import re
from collections import Counter
from typing import NamedTuple

from typing_extensions import TypedDict

from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.generated import carried_block
from nats_scheduler.message.headers import decoded, header_items
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.documents import Number, Rows, Time
from nats_scheduler.schedule.rfc3339 import format_rfc3339

MAX_BODY_BYTES = 32 * 1024
"""Bytes of a body that a document has, from its beginning."""

MAX_HEADERS_BYTES = 64 * 1024
"""Bytes of all names and values together that a document has: a server stores no more."""

MAX_HEADERS = 500
"""Headers that a document has."""

MAX_LINES = 500
"""Lines of a body that are shown, unless the caller wants fewer."""

MAX_HEX_BYTES = 2 * 1024
"""Bytes of a body that are shown in hexadecimal digits."""

MAX_LEVELS = 16
"""Levels of JSON that are indented."""

HEX_BYTES_OF_A_LINE = 16
INDENT = "  "
TAB_CHARS = 4

_LONGEST_CHARACTER_BYTES = 4


class HeaderDocument(TypedDict):
    """A header of a stored message."""

    name: str
    value: str
    sent: bool
    """True if it is in a fire: if it is one, or a fire of the schedule will have it, unless that copies a source."""


class ContentDocument(TypedDict):
    """A stored message: what was published, or what a fire has stored."""

    subject: str
    sequence: Number
    stored: Time
    headers: Rows[HeaderDocument]
    """In their order, repeated ones too; at most 500."""
    headers_omitted: Number
    """How many more there are."""
    body_bytes: Number
    """The size of the whole body."""
    body: str | None
    """The beginning of the body as text, at most 32 KiB; null if that is not UTF-8."""
    body_base64: str | None
    """The same in base64, in place of `body`."""
    body_complete: bool
    """True if that is all of the body."""


class BodyLines(NamedTuple):
    """A body as people read it."""

    kind: str
    """`empty`, `JSON`, `text` or `binary`: then the lines are hexadecimal digits."""
    lines: list[str]
    is_complete: bool
    """True if that is all of the body."""


def content_document(message: StoredMessage, *, is_fire: bool, halvings: int = 0) -> ContentDocument:
    """Describe a stored message; each of the `halvings` makes its limits half as large."""
    items = header_items(message.block)
    carried = Counter(items if is_fire else header_items(carried_block(message.block, _dialect(message.block))))
    headers, room = list[HeaderDocument](), MAX_HEADERS_BYTES >> halvings
    for name, value in items[:MAX_HEADERS]:
        room -= len(name) + len(value)
        if room < 0:
            break
        carried[name, value] -= 1
        headers.append({"name": decoded(name), "value": decoded(value), "sent": carried[name, value] >= 0})
    whole = message.body or b""
    body = whole[: MAX_BODY_BYTES >> halvings]
    text = _text(body, is_cut=len(body) < len(whole))
    return {
        "subject": message.subject,
        "sequence": message.sequence,
        "stored": format_rfc3339(message.stored_at),
        "headers": headers,
        "headers_omitted": len(items) - len(headers),
        "body_bytes": len(whole),
        "body": text,
        "body_base64": base64.b64encode(body).decode() if text is None else None,
        "body_complete": len(body) == len(whole),
    }


def is_shortened(content: ContentDocument) -> bool:
    """Return whether a document has less than without any halvings."""
    shown = len((content["body"] or "").encode()) or len(_bytes(content["body_base64"]))
    has_less = not content["body_complete"] and shown <= MAX_BODY_BYTES - _LONGEST_CHARACTER_BYTES
    return has_less or (content["headers_omitted"] > 0 and len(content["headers"]) < MAX_HEADERS)


def body_lines(content: ContentDocument, most: int = MAX_LINES) -> BodyLines:
    """Return a body in at most `most` lines; the document may be an answer that any client has made up."""
    text, is_complete = content["body"], content["body_complete"]
    if not content["body_bytes"]:
        return BodyLines("empty", [], True)
    if text is None:
        body = _bytes(content["body_base64"])
        shown = body[: min(MAX_HEX_BYTES, most * HEX_BYTES_OF_A_LINE)]
        return BodyLines("binary", _hex_lines(shown), is_complete and len(shown) == len(body))
    text = text[:MAX_BODY_BYTES]
    is_json = is_complete and _is_json(text)
    lines = _indented(text, most) if is_json else None
    if lines is None:
        lines = [line.expandtabs(TAB_CHARS) for line in text.split("\n", most)[: most + 1]]
    return BodyLines("JSON" if is_json else "text", lines[:most], is_complete and len(lines) <= most)


def _dialect(block: bytes) -> Dialect:
    """Return the spelling by which a fire leaves headers out: the portable one leaves out both."""
    names = (name for name, _value in header_items(block))
    return PORTABLE if any(name.startswith(PORTABLE.schedule) for name in names) else ADR51


def _text(body: bytes, *, is_cut: bool) -> str | None:
    """Return a body as text; a character that the end has cut is left out. None if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        is_at_end = is_cut and error.end == len(body) and len(body) - error.start < _LONGEST_CHARACTER_BYTES
        return body[: error.start].decode() if is_at_end and error.reason == "unexpected end of data" else None


def _bytes(text: str | None) -> bytes:
    """Return the bytes that a text in base64 stands for, nothing for another text."""
    try:
        return base64.b64decode(text or "", validate=True)
    except ValueError:
        return b""


def _hex_lines(body: bytes) -> list[str]:
    lines = []
    for at in range(0, len(body), HEX_BYTES_OF_A_LINE):
        part = body[at : at + HEX_BYTES_OF_A_LINE]
        letters = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in part)
        lines.append(f"{at:06x}  {part.hex(' '):{HEX_BYTES_OF_A_LINE * 3 - 1}}  {letters}")
    return lines


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_READER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)  # no number is computed
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++').findall


def _is_json(text: str) -> bool:
    try:
        _READER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _indented(text: str, most: int) -> list[str] | None:
    """Return JSON with one value a line, and no more lines than one above `most`; None if it nests too deeply."""
    parts: list[str] = _TOKENS(text)
    lines, line, level, before = list[str](), "", 0, ""
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        is_filled = part in ("{", "[") and following not in ("}", "]")
        is_end = part in ("}", "]") and before not in ("{", "[")
        level += is_filled - is_end
        if level > MAX_LEVELS:
            return None
        if is_end:
            lines.append(line)
            line = INDENT * level
        line += ": " if part == ":" else part
        if is_filled or part == ",":
            lines.append(line)
            line = INDENT * level
        if len(lines) > most:
            return lines
        before = part
    return [*lines, line]
