"""Columns of numbers as the bytes of a snapshot, with the least byte of each number first.

The rule: what is read is equal to what was written, on any machine.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable


def write_columns(columns: Iterable[array[int]]) -> bytes:
    """Return columns as bytes, one behind the other."""
    return b"".join(_turned(column).tobytes() for column in columns)


def read_columns(data: bytes, start: int, types: str, length: int) -> tuple[list[array[int]], int]:
    """Read columns of these type codes, `length` numbers each, and return them with where they end."""
    columns: list[array[int]] = []
    for code in types:
        column = array(code)
        end = start + length * column.itemsize
        column.frombytes(data[start:end])
        columns.append(_turned(column))
        start = end
    return columns, start


def _turned(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column
