"""Work as a generator that yields after each unit, so that a program with a loop can do other things in between.

Rule: a unit takes some tens of microseconds, and so does what a caller of `finished` cannot interrupt at all: it is for
programs that have nothing else to do.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finished(work: Generator[None, None, T]) -> T:
    """Do all units of a work at once, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
