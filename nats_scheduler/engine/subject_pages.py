"""Pages of messages that are noted by their subjects, in the order of the subjects, found in slices.

The rules: a page is what lies after a subject, so that what is noted all the time is on exactly one page. The notes may
change between two slices.

Cost: a fraction of a microsecond for each note. Limit: the subjects are copied at once, 10 ms for a million.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

LOOKED_AT_PER_UNIT = 256
"""Notes that are looked at in one unit of work."""

MAX_UNSORTED = 512
"""Notes that may be on the page and are not sorted yet."""


@dataclass(frozen=True, slots=True)
class SubjectPage(Generic[T]):
    """Some notes, by subject."""

    messages: list[T]
    is_last: bool
    """Whether nothing lies after them."""


def by_subject(
    noted: Mapping[str, T], is_wanted: Callable[[T], bool], limit: int, after: str
) -> Generator[None, None, SubjectPage[T]]:
    """Find the first `limit` notes after a subject; yield after each unit of work."""
    found: list[str] = []
    last: str | None = None
    """No subject after this one is on the page."""
    for number, subject in enumerate(list(noted), 1):
        if number % LOOKED_AT_PER_UNIT == 0:
            if len(found) > limit + MAX_UNSORTED:
                found = sorted(found)[: limit + 1]
                last = found[-1]
            yield
        one = noted.get(subject)
        if one is not None and subject > after and (last is None or subject <= last) and is_wanted(one):
            found.append(subject)
    found.sort()
    kept = (noted.get(subject) for subject in found[:limit])
    return SubjectPage([one for one in kept if one is not None], len(found) <= limit)
