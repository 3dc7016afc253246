"""Work that is done in slices, so that fires that become due between two of them need not wait.

The rule: a generator does the work and yields after each unit, which takes a fraction of a millisecond. A slice is as
many units as the caller of `advance` wants to do before it looks at the clock again.
"""

from collections.abc import Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class Sliced(Generic[T]):
    """One piece of work, and its result."""

    def __init__(self, work: Generator[None, None, T]) -> None:
        """Begin nothing yet; `work` yields after each unit, and returns the result."""
        self._work = work
        self._results: list[T] = []

    def advance(self) -> bool:
        """Do one unit of work; return whether there is more to do."""
        if not self._results:
            self._do_one()
        return not self._results

    def units(self) -> Generator[None, None, T]:
        """Do all that is left as a part of other work, which yields after each unit of it."""
        while not self._results:
            self._do_one()
            yield
        return self._results[0]

    def finish(self) -> T:
        """Do all that is left at once, and return the result."""
        while not self._results:
            self._do_one()
        return self._results[0]

    @property
    def result(self) -> T:
        """The result; only once `advance` has returned False."""
        assert self._results, "the work is not finished"
        return self._results[0]

    def _do_one(self) -> None:
        try:
            next(self._work)
        except StopIteration as done:
            self._results.append(done.value)
