"""One change to many schedules: each is tried, whatever became of the others.

Rule: a schedule that cannot be changed does not stop the others, and is named at the end.
Cost: up to `MAX_AT_ONCE` changes at the same time.
Limit: while the server answers nothing, one change is tried at a time, after a wait; if it has answered nothing for
`SILENCE_LIMIT_SECONDS`, the rest is not tried, and fails for that reason. A change that the server did not answer is
tried again, one of which nothing shows whether it was done is not: so changes come back to those that wait, and the
workers are not those of other rooms, which begin each work once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from nats_scheduler.control.changes import Change
from nats_scheduler.control.errors import NoAnswerError, SchedulerError, UnknownOutcomeError

MAX_AT_ONCE = 16
"""The most schedules that are changed at the same time: enough to hide the way to a server far away."""

MAX_UNANSWERED = 3
"""Changes in a row without an answer, after which one is tried at a time."""

SILENCE_LIMIT_SECONDS = 30.0
"""The longest time without any answer: to elect a leader takes a few seconds, to restart a server some ten."""

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.25, 4.0
"""The wait before a change is tried while nothing is answered; it doubles each time."""


class Done(NamedTuple):
    """The outcomes, by the subjects of the schedules and in the order of these."""

    changes: dict[str, Change]
    failures: dict[str, SchedulerError]


async def change_each(
    subjects: Sequence[str],
    operation: Callable[[str], Awaitable[Change]],
    notify: Callable[[int], None] = lambda _number: None,
    silence_limit: float = SILENCE_LIMIT_SECONDS,
) -> Done:
    """Change the schedules on these subjects, some at a time; `notify` is called with how many are done.

    The rest is not tried after `silence_limit` (s) without an answer. No change is left running, whatever ends this.
    """
    outcomes: dict[str, Change | SchedulerError] = {}
    left, silence = deque(subjects), _Silence(silence_limit)
    unanswered: dict[str, NoAnswerError] = {}
    not_tried = f"it was not tried, because the server has answered nothing for {silence_limit:g} s"

    async def change(subject: str) -> None:
        try:
            outcomes[subject] = await operation(subject)
        except NoAnswerError as error:
            unanswered[subject] = error
            left.append(subject)
            return silence.unanswered()
        except SchedulerError as error:
            outcomes[subject] = error
        is_answered = not isinstance(outcomes[subject], UnknownOutcomeError)
        notify(len(outcomes))
        return silence.answered() if is_answered else silence.unanswered()

    async def work() -> None:
        while left:
            async with silence.turn() as may_try:
                if left and may_try:
                    await change(left.popleft())
                elif left:
                    subject = left.popleft()
                    outcomes[subject] = unanswered.get(subject) or NoAnswerError(not_tried)

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
        {subject: one for subject, one in in_order if isinstance(one, SchedulerError)},
    )


class _Silence:
    """Whether the server answers: while it does not, one change is tried at a time, after a wait."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._answered_at = self._loop.time()
        self._in_a_row = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._trying = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Wait until a change may be tried, for as long as this lasts; False: nothing was answered for too long."""
        while self._in_a_row >= MAX_UNANSWERED:
            async with self._trying:
                if self._in_a_row < MAX_UNANSWERED:
                    continue
                left = self._answered_at + self._limit - self._loop.time()
                if left > 0:
                    await asyncio.sleep(min(self._pause, left))
                    self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)
                yield left > 0
                return
        yield True

    def unanswered(self) -> None:
        """Note that a change was not answered."""
        self._in_a_row += 1

    def answered(self) -> None:
        """Note that a change was answered, whatever the answer is."""
        self._in_a_row, self._answered_at, self._pause = 0, self._loop.time(), FIRST_PAUSE_SECONDS
