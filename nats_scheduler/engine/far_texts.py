"""The texts of the far schedules of one row: bytes behind each other, and where those of each place are.

The rule: nothing is moved. What is not needed any more stays until the texts that are left are put together anew.
Cost: four bytes for each place. Limit: 64 KB, since a position takes two bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class Texts:
    """The texts of a row, by place."""

    __slots__ = ("_ends", "_starts", "data")

    def __init__(self, places: int = 0) -> None:
        """Begin with empty texts."""
        self._starts = array("H", bytes(2 * places))
        self._ends = array("H", bytes(2 * places))
        self.data = bytearray()
        """All of them, and what was taken out since they were put together."""

    def at(self, place: int) -> bytes:
        """Return the texts of a place."""
        return bytes(self.data[self._starts[place] : self._ends[place]])

    def put(self, place: int, text: bytes) -> None:
        """Append the texts of a place."""
        self._starts[place] = len(self.data)
        self.data += text
        self._ends[place] = len(self.data)

    def grow(self, more: int) -> None:
        """Have so many more places, with empty texts."""
        for column in (self._starts, self._ends):
            column.frombytes(bytes(more * column.itemsize))

    def trim(self, places: int) -> None:
        """Have so many places, and no room to grow."""
        self._starts, self._ends, self.data = self._starts[:places], self._ends[:places], bytearray(self.data)

    def ends_of_first(self, places: int) -> array[int] | None:
        """Return where the texts of the first places end, if these are all there is and follow each other."""
        starts, ends = self._starts[:places], self._ends[:places]
        is_whole = starts[0] == 0 and starts[1:] == ends[:-1] and ends[-1] == len(self.data)
        return ends if is_whole else None

    @classmethod
    def of_ends(cls, ends: array[int], data: bytes) -> Texts:
        """Return texts that follow each other without a gap."""
        texts = cls()
        texts._starts = array("H", [0])
        texts._starts.extend(ends[:-1])
        texts._ends, texts.data = ends, bytearray(data)
        return texts

    def of(self, places: Iterable[int]) -> Texts:
        """Return the texts of these places alone."""
        texts = Texts(len(self._starts))
        for place in places:
            texts.put(place, self.at(place))
        return texts
