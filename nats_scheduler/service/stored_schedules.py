"""The stored schedules of a stream for requests about many of them, with their bodies.

The rules:

- Which subjects there are is known from what this instance holds, or reads for requests (`service.server_schedules`):
  nothing else of the stream is read, whatever it contains.
- What is stored on each of them is asked of the leader of the stream, a few at a time, and in a moment without fires.
  So what is answered is what was stored then.

Cost: a visit of each schedule that is held, in slices, for each page of subjects; one request for each schedule.
Limit: a schedule that was stored a moment ago may not be held yet. What no request can name, such as a subject that is
not UTF-8, is not read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from typing import TypeVar

from nats_scheduler.control.declared import OWNER
from nats_scheduler.control.errors import NotPossibleError
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifetimes import PausedSchedule
from nats_scheduler.engine.views.pages import SubjectPage, first_subjects
from nats_scheduler.engine.views.view import MAX_PAGE_LENGTH, Query
from nats_scheduler.files.planning import last_messages
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.service.endpoint import Asked
from nats_scheduler.service.port import Known

T = TypeVar("T")

Visited = Held | PausedSchedule | None
"""A schedule, or the end of a unit of work."""

READS_AT_ONCE = 8
"""Messages that are asked for at the same time: each may be as long as the server allows."""

MAX_OWNED = 10_000
"""Schedules of an owner that are read because they are in no document."""


def subjects_page(
    known: Known, now: int, subjects: str | None, owner: str | None, limit: int, after: str
) -> Generator[None, None, SubjectPage[str]]:
    """Find the first subjects of schedules after one; with an owner, of those that may have its label.

    `now` is the server's time (ns). The label of a rejected schedule is not known, so it may have it.
    """
    query = Query(subjects)
    valid = yield from first_subjects(_wanted(known.view.visit_all(now), query, owner), limit, after)
    rejected = yield from known.view.rejected_page(query, limit, after).units()
    found = sorted({*valid.messages, *(one.subject for one in rejected.messages)})
    return SubjectPage(found[:limit], valid.is_last and rejected.is_last and len(found) <= limit)


def _wanted(visited: Iterable[Visited], query: Query, owner: str | None) -> Iterator[Visited]:
    """Yield the schedules that a query names, with the label of an owner if there is one; and None as it comes."""
    for one in visited:
        if one is None or (query.names(one) and (owner is None or (OWNER, owner) in one.terms.policies.written)):
            yield one


class StoredSchedules:
    """How requests read what is stored, and work on it: the `Means` of a plan."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    async def run(self, work: Generator[None, None, T]) -> T:
        """Do work that yields after each unit, between fires, and return its result."""
        return await self._asked.turns.run(work)

    async def stored(self, stream: str, owner: str | None, subjects: Sequence[str]) -> dict[str, StoredMessage]:
        """Return the last message on each of these subjects, and of each schedule with the label of the owner.

        Raises `NotPossibleError` if there are more than `MAX_OWNED` of these, and `ServiceError` as `Asked.known` does.
        """
        found = await self._read(stream, subjects)
        if owner is None:
            return found
        named, owned = frozenset(subjects), list[str]()
        async for page in self._pages(stream, owner):
            owned += (subject for subject in page if subject not in named)
            if len(owned) > MAX_OWNED:
                raise NotPossibleError(
                    f"stream {stream} has more than {MAX_OWNED:,} schedules that are in no document and may be of the "
                    f"owner {owner!r}: `nats-scheduler apply` and the Python client read them"
                )
        return found | await self._read(stream, owned)

    async def _read(self, stream: str, subjects: Sequence[str]) -> dict[str, StoredMessage]:
        found: dict[str, StoredMessage] = {}
        async for part in self.parts(stream, subjects):
            found |= {subject: message for subject, message in part.items() if message is not None}
        return found

    async def parts(self, stream: str, subjects: Sequence[str]) -> AsyncIterator[dict[str, StoredMessage | None]]:
        """Yield the last messages on these subjects, some at a time, in their order; None where none can be read."""
        for start in range(0, len(subjects), READS_AT_ONCE):
            await self._asked.turns.moment_without_fires()
            part = subjects[start : start + READS_AT_ONCE]
            found = await last_messages(self._asked.deployment.schedules, stream, part)
            yield {subject: found.get(subject) for subject in part}

    async def _pages(self, stream: str, owner: str) -> AsyncIterator[Sequence[str]]:
        known, after, is_last = await self._asked.known(stream), "", False
        while not is_last:
            work = subjects_page(known, self._asked.deployment.now(), None, owner, MAX_PAGE_LENGTH, after)
            page = await self.run(work)
            yield page.messages
            after, is_last = page.messages[-1] if page.messages else "", page.is_last
