"""A place in a list of schedules, soonest first, as a text that a requester sends back for the next page.

Cost: some microseconds.
"""

import base64
import binascii
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


NO_FIRE = 1 << 100
"""Stands for the next fire (ns) of a schedule that has none: later than all others."""


class Cursor(NamedTuple):
    """A place in the order of a page."""

    fire: int
    """The next fire (ns), or `NO_FIRE`."""
    subject: str

    @property
    def text(self) -> str:
        """The cursor for a client, which is not meant to read it."""
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode()


def read_cursor(text: str) -> Cursor | None:
    """Return the cursor with this text, None if it is not one of ours."""
    try:
        fire, subject = json.loads(base64.b64decode(text, altchars=b"-_", validate=True))
        subject.encode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError, TypeError, AttributeError, RecursionError):
        return None
    is_cursor = isinstance(fire, int) and not isinstance(fire, bool)
    return Cursor(fire, subject) if is_cursor else None


N = TypeVar("N")

LOOKED_AT_PER_UNIT = 256
"""Notes that are looked at in one unit of work."""

MAX_UNSORTED = 512
"""Notes that may be on the page and are not sorted yet."""


@dataclass(frozen=True, slots=True)
class SubjectPage(Generic[T]):
    """Some notes, or only their subjects, by subject."""

    messages: list[T]
    is_last: bool
    """True if nothing lies after them."""


def by_subject(
    noted: Sequence[Mapping[str, N]], is_wanted: Callable[[N], bool], limit: int, after: str
) -> Generator[None, None, SubjectPage[N]]:
    """Find the first `limit` notes after a subject, and others on the last subject; yield after each unit of work.

    The notes may change meanwhile: what is noted all the time is on exactly one page. The subjects are copied at once,
    10 ms for a million.
    """
    found: set[str] = set()
    last: str | None = None
    """No subject after this one is on the page."""
    for notes in noted:
        for number, subject in enumerate(list(notes), 1):
            if number % LOOKED_AT_PER_UNIT == 0:
                if len(found) > limit + MAX_UNSORTED:
                    found = set(sorted(found)[: limit + 1])
                    last = max(found)
                yield
            one = notes.get(subject)
            if one is not None and subject > after and (last is None or subject <= last) and is_wanted(one):
                found.add(subject)
    first = sorted(found)[:limit]
    kept = [one for subject in first for notes in noted if (one := notes.get(subject)) is not None]
    return SubjectPage([one for one in kept if is_wanted(one)], len(found) <= limit)
