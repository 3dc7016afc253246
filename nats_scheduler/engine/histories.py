"""What a schedule with policies knows of its fires, as a snapshot has it: columns of numbers, least byte first.

The rule: what a schedule is given back is true at any later time, if all messages since are read. So what is in
progress is left out, and what only messages of this stream show of fires in another one: nobody would read the later
fires there.

Cost: 49 bytes for each schedule.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from nats_scheduler.engine.columns import read_columns, write_columns
from nats_scheduler.engine.far import NO_FIRE_TIME
from nats_scheduler.engine.held import HeldWithPolicies

_TYPES = "qQqqqBQ"
"""The types of the columns, in the order of `History`."""

HISTORY_BYTES = sum(array(code).itemsize for code in _TYPES)
"""The bytes of one history."""

_NONE = -1


class History(NamedTuple):
    """What is kept of the fires of one schedule: the attributes of `HeldWithPolicies` with these names."""

    previous_fire: int | None = None
    previous_sequence: int = 0
    previous_stored_at: int = 0
    dropped: int = 0
    unreported: int | None = None
    is_known: bool = True
    last_unfinished: int = 0


UNKNOWN = History()


def history_of(held: HeldWithPolicies) -> History:
    """Return what is kept of the fires of a schedule."""
    if held.is_elsewhere:
        return UNKNOWN
    before = held.previous_fire, held.previous_sequence, held.previous_stored_at
    return History(*before, held.dropped, held.unreported, held.is_known, held.last_unfinished)


def give_back(held: HeldWithPolicies, history: History) -> None:
    """Have a schedule know what was kept of its fires."""
    (
        held.previous_fire,
        held.previous_sequence,
        held.previous_stored_at,
        held.dropped,
        held.unreported,
        held.is_known,
        held.last_unfinished,
    ) = history


def write_histories(histories: Sequence[History]) -> bytes:
    """Return histories as columns."""
    rows = [
        one._replace(previous_fire=_number(one.previous_fire), unreported=_number(one.unreported)) for one in histories
    ]
    columns = zip(*rows, strict=True)
    return write_columns(array(code, column) for code, column in zip(_TYPES, columns, strict=True))


def read_histories(data: bytes, count: int) -> list[History] | None:
    """Return `count` histories that were written; None if no schedule can have one of them."""
    columns, _end = read_columns(data, 0, _TYPES, count)
    previous, _sequences, stored, dropped, unreported, known, _unfinished = columns
    is_possible = (
        min(min(previous), min(unreported)) >= _NONE
        and max(max(previous), max(unreported)) < NO_FIRE_TIME
        and min(min(stored), min(dropped)) >= 0
        and max(known) <= 1
    )
    if not is_possible:
        return None
    return [
        History(_instant(fire), sequence, at, count, _instant(first), bool(is_known), unfinished)
        for fire, sequence, at, count, first, is_known, unfinished in zip(*columns, strict=True)
    ]


def _number(instant: int | None) -> int:
    return _NONE if instant is None else instant


def _instant(number: int) -> int | None:
    return None if number == _NONE else number
