"""Which instance fires which of the 64 parts of each stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nats_scheduler.service.schemas import InstanceDocument

SHARDS = 64
COLUMNS = 32
CELL, GAP = 18, 3
MAX_COLOURS = 6
"""Colours that are told apart; further instances share them, and differ by their letters."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Cell:
    """One shard."""

    x: int
    y: int
    letter: str
    """Of the instance that holds it; "" if none does."""
    colour: int
    text: str


@dataclass(frozen=True, slots=True)
class StreamShards:
    """The shards of one stream."""

    stream: str
    mode: str
    cells: Sequence[Cell]
    free: int
    """Shards that no instance holds."""
    width: int = COLUMNS * (CELL + GAP) - GAP
    height: int = SHARDS // COLUMNS * (CELL + GAP) - GAP
    cell: int = CELL


def letters_of(instances: Sequence[InstanceDocument]) -> dict[str, str]:
    """Return a letter for each instance, by id."""
    return {one["id"]: LETTERS[number % len(LETTERS)] for number, one in enumerate(instances)}


def stream_shards(instances: Sequence[InstanceDocument]) -> list[StreamShards]:
    """Return the shards of all streams, by name and mode."""
    letters = letters_of(instances)
    held: dict[tuple[str, str], dict[int, str]] = {}
    for one in instances:
        for part in one["holds"]:
            holders = held.setdefault((part["stream"], part["mode"]), {})
            holders |= {shard: one["id"] for shard in part["shards"] if 0 <= shard < SHARDS}
    return [_shards(name, mode, holders, letters) for (name, mode), holders in sorted(held.items())]


def _shards(stream: str, mode: str, holders: Mapping[int, str], letters: Mapping[str, str]) -> StreamShards:
    cells = []
    for shard in range(SHARDS):
        holder = holders.get(shard)
        letter = "" if holder is None else letters[holder]
        colour = LETTERS.index(letter) % MAX_COLOURS if letter else 0
        text = f"Shard {shard}: {holder or 'no instance'}"
        x, y = shard % COLUMNS * (CELL + GAP), shard // COLUMNS * (CELL + GAP)
        cells.append(Cell(x, y, letter, colour, text))
    return StreamShards(stream, mode, cells, SHARDS - len(holders))


def ranges_text(numbers: Sequence[int]) -> str:
    """Return numbers as ranges: `0–31, 40`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
