"""Answers that contain many items: encoded a few items at a time, and never longer than the server takes.

The rules: a list ends where the next item would not fit, and the requester gets a cursor instead of an error. At
least one item is always in it: one that does not fit alone is shortened, its texts to `MAX_TEXT_CHARS` and its
lists to `MAX_LIST_LENGTH`, and has the key `SHORTENED`.
"""

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

ITEMS_PER_UNIT = 4
"""Items that are described and encoded in one unit of work, some tens of microseconds each."""

FRAME_BYTES = 2_048
"""Room for what is around the items: their keys, a cursor, the instances that did not answer."""

MAX_TEXT_CHARS = 256
MAX_LIST_LENGTH = 64

SHORTENED = "shortened"
"""A key that only a shortened item has; its value is true."""

Row = TypeVar("Row")


def encode_items(
    rows: Iterable[Row], document_of: Callable[[Row], Mapping[str, Any]], room: int
) -> Generator[None, None, list[bytes]]:
    """Encode as many rows, from the first on, as fit into `room` bytes; yield after each unit of work."""
    items: list[bytes] = []
    left = room
    for number, row in enumerate(rows, 1):
        item = encode_item(document_of(row), room)
        left -= len(item) + 1
        if left < 0 and items:
            break
        items.append(item)
        if number % ITEMS_PER_UNIT == 0:
            yield
    return items


def encode_item(document: Mapping[str, Any], room: int) -> bytes:
    """Encode one item; shorten it if it does not fit into `room` bytes."""
    item = json.dumps(document).encode()
    return item if len(item) <= room else json.dumps({**_shortened(document), SHORTENED: True}).encode()


def with_items(document: Mapping[str, Any], key: str, items: Iterable[bytes]) -> bytes:
    """Return an encoded object with one more key, whose value is a list of encoded items."""
    head = json.dumps(document).encode()
    return b'%b%b"%b": [%b]}' % (head[:-1], b", " if document else b"", key.encode(), b", ".join(items))


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT_CHARS else f"{value[:MAX_TEXT_CHARS]}…"
    if isinstance(value, Mapping):
        return {key: _shortened(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(one) for one in value[:MAX_LIST_LENGTH]]
    return value
