"""One change to many schedules: each is tried, whatever became of the others.

Rule: a schedule that cannot be changed does not stop the others, and is named at the end.
Cost: up to `MAX_AT_ONCE` changes at the same time.
Limit: if the server does not answer `MAX_UNANSWERED` times, the rest is not tried, and fails for that reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from nats_scheduler.control.changes import Change
from nats_scheduler.control.errors import NoAnswerError, ScheduleError, UnknownOutcomeError

MAX_AT_ONCE = 16
"""The most schedules that are changed at the same time: enough to hide the way to a server far away."""

MAX_UNANSWERED = 3
"""The number of unanswered changes from which on the rest is not tried."""


class Done(NamedTuple):
    """The outcomes, by the subjects of the schedules and in the order of these."""

    changes: dict[str, Change]
    failures: dict[str, ScheduleError]


async def change_each(
    subjects: Sequence[str],
    operation: Callable[[str], Awaitable[Change]],
    notify: Callable[[int], None] = lambda _number: None,
) -> Done:
    """Change the schedules on these subjects, some at a time; `notify` is called with how many are done.

    No change is left running, whatever ends this.
    """
    outcomes: dict[str, Change | ScheduleError] = {}
    left, unanswered = iter(subjects), 0

    async def work() -> None:
        nonlocal unanswered
        for subject in left:
            if unanswered >= MAX_UNANSWERED:
                outcomes[subject] = NoAnswerError("it was not tried, because the server does not answer")
                continue
            try:
                outcomes[subject] = await operation(subject)
            except ScheduleError as error:
                outcomes[subject] = error
                unanswered += isinstance(error, NoAnswerError | UnknownOutcomeError)
            notify(len(outcomes))

    workers = [asyncio.ensure_future(work()) for _ in range(min(MAX_AT_ONCE, len(subjects)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    in_order = [(subject, outcomes[subject]) for subject in subjects if subject in outcomes]
    return Done(
        {subject: one for subject, one in in_order if isinstance(one, Change)},
        {subject: one for subject, one in in_order if isinstance(one, ScheduleError)},
    )
