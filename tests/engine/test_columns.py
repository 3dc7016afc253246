"""Columns are read as they were written, on machines of either byte order, from any place."""

import sys
from array import array
from typing import Literal

import pytest

from nats_scheduler.engine.snapshots.chunks import read_columns, write_columns

COLUMNS = [array("Q", [1, 1 << 63]), array("q", [-1, 3]), array("B", [0, 255])]


def test_what_is_written_is_read() -> None:
    data = b"before" + write_columns(COLUMNS)
    assert read_columns(data + b"after", 6, "QqB", 2) == (COLUMNS, len(data))
    assert read_columns(b"", 0, "q", 0) == ([array("q")], 0)


@pytest.mark.parametrize("order", ["little", "big"])
def test_the_least_byte_comes_first_on_any_machine(
    monkeypatch: pytest.MonkeyPatch, order: Literal["little", "big"]
) -> None:
    monkeypatch.setattr(sys, "byteorder", order)
    column = array("H")
    column.frombytes((0x0201).to_bytes(2, order))  # as the number is in the memory of such a machine
    assert write_columns([column]) == b"\x01\x02"
    assert read_columns(b"\x01\x02", 0, "H", 1) == ([column], 2)
