"""Find the schedules on subjects with wildcards.

Rule: what is found is what `read_current` reads in the last message on each subject, sorted by subject.
Cost: as `ScheduleStore.schedules`. Limit: an operation on each of them is another request, by which time it may have
changed; its sequence says so (`expected`).
"""

from __future__ import annotations

from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.errors import NotPossibleError
from nats_scheduler.control.port import ScheduleStore

MAX_MATCHING = 100_000
"""Most schedules that are found at once, unless the caller sets another number."""


async def matching(
    store: ScheduleStore, stream: str, subjects: str = ">", *, most: int = MAX_MATCHING
) -> list[Current]:
    """Return the schedules on the subjects that match, active, paused or rejected, by subject.

    Raises `NotPossibleError` if there are more than `most`.
    """
    served = await store.served(stream)
    found: list[Current] = []
    async for message in store.schedules(stream, subjects):
        schedule = read_current(message, served)
        if schedule is None:
            continue
        if len(found) == most:
            raise NotPossibleError(f"more than {most:,} schedules of stream {stream} match {subjects}: name fewer")
        found.append(schedule)
    return sorted(found, key=lambda one: one.subject)
