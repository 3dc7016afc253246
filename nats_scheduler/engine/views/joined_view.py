"""Several views of one stream as one: what the sidecar fires there, and what the server itself fires.

The rule: a schedule is in exactly one of the views. A message with both spellings of the headers is two schedules on
one subject, because both fire: a page lists both, and a question for its subject is answered by the first view, that of
the sidecar.

Cost: that of all views; a page is sorted once more.
Limit: a page is one longer than its limit if the last two have the same place, so that a cursor loses neither. If an
answer has no room for the second of them, it is on no page.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from nats_scheduler.engine.events import HeadersMisnamed
from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.engine.reading.inactive import Rejected
from nats_scheduler.engine.views.pages import Cursor, Sliced, SubjectPage
from nats_scheduler.engine.views.timeline import Timeline
from nats_scheduler.engine.views.view import (
    ALL,
    MAX_PAGE_LENGTH,
    NONE_FAILING,
    Counts,
    EngineView,
    Failings,
    ListedSchedule,
    Page,
    Query,
    soonest_first,
)

T = TypeVar("T")


class JoinedView:
    """The view of an engine, and of what others fire on its stream; it answers as `EngineView` does."""

    def __init__(self, own: EngineView, *others: EngineView) -> None:
        """Join views; only `own` knows of flights, of failures and of misnamed headers."""
        self._own = own
        self._views = (own, *others)

    def schedule(self, subject: str, now: int) -> ListedSchedule | None:
        """Return the schedule that is held on a subject, as it is at `now` (ns)."""
        return next((one for view in self._views if (one := view.schedule(subject, now)) is not None), None)

    def rejection(self, subject: str) -> Rejected | None:
        """Return the rejected schedule on a subject."""
        return next((one for view in self._views if (one := view.rejection(subject)) is not None), None)

    def misnaming(self, subject: str) -> HeadersMisnamed | None:
        """Return the message on a subject if its headers are misnamed."""
        return self._own.misnaming(subject)

    def flight(self, subject: str) -> Flight | None:
        """Return what is in progress for the schedule on a subject: to look at, not to change."""
        return self._own.flight(subject)

    @property
    def rejected_count(self) -> int:
        """How many rejected schedules there are."""
        return sum(view.rejected_count for view in self._views)

    @property
    def misnamed_count(self) -> int:
        """How many messages there are whose headers are misnamed, at most 10,000."""
        return self._own.misnamed_count

    def page(
        self,
        now: int,
        query: Query = ALL,
        *,
        limit: int = MAX_PAGE_LENGTH,
        after: Cursor | None = None,
        failing: Failings = NONE_FAILING,
    ) -> Sliced[Page]:
        """Find the first `limit` schedules after a cursor, as `EngineView.page` does."""
        known = [failing] + [NONE_FAILING] * (len(self._views) - 1)
        works = [
            view.page(now, query, limit=limit, after=after, failing=fails)
            for view, fails in zip(self._views, known, strict=True)
        ]
        return Sliced(_page(works, limit))

    def counts(self, now: int, query: Query = ALL, failing: Failings = NONE_FAILING) -> Sliced[Counts]:
        """Count the schedules that a query wants, as `EngineView.counts` does."""
        others = [view.counts(now, query) for view in self._views[1:]]
        return Sliced(_counts([self._own.counts(now, query, failing), *others]))

    def add_to(self, timeline: Timeline, stream: str) -> Generator[None, None, None]:
        """Add all schedules to a timeline, as `EngineView.add_to` does."""
        for view in self._views:
            yield from view.add_to(timeline, stream)

    def rejected_page(self, query: Query, limit: int, after: str) -> Sliced[SubjectPage[Rejected]]:
        """Find the first `limit` rejected schedules after a subject, as `EngineView.rejected_page` does."""
        return Sliced(_subject_page([view.rejected_page(query, limit, after) for view in self._views], limit))

    def misnamed_page(self, query: Query, limit: int, after: str) -> Sliced[SubjectPage[HeadersMisnamed]]:
        """Do the same for messages whose headers are misnamed."""
        return self._own.misnamed_page(query, limit, after)


def _page(works: Sequence[Sliced[Page]], limit: int) -> Generator[None, None, Page]:
    found: list[ListedSchedule] = []
    is_more = False
    for work in works:
        page = yield from work.units()
        found += page.schedules
        is_more = is_more or page.following is not None
    first = _first(found, limit, soonest_first)
    is_more = is_more or len(first) < len(found)
    return Page(first, Cursor(*soonest_first(first[-1])) if is_more and first else None)


def _counts(works: Sequence[Sliced[Counts]]) -> Generator[None, None, Counts]:
    joined = Counts()
    for work in works:
        counts = yield from work.units()
        joined.total += counts.total
        for state, number in counts.states.items():
            joined.states[state] = joined.states.get(state, 0) + number
        for kind, number in counts.kinds.items():
            joined.kinds[kind] = joined.kinds.get(kind, 0) + number
    return joined


def _subject_page(
    works: Sequence[Sliced[SubjectPage[Rejected]]], limit: int
) -> Generator[None, None, SubjectPage[Rejected]]:
    found: list[Rejected] = []
    is_last = True
    for work in works:
        page = yield from work.units()
        found += page.messages
        is_last = is_last and page.is_last
    first = _first(found, limit, lambda one: one.subject)
    return SubjectPage(first, is_last and len(first) == len(found))


def _first(found: list[T], limit: int, place: Callable[[T], Any]) -> list[T]:
    """Return the first `limit`, and those with the same place as the last of them."""
    found.sort(key=place)
    end = limit
    while 0 < end < len(found) and place(found[end]) == place(found[end - 1]):
        end += 1
    return found[:end]
