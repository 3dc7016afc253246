"""Pages of messages that are noted by their subjects, in the order of the subjects, found in slices.

The rules: a page is what lies after a subject, so that what is noted all the time is on exactly one page. The notes may
change between two slices.

Cost: a fraction of a microsecond for each note. Limit: the subjects are copied at once, 10 ms for a million.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Noted(Protocol):
    """What is on a subject."""

    @property
    def subject(self) -> str:
        """The subject."""
        ...


T = TypeVar("T")
N = TypeVar("N", bound=Noted)

LOOKED_AT_PER_UNIT = 256
"""Notes that are looked at in one unit of work."""

MAX_UNSORTED = 512
"""Notes that may be on the page and are not sorted yet."""


@dataclass(frozen=True, slots=True)
class SubjectPage(Generic[T]):
    """Some notes, or only their subjects, by subject."""

    messages: list[T]
    is_last: bool
    """Whether nothing lies after them."""


def by_subject(
    noted: Mapping[str, N], is_wanted: Callable[[N], bool], limit: int, after: str
) -> Generator[None, None, SubjectPage[N]]:
    """Find the first `limit` notes after a subject; yield after each unit of work."""
    page = yield from first_subjects(_visited(noted, is_wanted), limit, after)
    kept = (noted.get(subject) for subject in page.messages)
    return SubjectPage([one for one in kept if one is not None], page.is_last)


def first_subjects(visited: Iterable[Noted | None], limit: int, after: str) -> Generator[None, None, SubjectPage[str]]:
    """Find the first `limit` subjects after one of what is visited; yield where that has None."""
    found: list[str] = []
    last: str | None = None
    """No subject after this one is on the page."""
    for one in visited:
        if one is None:
            if len(found) > limit + MAX_UNSORTED:
                found = sorted(found)[: limit + 1]
                last = found[-1]
            yield
        elif one.subject > after and (last is None or one.subject <= last):
            found.append(one.subject)
    found.sort()
    return SubjectPage(found[:limit], len(found) <= limit)


def _visited(noted: Mapping[str, N], is_wanted: Callable[[N], bool]) -> Iterator[N | None]:
    """Yield the notes that are wanted, and None after each unit of work."""
    for number, subject in enumerate(list(noted), 1):
        if number % LOOKED_AT_PER_UNIT == 0:
            yield None
        one = noted.get(subject)
        if one is not None and is_wanted(one):
            yield one
